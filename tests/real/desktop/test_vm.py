"""A virtual machine as a desktop: QEMU without KVM in a container, from the image ``--variant vm``."""

import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

pytest.importorskip("docker")
pytest.importorskip("httpx")
pytest.importorskip("PIL")

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import ConfigError, EnvBroken, EnvFault
from dartsim.core.types import Task
from dartsim.real.containers import DesktopFleet, DockerHost
from dartsim.real.containers.engine import connect
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.images import image_name
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.errors import ActionUncertain, OutOfMemory
from dartsim.real.osworld.frames import Frame, same
from dartsim.real.osworld.provider import DesktopProvider, start_desktop
from dartsim.real.osworld.ready import Readiness, SettlingRules
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.snapshots import SavedStates
from dartsim.real.osworld.transport import Timeouts
from dartsim.testing.ports import check_snapshots
from tests.real.desktop.own_loader import make_disk
from tests.real.engines.openai_endpoint import endpoint

pytestmark = pytest.mark.anyio

NOTE = "/home/user/note.txt"
CANARY = "left-behind"
OUTSIDE = "http://10.0.2.2:8123/page"  # QEMU's address for what runs the machine
LAUNCH = {"type": "launch", "parameters": {"command": f"touch {NOTE}; mousepad {NOTE}", "shell": True}}
SCORE = {
    "func": "check_include_exclude",
    "result": {"type": "vm_command_line", "command": f"cat {NOTE}", "shell": True},
    "expected": {"type": "rule", "rules": {"include": ["hello"], "exclude": []}},
}
TASK = Task("note", "Write hello.", "notes", {"config": [LAUNCH], "evaluator": SCORE})
CONFIG = DesktopConfig(variant="vm", width=640, height=480, kvm="off", cpus=2.0)
SETTINGS = DesktopSettings(
    screen=(CONFIG.width, CONFIG.height),
    booted=Readiness(quiet_seconds=0.0, poll_seconds=0.1, limit_seconds=900.0),
    ready=Readiness(change_seconds=60.0, cap_seconds=60.0),
    settle=SettlingRules(cap_seconds=10.0),
    evaluate_wait_seconds=5.0,  # a saved file may come a second after the screen rests, on a busy machine
)
# Every instruction of the guest is emulated.
TIMEOUTS = Timeouts(screenshot=30.0, other=60.0)

Use = Callable[..., Awaitable[None]]


def test_a_virtual_machine_gets_what_its_container_has_left():
    spec = desktop_spec(DesktopConfig(variant="vm", image="vm", memory_mib=2048, cpus=3.0, kvm="on"))
    assert {name: spec.environment[name] for name in ("RAM_SIZE", "CPU_CORES", "KVM")} == {
        "RAM_SIZE": "1664M",
        "CPU_CORES": "3",
        "KVM": "Y",
    }
    assert spec.environment["STATES_MIB"] == str(16 * 1024)
    assert spec.devices == ("/dev/kvm",)
    assert spec.volumes == {}
    with pytest.raises(ConfigError, match="at least 896"):
        desktop_spec(DesktopConfig(variant="vm", image="vm", memory_mib=512))


def test_a_machine_boots_the_users_disk(tmp_path):
    disk = tmp_path / "Ubuntu.qcow2"
    config = DesktopConfig(variant="vm", image="vm", disk=str(disk), firmware="bios")
    assert desktop_spec(config, look=False).volumes == {str(disk): "/System.qcow2:ro"}
    for header in (None, b"not a disk", b"QFI\xfb" + bytes(11) + b"\1", b"QFI\xfb\0\0\0\3" + bytes(6) + b"\1\0"):
        if header is not None:
            disk.write_bytes(header)
        with pytest.raises(ConfigError, match=r"desktop\.disk"):
            desktop_spec(config)
    disk.write_bytes(b"QFI\xfb\0\0\0\3" + bytes(8))
    spec = desktop_spec(config)
    assert spec.volumes == {str(disk): "/System.qcow2:ro"}
    assert spec.environment["FIRMWARE"] == "bios"
    assert set(spec.ports) == {"server", "chromium", "vlc"}
    assert desktop_spec(config.replace(disk=None)).volumes == {}


