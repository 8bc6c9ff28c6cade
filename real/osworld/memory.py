"""Whether the kernel has killed programs of a desktop because its container ran out of memory.

The container and its first process live on, an application may be gone, and what is left looks like a desktop on
which nothing was done. A score of that state would say nothing about the policy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dartsim.real.osworld.errors import OutOfMemory

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient

COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Where a container sees the counts of its own control group, versions 2 and 1."""


async def check_memory(client: VmClient) -> None:
    """Refuse a desktop in which programs were killed for want of memory, ever since its container started.

    Raises:
        OutOfMemory: If there were any.
        EnvBroken: If the desktop cannot be asked.
    """
    # One of the two files is not there, so that the exit code says nothing.
    done = await client.execute(["cat", *COUNTERS], seconds=client.timeouts.other, action=False)
    killed = sum(int(number) for number in re.findall(r"^oom_kill (\d+)$", done.output, re.MULTILINE))
    if killed:
        raise OutOfMemory(
            f"{client.base_url}: the kernel killed {killed} programs because the container is out of memory; raise "
            "its limit (desktop.memory_mib)"
        )
