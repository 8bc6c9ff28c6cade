"""Runs QEMU in a container, and saves and restores the virtual machine's state.

    run           start the machine, and end when it ends: the container's main program
    save KEY      save the machine's current state as KEY, and print its bytes
    restore KEY   return to that state
    delete KEY    delete it

A state is a folder of ``/snapshots``, which containers of one engine share: ``memory`` is QEMU's migration to a file,
``disk`` a copy of the small overlay over the read-only disk. To restore, QEMU is restarted on another copy of the
overlay and reads the memory, in the same container or another one, because all contain the same machine.

Environment: RAM_SIZE (such as 4G), CPU_CORES, KVM (Y or N), FIRMWARE (bios or uefi, for a disk with its own boot
loader, mounted in place of ours), STATES_MIB (limit of all states together), and the desktop's own settings, which are
passed to the guest.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

DISK = Path("/System.qcow2")
SNAPSHOTS = Path("/snapshots")
RUNTIME = Path("/run/vm")
UEFI_CODE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
UEFI_SETTINGS = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on"
BOOT = {
    # Our own disk, which has no boot loader, no screen but its X server's, and our agent.
    "": ["-kernel", "/vm/kernel", "-initrd", "/vm/initrd", "-append", KERNEL_OPTIONS],
    "bios": [],
    "uefi": [
        *("-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={UEFI_CODE}"),
        *("-drive", f"if=pflash,format=raw,unit=1,file={RUNTIME}/firmware"),
    ],
}
"""QEMU's options by FIRMWARE."""
PORTS = (5000, 8006, 8080, 9222)
GUEST_SETTINGS = ("DESKTOP_APP", "DESKTOP_TOKEN", "HEIGHT", "VNC", "WARM_ACTIONS", "WIDTH")
IMAGE_SETTINGS = ("GSETTINGS_BACKEND", "HOME", "LANG", "PATH", "PYTHONPATH")
CALL_SECONDS = 60.0
RESERVE = 2**30
"""Bytes of the engine's disk that states leave free."""
NOT_THERE = 4
"""Exit code: there is no state of this key."""


class Failed(Exception):
    """A command of this program failed."""


class Qemu:
    """QEMU's machine protocol (QMP), one command at a time."""

    def __init__(self, seconds: float = CALL_SECONDS) -> None:
        self._socket = connect(RUNTIME / "qmp", seconds)
        self._stream = self._socket.makefile("rw", encoding="utf-8")
        self._read()  # the greeting
        self("qmp_capabilities")

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Carry out a command and return its answer."""
        self._stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._stream.flush()
        while True:
            answer = self._read()
            if "error" in answer:
                raise Failed(f"QEMU refused {command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def wait_for(self, event: str, *statuses: str) -> str:
        """Wait for an event with one of these statuses, and return the status."""
        while True:
            message = self._read()
            status = str(message.get("data", {}).get("status", ""))
            if message.get("event") == event and status in statuses:
                return status

    def _read(self) -> dict[str, Any]:
        line = self._stream.readline()
        if not line:
            raise Failed("QEMU ended")
        return dict(json.loads(line))

    def close(self) -> None:
        self._socket.close()


@contextmanager
def qemu() -> Iterator[Qemu]:
    """Provide a connection; QEMU serves one at a time."""
    machine = Qemu()
    try:
        yield machine
    finally:
        machine.close()


def connect(path: Path, seconds: float) -> socket.socket:
    """Connect to a Unix socket of QEMU, which does not exist until QEMU has started."""
    deadline = time.monotonic() + seconds
    while True:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(seconds)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > deadline:
                raise Failed(f"QEMU does not listen at {path}") from None
            time.sleep(0.02)
        else:
            return connection


def guest_environment() -> str:
    """Return the environment of the guest's first program, as shell commands."""
    settings = {name: os.environ[name] for name in (*IMAGE_SETTINGS, *GUEST_SETTINGS) if name in os.environ}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())


def firmware() -> str:
    """Return the firmware that starts the disk's boot loader; "" for our own disk, which has none."""
    return os.environ.get("FIRMWARE", "")


def command(*, incoming: str | None) -> list[str]:
    """Return QEMU's command line; ``incoming`` is the state to start from."""
    setting = os.environ.get
    kvm = setting("KVM", "Y")[:1].upper() == "Y" and os.access("/dev/kvm", os.R_OK | os.W_OK)
    forwarded = "".join(f",hostfwd=tcp:0.0.0.0:{port}-:{port}" for port in PORTS)
    line = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-vga", "none"]
    # A larger cache of translated code than this hardly helps, and the container's memory is limited.
    line += (
        ["-accel", "kvm", "-cpu", "host"] if kvm else ["-accel", "tcg,thread=multi,tb-size=128", "-cpu", "max,la57=off"]
    )
    line += [
        "-machine",
        "pc,usb=off,vmport=off,hpet=off",
        "-m",
        setting("RAM_SIZE", "1G"),
        "-smp",
        setting("CPU_CORES", "1"),
    ]
    line += ["-rtc", "base=utc", *BOOT[firmware()]]
    if firmware():
        line += ["-device", f"virtio-vga,xres={setting('WIDTH', '1920')},yres={setting('HEIGHT', '1080')}"]
    line += ["-drive", f"file={RUNTIME}/overlay,format=qcow2,if=none,id=disk,cache=unsafe,discard=unmap"]
    line += ["-device", "virtio-blk-pci,drive=disk", "-device", "virtio-net-pci,netdev=net,romfile="]
    line += ["-netdev", f"user,id=net{forwarded}", "-fw_cfg", f"name=opt/dartsim/environment,file={RUNTIME}/guest"]
    line += ["-serial", "stdio", "-chardev", f"socket,id=agent,path={RUNTIME}/agent,server=on,wait=off"]
    line += ["-serial", "chardev:agent", "-qmp", f"unix:{RUNTIME}/qmp,server=on,wait=off"]
    return line if incoming is None else [*line, "-incoming", f"exec:cat {shlex.quote(incoming)}"]