@pytest.fixture(scope="session")
def machine(need_image):
    """The container of a virtual machine, on an engine that has its image."""
    need_image("vm")
    return desktop_spec(CONFIG)


def with_machines(spec, folder: Path, use: Use, count: int = 1):
    """Start desktops, hand them over, and check that nothing is left of them."""

    async def main():
        saved = SavedStates(folder)
        async with DockerHost(run="test") as host:
            options = DesktopOptions(settings=SETTINGS, timeouts=TIMEOUTS)
            containers: list[Any] = []

            class Engine:
                async def start(self, spec, *, slot: int):
                    containers.append(await host.start(spec, slot=slot))
                    return containers[-1]

            desktops = [await start_desktop(Engine(), spec, options, slot=slot, saved=saved) for slot in range(count)]
            try:
                await use(*zip(desktops, containers, strict=True))
            finally:
                await asyncio.gather(*(desktop.close() for desktop in desktops))
            assert host.num_held == 0
            owner = str(host.owner)
        client = connect(DockerHostConfig())
        try:
            own = {"label": [f"dartsim.owner={owner}"]}
            assert not client.api.containers(all=True, filters=own)
            assert not client.api.volumes(filters=own)["Volumes"]
        finally:
            client.close()

    asyncio.run(main())


async def shell(desktop, command: str) -> str:
    return str((await desktop.client.execute(command, shell=True, seconds=60.0)).output)


async def leave_traces(desktop):
    await shell(desktop, f"echo x > ~/{CANARY}; echo x > /tmp/{CANARY}; printf {CANARY} | xsel -ib")
    await shell(desktop, f"setsid sh -c 'exec -a {CANARY} sleep 1000' > /dev/null 2>&1 &")


async def traces(desktop) -> str:
    """Return what is left of an attempt: files, programs, the clipboard."""
    return await shell(desktop, f"ls -d ~/{CANARY}* /tmp/{CANARY}*; pgrep -af '^{CANARY}'; timeout 5 xsel -ob")


async def serve_outside(container):
    """Serve a page beside the machine, at an address that is outside for its guest."""
    serve = "python3 -m http.server 8123 --bind 127.0.0.1 > /dev/null 2>&1 &"
    assert await container.exec(["sh", "-c", f"cd /tmp && echo reached > page && {serve}"]) == (0, b"")


async def fetched(desktop) -> str:
    """Return that page as the guest gets it."""
    get = f"from urllib.request import urlopen; print(urlopen('{OUTSIDE}').read())"
    return await shell(desktop, f'python3 -c "{get}"')


async def drawn(desktop) -> list[str]:
    """Return random numbers of the kernel, and of an action's interpreter."""
    kernel = await shell(desktop, "od -An -N16 -tx1 /dev/urandom")
    action = await desktop.client.execute(["python", "-c", "import pyautogui, random; print(random.random())"])
    return [kernel, action.output]


def alike(first, second) -> bool:
    """Whether two observations differ by a caret at most."""
    return near(first.screenshot, second.screenshot)


def near(first, second) -> bool:
    frames = [Frame(screenshot, np.asarray(screenshot)) for screenshot in (first, second)]
    return same(*frames, still_pixels=SETTINGS.ready.still_pixels)


@pytest.mark.docker
@pytest.mark.slow
def test_an_attempt_in_a_virtual_machine_and_the_return_to_its_beginning(machine, tmp_path):
    async def use(one: tuple[Any, Any]):
        desktop, container = one
        shown = await desktop.reset(TASK, seed=1)
        assert shown.screenshot.shape == (480, 640, 3)
        await serve_outside(container)
        assert await desktop.snapshots.save("0a") > 2**24
        assert await desktop.evaluate() == 0.0
        first = await drawn(desktop)
        await leave_traces(desktop)
        assert CANARY in await traces(desktop)
        await desktop.step("pyautogui.click(320, 240); pyautogui.write('hello')")
        await desktop.step("pyautogui.hotkey('ctrl', 's')")
        assert await desktop.evaluate() == 1.0

        await desktop.snapshots.restore("0a")
        again = await desktop.reset(TASK, seed=2)
        assert alike(shown, again)
        assert CANARY not in await traces(desktop)
        assert "reached" in await fetched(desktop)
        assert not set(first) & set(await drawn(desktop))
        assert abs(float(await shell(desktop, "date +%s.%N")) - time.time()) < 10.0
        assert await desktop.evaluate() == 0.0
        await desktop.step("pyautogui.click(320, 240); pyautogui.write('hello')")
        await desktop.step("pyautogui.hotkey('ctrl', 's')")
        assert await desktop.evaluate() == 1.0

    with_machines(machine, tmp_path, use)


