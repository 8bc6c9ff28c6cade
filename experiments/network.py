"""Hosts of a test as network namespaces of this machine, on a network with delay, loss and partitions.

    with Network(["driver", "engines"]) as network:
        server = network.start("engines", [sys.executable, "server.py"])
        network.set(delay_seconds=0.025, loss=0.01)
        network.call("driver", function)
        network.cut("driver", "engines")  # packets vanish both ways: nothing answers, nothing is refused
        network.heal()

Each namespace has one TUN device. A process of its own, the wire, carries the IP packets between them: the kernel's TCP
runs on both sides, and no traffic control module is needed, which few small kernels have. Nothing is left of a network
whose owner was killed: the wire ends with the thread that made it, and the namespaces with their last process.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from dartsim.real.processes import end_with

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
SUBNET = "10.77.0."
DEVICE = "wire"
MTU = 1500
STOP_SECONDS = 10.0
PACKETS_AT_ONCE = 64

# linux/sched.h, linux/if_tun.h, linux/if.h, linux/sockios.h
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI, IFF_UP = 0x400454CA, 0x0001, 0x1000, 0x1
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU = 0x8913, 0x8914, 0x8916, 0x891C, 0x8922

_LIBC = ctypes.CDLL(None, use_errno=True)


class NoNetwork(Exception):
    """Network namespaces cannot be made here; the message says why."""


class Network:
    """Hosts and the wire between them.

    Raises:
        NoNetwork: On entering, if this machine or this user cannot make network namespaces.
    """

    def __init__(self, hosts: Sequence[str], *, seed: int = 0) -> None:
        self.hosts = list(hosts)
        self._seed = seed
        self._wire: subprocess.Popen[str] | None = None
        self._fds: list[int] = []
        self._processes: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        if shutil.which("nsenter") is None:
            raise NoNetwork("no nsenter on this machine: install util-linux")
        self._wire = self._popen(
            [sys.executable, "-m", "experiments.network", str(len(self.hosts)), str(self._seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self._wire.stdout is not None
        line = self._wire.stdout.readline()
        if not line:
            _, said = self._wire.communicate()
            raise NoNetwork(f"no network namespaces here: {(said.strip().splitlines() or ['the wire ended'])[-1]}")
        self._fds = json.loads(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._wire is not None
        for process in [*reversed(self._processes), self._wire]:
            stop(process)
        for pipe in (self._wire.stdin, self._wire.stdout, self._wire.stderr):
            assert pipe is not None
            pipe.close()

    def address(self, host: str) -> str:
        return f"{SUBNET}{self.hosts.index(host) + 1}"

    def set(self, *, delay_seconds: float = 0.0, loss: float = 0.0) -> None:
        """Delay every packet, each way, and lose a share of them."""
        self._tell(delay=delay_seconds, loss=loss)

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Drop all packets between two hosts, or only those from the first to the second, without a word."""
        ends = self.hosts.index(source), self.hosts.index(target)
        self._tell(cut=[ends] if one_way else [ends, ends[::-1]])

    def heal(self) -> None:
        """Carry packets between all hosts again."""
        self._tell(cut=[])

    def _tell(self, **what: Any) -> None:
        """Tell the wire what to do with packets from now on, and wait until it does."""
        assert self._wire is not None
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        self._wire.stdin.write(json.dumps(what) + "\n")
        self._wire.stdin.flush()
        self._wire.stdout.readline()

    def command(self, host: str, command: Sequence[str | Path]) -> list[str]:
        """Return a command line that runs a command on a host."""
        return ["nsenter", f"--net={self._namespace(host)}", *map(str, command)]

    def start(self, host: str, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start a process on a host; it ends with the network, or with the thread that started it."""
        process = self._popen(self.command(host, command), **options)
        self._processes.append(process)
        return process

    def call(self, host: str, function: Callable[[], T]) -> T:
        """Call a function on a host, in a thread of this process; threads that it starts are there too."""
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                with self._namespace(host).open() as namespace:
                    _checked(_LIBC.setns(namespace.fileno(), CLONE_NEWNET))
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, name=host)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def _namespace(self, host: str) -> Path:
        assert self._wire is not None
        return Path(f"/proc/{self._wire.pid}/fd/{self._fds[self.hosts.index(host)]}")

    def _popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(command, preexec_fn=partial(end_with, os.getpid(), signal.SIGTERM), **options)


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process, by force if it takes long."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Wire:
    """Carries packets between TUN devices; bytes 16 to 20 of a packet are its target (IPv4)."""

    def __init__(self, devices: Sequence[int], rng: random.Random) -> None:
        self._devices = devices
        self._rng = rng
        self._delay, self._loss = 0.0, 0.0
        self._cut: set[tuple[int, int]] = set()
        self._due: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()

    def run(self, commands: IO[bytes]) -> None:
        poll = select.epoll()
        for device in (*self._devices, commands.fileno()):
            poll.register(device, select.EPOLLIN)
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1
            for ready, _ in poll.poll(wait):
                if ready != commands.fileno():
                    self._take(self._devices.index(ready))
                elif not (line := commands.readline()):
                    return
                else:
                    self._obey(**json.loads(line))
                    sys.stdout.write("\n")
                    sys.stdout.flush()
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self._due)
                self._put(target, packet)

    def _obey(self, delay: float | None = None, loss: float = 0.0, cut: Sequence[Sequence[int]] | None = None) -> None:
        if delay is not None:
            self._delay, self._loss = delay, loss
        if cut is not None:
            self._cut = {(source, target) for source, target in cut}

    def _take(self, source: int) -> None:
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(self._devices[source], 65536)
            except BlockingIOError:
                return
            target = packet[19] - 1
            known = packet[0] >> 4 == 4 and packet[16:19] == bytes(map(int, SUBNET.split(".")[:3]))
            if not known or target not in range(len(self._devices)) or (source, target) in self._cut:
                continue
            if self._loss and self._rng.random() < self._loss:
                continue
            if self._delay:
                heapq.heappush(self._due, (time.monotonic() + self._delay, next(self._numbers), target, packet))
            else:
                self._put(target, packet)

    def _put(self, target: int, packet: bytes) -> None:
        try:
            os.write(self._devices[target], packet)
        except BlockingIOError:
            return  # its queue is full: lost, as on any network


def new_host(number: int) -> tuple[int, int]:
    """Move to a new network namespace with a TUN device, and return both as file descriptors."""
    _checked(_LIBC.unshare(CLONE_NEWNET))
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:

        def ask(name: str, request: int, form: str, *values: Any) -> bytes:
            return fcntl.ioctl(asking, request, struct.pack(f"16s{form}", name.encode(), *values).ljust(40, b"\0"))

        for request, address in ((SIOCSIFADDR, f"{SUBNET}{number + 1}"), (SIOCSIFNETMASK, "255.255.255.0")):
            ask(DEVICE, request, "HH4s", socket.AF_INET, 0, socket.inet_aton(address))
        ask(DEVICE, SIOCSIFMTU, "i", MTU)
        for name in ("lo", DEVICE):
            flags = struct.unpack("16xH22x", ask(name, SIOCGIFFLAGS, ""))[0]
            ask(name, SIOCSIFFLAGS, "H", flags | IFF_UP)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY), device


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} (needs root, CAP_SYS_ADMIN and CAP_NET_ADMIN)")


def main() -> None:
    """Run the wire; print the file descriptors of the hosts' namespaces, then obey standard input."""
    about = "Carry packets between network namespaces, for Network of this module."
    parser = argparse.ArgumentParser(prog="python -m experiments.network", description=about)
    parser.add_argument("hosts", type=int, help="number of hosts")
    parser.add_argument("seed", type=int, help="of the losses")
    asked = parser.parse_args()
    hosts = [new_host(number) for number in range(asked.hosts)]
    sys.stdout.write(json.dumps([namespace for namespace, _ in hosts]) + "\n")
    sys.stdout.flush()
    with os.fdopen(0, "rb", buffering=0) as commands:
        Wire([device for _, device in hosts], random.Random(asked.seed)).run(commands)


if __name__ == "__main__":
    main()
