"""A desktop that has lost a program by a crash or for lack of memory, or whose disk is full, has no score."""

import asyncio

import pytest

pytest.importorskip("httpx")

from dartsim.real.osworld.errors import ApplicationCrashed, DiskFull, OutOfMemory
from dartsim.real.osworld.recycle import HEALTH, check_health
from dartsim.real.osworld.replies import Executed
from dartsim.real.osworld.transport import Timeouts

V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill {}\noom_group_kill 0\n"


def checked(fakes, output):
    client = fakes.FakeClient(outputs={HEALTH: Executed(output, "", 0)})
    client.timeouts, client.base_url = Timeouts(), "http://vm"
    asyncio.run(check_health(client))


@pytest.mark.parametrize("output", [V1.format(0) + "61000000\n", V2.format(0), ""])
def test_a_desktop_that_lost_nothing_passes(fakes, output):
    checked(fakes, output)


@pytest.mark.parametrize("output", [V1.format(2), V2.format(2)])
def test_kills_are_a_fault(fakes, output):
    with pytest.raises(OutOfMemory, match=r"desktop\.memory_mib"):
        checked(fakes, output)


def test_a_crash_is_a_fault(fakes):
    with pytest.raises(ApplicationCrashed, match="soffice --calc by SIGSEGV"):
        checked(fakes, V1.format(0) + "crashed: soffice --calc by SIGSEGV\n61000000\n")


def test_a_full_disk_is_a_fault(fakes):
    with pytest.raises(DiskFull):
        checked(fakes, V2.format(0) + "     0\n")