async def write_three_times(desktop):
    for _ in range(3):
        await desktop.step("pyautogui.write('hello')")


@pytest.mark.docker
@pytest.mark.soak
def test_a_machine_that_powers_off_under_an_attempt_is_told_from_a_bad_attempt(machine, tmp_path):
    async def use(one: tuple[Any, Any]):
        desktop, _ = one
        await desktop.reset(TASK, seed=1)
        with suppress(ActionUncertain):  # it may be off before it has answered
            await shell(desktop, "pkill -f /opt/dartsim/start; pkill dbus-run-sessio")
        with pytest.raises(EnvBroken):
            await write_three_times(desktop)

    with_machines(machine, tmp_path, use)


@pytest.mark.docker
@pytest.mark.soak
def test_a_guest_out_of_memory_gets_no_score(machine, tmp_path):
    async def use(one: tuple[Any, Any]):
        desktop, _ = one
        await desktop.reset(TASK, seed=1)
        await shell(desktop, "echo 1000 > /proc/self/oom_score_adj; tail /dev/zero")
        with pytest.raises(OutOfMemory):
            await desktop.evaluate()

    with_machines(machine, tmp_path, use)


@pytest.mark.docker
@pytest.mark.soak
def test_a_state_that_cannot_be_read_fails_the_return(machine, tmp_path):
    async def use(one: tuple[Any, Any]):
        desktop, container = one
        await desktop.snapshots.save("0c")
        await container.exec(["sh", "-c", "echo broken > /snapshots/0c/memory"])
        with pytest.raises(EnvFault):
            await desktop.snapshots.restore("0c")

    with_machines(machine, tmp_path, use)


@pytest.mark.docker
@pytest.mark.soak
async def test_machines_fulfill_the_contract_of_saved_states(machine, tmp_path):
    other = replace(TASK, id="other", instruction="Do nothing.")
    act = "pyautogui.click(320, 240); pyautogui.write('hello'); pyautogui.hotkey('ctrl', 's')"

    async with DesktopFleet([DockerHost(run="test")]) as fleet:
        options = DesktopOptions(settings=SETTINGS, timeouts=TIMEOUTS)
        provider = DesktopProvider(fleet, machine, options, saved=SavedStates(tmp_path))
        await check_snapshots(provider, TASK, other, act=act, same=near)
        assert fleet.num_held == 0


@pytest.fixture(scope="module")
def disk(machine, tmp_path_factory):
    """Debian with systemd behind GRUB, whose hash stays the same."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("no mmdebstrap")
    scratch = tmp_path_factory.mktemp("disk")
    path = make_disk(scratch, width=CONFIG.width, height=CONFIG.height)
    before = digest(path)
    yield path
    assert digest(path) == before


def digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


@pytest.mark.docker
@pytest.mark.soak
@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_a_disk_boots_by_its_own_loader_and_returns_to_a_saved_state(disk, firmware, tmp_path):
    spec = desktop_spec(CONFIG.replace(disk=str(disk), firmware=firmware, memory_mib=1408))

    async def use(one: tuple[Any, Any]):
        desktop, _ = one
        facts = await shell(
            desktop, "cat /proc/cmdline; ls -d /sys/firmware/efi; ps -o comm= -p 1; ps -C Xorg -o comm="
        )
        assert facts.startswith("BOOT_IMAGE=/boot/vmlinuz")
        assert facts.splitlines()[-2:] == ["systemd", "Xorg"]
        assert ("/sys/firmware/efi" in facts.splitlines()) == (firmware == "uefi")
        shown = await desktop.reset(TASK, seed=1)
        await desktop.snapshots.save("0e")
        await leave_traces(desktop)
        await desktop.step("pyautogui.click(320, 240); pyautogui.write('hello')")
        await desktop.snapshots.restore("0e")
        assert alike(shown, await desktop.reset(TASK, seed=2))
        assert CANARY not in await traces(desktop)

    with_machines(spec, tmp_path, use)


WORDS = {"first": "hello", "second": "bye"}
CONFIG_FILE = """preset = "osworld-apps"
backend.desktops = "desktop"
tasks = {{ folder = "{folder}", list_name = "two", held_out = 0 }}
rollout = {{ num_envs = 1, max_turns = 6, limits.start_seconds = 900.0 }}

