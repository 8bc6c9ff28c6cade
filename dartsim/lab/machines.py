"""Machines to plan for, as given on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dartsim.core.errors import ConfigError

HOSTS = re.compile(r"^(?P<count>\d+)x(?P<memory>\d+(?:\.\d+)?)GiB(?:x(?P<cores>\d+(?:\.\d+)?)cores)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines to plan for.

    Attributes:
        gpus: GPUs of workers and trainer together.
        hosts: Machines for desktops.
        memory_gib: Memory of each host.
        cores: Cores of each host; None keeps the configuration's.
    """

    gpus: int
    hosts: int
    memory_gib: float
    cores: float | None = None

    def __str__(self) -> str:
        return f"{self.gpus} GPUs, {self.hosts}x{self.memory_gib:g}GiB"


def read_hosts(text: str) -> tuple[int, float, float | None]:
    """Parse the number, memory and cores of hosts: ``4x64GiB`` or ``4x64GiBx32cores``.

    Raises:
        ConfigError: If the text has another form, or a number is 0.
    """
    match = HOSTS.match(text.replace(" ", ""))
    numbers = () if match is None else tuple(float(number) for number in match.groups() if number is not None)
    if match is None or not all(numbers):
        raise ConfigError(
            "hosts are written COUNTxMEMORYGiB or COUNTxMEMORYGiBxCOREScores, as 4x64GiB or 4x64GiBx32cores, with "
            f"numbers above 0; got {text!r}"
        )
    return int(match["count"]), float(match["memory"]), float(match["cores"]) if match["cores"] else None