def run() -> int:
    """Run QEMU, restart it whenever another state was requested, and return its last exit code."""
    RUNTIME.mkdir(mode=0o700, parents=True, exist_ok=True)
    overlay, guest, wanted = RUNTIME / "overlay", RUNTIME / "guest", RUNTIME / "wanted"
    guest.touch(mode=0o600)
    guest.write_text(guest_environment())
    wanted.unlink(missing_ok=True)
    state: Path | None = None
    while True:
        for name in ("qmp", "agent"):
            (RUNTIME / name).unlink(missing_ok=True)
        if firmware() == "uefi":
            shutil.copyfile(UEFI_SETTINGS, RUNTIME / "firmware")  # a state's own are part of its memory
        if state is None:
            layers = ["-b", str(DISK), "-F", "qcow2"]
            subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *layers, str(overlay)], check=True)
        else:
            shutil.copyfile(state / "disk", overlay)
        incoming = None if state is None else str(state / "memory")
        code = subprocess.run(command(incoming=incoming), stdin=subprocess.DEVNULL, check=False).returncode
        if not wanted.exists():
            return code if code >= 0 else 128 - code
        state = SNAPSHOTS / wanted.read_text()
        wanted.unlink()


def save(key: str) -> None:
    """Save the current state; the machine is paused while this runs."""
    SNAPSHOTS.mkdir(exist_ok=True)
    delete(key)
    left = room()
    if left <= 0:
        raise Failed(f"there is no room for another state: {left} bytes are left")
    new = SNAPSHOTS / f"{key}.{secrets.token_hex(4)}.new"
    with qemu() as machine:
        machine("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
        machine("migrate-set-parameters", **{"max-bandwidth": 2**40})
        new.mkdir()
        machine("stop")
        try:
            # The limit is in units of 512 bytes; a process that writes more is killed.
            machine("migrate", uri=f"exec:ulimit -f {left // 512}; cat >{shlex.quote(str(new / 'memory'))}")
            if machine.wait_for("MIGRATION", "completed", "failed", "cancelled") != "completed":
                raise Failed(f"the machine's memory was not saved: {machine('query-migrate').get('error-desc')}")
            shutil.copyfile(RUNTIME / "overlay", new / "disk")
            new.rename(SNAPSHOTS / key)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        finally:
            go_on(machine)
    refresh_guest()
    print(bytes_of(SNAPSHOTS / key))  # noqa: T201  the answer


def room() -> int:
    """Return how many bytes may be added to the states."""
    quota = int(os.environ.get("STATES_MIB", 2**20)) * 2**20
    return min(quota - bytes_of(SNAPSHOTS), shutil.disk_usage(SNAPSHOTS).free - RESERVE)


def bytes_of(folder: Path) -> int:
    """Return the size of a folder's files; those that another container deletes concurrently do not count."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.stat().st_blocks * 512
    return total


def restore(key: str) -> None:
    """Return to a state; everything running on the desktop is lost."""
    if not (SNAPSHOTS / key / "memory").is_file():
        print(f"there is no state {key}", file=sys.stderr)  # noqa: T201
        sys.exit(NOT_THERE)
    (RUNTIME / "wanted").write_text(key)
    with qemu() as machine:
        (RUNTIME / "qmp").unlink()  # the next connection must reach the next QEMU
        machine("quit")
    with qemu() as machine:
        go_on(machine)
    refresh_guest()


def go_on(machine: Qemu) -> None:
    """Resume the guest. QEMU reports success slightly before it is done, so wait for its status."""
    while machine("query-status")["status"] in ("inmigrate", "finish-migrate"):
        time.sleep(0.02)
    machine("cont")


def refresh_guest() -> None:
    """Correct the guest's clock, which was stopped, and reseed its random numbers; others' disks have no agent."""
    if firmware():
        return
    order = {"time": time.time(), "seed": secrets.token_hex(32)}
    with connect(RUNTIME / "agent", CALL_SECONDS) as port:
        port.sendall(json.dumps(order).encode() + b"\n")
        answer = json.loads(port.makefile("rb").readline() or b"{}")
    if "done" not in answer:
        raise Failed(f"the guest's agent failed: {answer.get('error', 'no answer')}")


def delete(key: str) -> None:
    """Delete a state, if there is one, and the remains of an interrupted save."""
    for folder in (SNAPSHOTS / key, *SNAPSHOTS.glob(f"{key}.*.new")):
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Run the command."""
    what, *key = sys.argv[1:]
    try:
        if what == "run":
            sys.exit(run())
        {"save": save, "restore": restore, "delete": delete}[what](*key)
    except (Failed, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(1)


if __name__ == "__main__":
    main()
