"""Runs as root in the virtual machine: sets its clock and reseeds its random numbers after its state was restored.

Each line on the second serial port is an order, ``{"time": seconds since 1970, "seed": hexadecimal}``; the answer is
the line ``{"done": true}``, or ``{"error": "..."}``.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import tty
from pathlib import Path
from typing import Any

PORT = "/dev/ttyS1"
RESEED = 0x5207
"""ioctl RNDRESEEDCRNG (Linux, include/uapi/linux/random.h): without it, a seed counts after a minute."""


def obey(order: dict[str, Any]) -> None:
    """Carry out one order."""
    time.clock_settime(time.CLOCK_REALTIME, float(order["time"]))
    with Path("/dev/urandom").open("wb", buffering=0) as random:
        random.write(bytes.fromhex(order["seed"]))
        fcntl.ioctl(random, RESEED)


def main() -> None:
    """Answer requests forever."""
    Path("/proc/self/oom_score_adj").write_text("-1000")
    port = os.open(PORT, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(port)
    with os.fdopen(port, "rb", buffering=0, closefd=False) as orders:
        rest = b""
        while True:
            rest += orders.read(4096) or b""
            *lines, rest = rest.split(b"\n")
            for line in lines:
                answer: dict[str, Any] = {"done": True}
                try:
                    obey(json.loads(line))
                except (OSError, ValueError, KeyError) as error:
                    answer = {"error": repr(error)}
                os.write(port, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
