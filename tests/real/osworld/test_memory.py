"""A desktop in which the kernel, out of memory, has killed programs has no score."""

import asyncio

import pytest

pytest.importorskip("httpx")

from dartsim.real.osworld.errors import OutOfMemory
from dartsim.real.osworld.recycle import COUNTERS, check_memory
from dartsim.real.osworld.replies import Executed
from dartsim.real.osworld.transport import Timeouts

COMMAND = " ".join(["cat", *COUNTERS])
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill {}\noom_group_kill 0\n"


def checked(fakes, output):
    client = fakes.FakeClient(outputs={COMMAND: Executed(output, "cat: one is not there", 1)})
    client.timeouts, client.base_url = Timeouts(), "http://vm"
    asyncio.run(check_memory(client))


@pytest.mark.parametrize("output", [V1.format(0), V2.format(0), ""])
def test_a_desktop_with_enough_memory_passes(fakes, output):
    checked(fakes, output)


@pytest.mark.parametrize("output", [V1.format(2), V2.format(2)])
def test_kills_are_a_fault(fakes, output):
    with pytest.raises(OutOfMemory, match=r"desktop\.memory_mib"):
        checked(fakes, output)