[desktop]
variant = "vm"
disk = "{disk}"
firmware = "bios"
revert = "{revert}"
kvm = "off"
width = 640
height = 480
memory_mib = 1408
max_settle_seconds = 10.0
evaluate_wait_seconds = 5.0
"""


def write_tasks(folder: Path):
    """Write two tasks, each of which is solved on a desktop where neither was attempted before."""
    examples = folder / "examples" / "notes"
    examples.mkdir(parents=True)
    for name, word in WORDS.items():
        note = f"/home/user/{name}.txt"
        command = {"command": f"touch {note}; mousepad {note}", "shell": True}
        others = [f"{other}.txt" for other in WORDS if other != name]
        evaluator = {
            "func": "check_include_exclude",
            "result": {"type": "vm_command_line", "command": f"cat {note}; ls /home/user", "shell": True},
            "expected": {"type": "rule", "rules": {"include": [word], "exclude": [word * 2, *others]}},
        }
        task = {
            "id": name,
            "instruction": f"Write {word}.",
            "config": [{"type": "launch", "parameters": command}],
            "evaluator": evaluator,
        }
        (examples / f"{name}.json").write_text(json.dumps(task))
    (folder / "two.json").write_text(json.dumps({"notes": list(WORDS)}))


def write_note(messages: list[dict[str, Any]]) -> str:
    """Write the note that the first message asks for, and save it; a first request only tries the endpoint."""
    word = next((word for word in WORDS.values() if f"Write {word}." in json.dumps(messages)), "")
    actions = [
        "click(start_box='(320,240)')",
        f"type(content='{word}')",
        "hotkey(key='ctrl s')",
        "finished(content='')",
    ]
    return f"Thought: on.\nAction: {actions[sum(message['role'] == 'assistant' for message in messages)]}"


@pytest.mark.docker
@pytest.mark.soak
@pytest.mark.parametrize("revert", ["snapshot", "fork"])
def test_an_evaluation_returns_a_disk_of_the_users_to_saved_states(disk, revert, tmp_path, engine):
    write_tasks(tmp_path)
    file, figures = tmp_path / "config.toml", tmp_path / "figures.json"
    file.write_text(CONFIG_FILE.format(folder=tmp_path, disk=disk, revert=revert))
    command = [sys.executable, "-m", "dartsim", "eval", str(file), "--model", "agent-1", "--attempts", "2"]
    with started_machines(engine) as started, endpoint(write_note) as served:
        command += ["--endpoint", served.url, "--out", str(tmp_path / "out"), "--json", str(figures)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (budget,) = json.loads(figures.read_text())["budgets"]
    assert budget["success_rate"] == 1.0
    assert len(started) == 1  # all attempts had the one machine


@contextmanager
def started_machines(engine: Any) -> Iterator[list[str]]:
    """Collect the machines that start meanwhile; asked later, an engine that others use may have forgotten them."""
    filters = {"type": "container", "event": "start", "image": image_name("vm")}
    events, started = engine.events(decode=True, filters=filters), []
    watcher = Thread(target=lambda: started.extend(event["id"] for event in events))
    watcher.start()
    try:
        yield started
    finally:
        events.close()
        watcher.join()
