"""The desktop with OSWorld's applications: no dialog greets them, and what tasks and getters reach for is there."""

import asyncio
import re
from dataclasses import replace

import pytest

from dartsim.config.schema import DesktopConfig
from dartsim.core.errors import ConfigError, EnvFault, ScoreUnavailable
from dartsim.core.types import Task
from dartsim.real.containers import DockerHost
from dartsim.real.containers.spec import create_arguments
from dartsim.real.desktop import debian, desktop_spec
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.errors import ApplicationCrashed, DiskFull, SetupFailed
from dartsim.real.osworld.provider import start_desktop as start_one
from dartsim.real.osworld.ready import Readiness
from dartsim.real.osworld.settings import DesktopSettings

SETTINGS = DesktopSettings(booted=Readiness(quiet_seconds=0.0, poll_seconds=0.05))
SESSION = {"xfce4-panel", "Desktop"}
APPLICATIONS = {
    "google-chrome": "New Tab - Google Chrome",
    "libreoffice --calc": "LibreOffice Calc",
    "libreoffice --writer": "LibreOffice Writer",
    "libreoffice --impress": "LibreOffice Impress",
    "gimp": "GNU Image Manipulation Program",
    "vlc": "VLC media player",
    "thunderbird": "Home - Mozilla Thunderbird",
    "gnome-terminal": "Terminal",
}
"""By what starts it: a part of its window's title."""


def test_only_the_capabilities_that_sudo_needs_are_added():
    spec = desktop_spec(DesktopConfig(variant="apps", image="x"))
    assert spec.cap_drop == ("ALL",)
    assert {"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "MKNOD", "NET_RAW"}.isdisjoint(spec.cap_add)
    assert set(spec.ports.values()) == {5000, 9222, 8080}
    assert not spec.volumes


@pytest.fixture(scope="module")
def spec(need_image):
    """The container of such a desktop, on an engine that has its image."""
    need_image("apps")
    return desktop_spec(DesktopConfig(variant="apps", memory_mib=3072))


@pytest.fixture(scope="module")
def desktop(engine, spec, make_caller):
    """One of them, with a function that runs a shell's command in it."""
    container = engine.containers.create(
        **create_arguments(spec, name="dartsim-test-apps", labels={"dartsim.test": "apps"}, bind_address="127.0.0.1")
    )
    try:
        container.start()
        container.reload()
        caller = make_caller("127.0.0.1", int(container.ports["5000/tcp"][0]["HostPort"]))
        caller.until("the first screenshot", lambda: caller.send("GET", "/screenshot")[0] == 200)
        yield container, caller
    finally:
        container.remove(force=True, v=True)


def shell(caller, command: str) -> str:
    return str(caller.post("/execute", {"command": command, "shell": True})[1]["output"]).strip()


def titles(caller) -> set[str]:
    return {line.split(None, 3)[3] for line in shell(caller, "wmctrl -l").splitlines()}


@pytest.mark.docker
@pytest.mark.slow
def test_every_application_opens_without_a_dialog(desktop):
    _, caller = desktop
    assert titles(caller) == SESSION
    for command, title in APPLICATIONS.items():
        caller.post("/setup/launch", {"command": command, "shell": True})
        caller.until(f"the window of {command}", lambda title=title: title in str(titles(caller)), seconds=60.0)
    assert len(titles(caller)) == len(SESSION) + len(APPLICATIONS)
    wanted = {"Google Chrome", "gimp", "soffice", "gnome-terminal-server"}

    def whole_tree() -> str | None:
        tree = str(caller.get("/accessibility")[1]["AT"])
        return tree if wanted <= set(re.findall(r'<application name="([^"]*)"', tree)) else None

    # GIMP's window is there seconds before it answers.
    assert 'name="Address and search bar"' in caller.until(f"a tree with {wanted}", whole_tree, seconds=60.0)


@pytest.mark.docker
@pytest.mark.slow
def test_getters_find_what_they_look_for(desktop):
    caller = desktop[1]
    sudo = "echo password | sudo -S -p ''"
    assert shell(caller, f"{sudo} id -u") == "0"
    assert shell(caller, "pactl list sinks | grep '^[[:space:]]Volume:' | awk '{print $5}'") == "40%"
    favorites = "org.gnome.shell favorite-apps"
    assert shell(caller, f"gsettings set {favorites} \"['a']\"; gsettings get {favorites}") == "['a']"
    assert shell(caller, "gsettings get org.gnome.settings-daemon.plugins.power idle-dim") == "true"
    assert "+0800" in shell(caller, "timedatectl | sed -n 4p")
    assert "+0000" in shell(caller, f"{sudo} timedatectl set-timezone UTC; timedatectl | sed -n 4p")
    paths = [".config/GIMP/2.10", ".config/google-chrome/Default/Preferences", ".config/vlc/vlcrc"]
    paths += [".config/libreoffice/4/user/registrymodifications.xcu", "Desktop", "Downloads", "Pictures"]
    assert shell(caller, f"cd && ls -d {' '.join(paths)} 2>&1 >/dev/null") == ""
    profile = "~/.thunderbird/x.default-release"
    shell(caller, f"mkdir -p {profile}")
    caller.post("/setup/launch", {"command": ["/usr/bin/thunderbird"]})
    caller.until("a task's profile in use", lambda: shell(caller, f"ls {profile}/compatibility.ini"))
    caller.post("/setup/launch", {"command": ["vlc"]})
    status = "curl -s -u :password localhost:8080/requests/status.xml"
    caller.until("VLC's state", lambda: "<root>" in shell(caller, status))


@pytest.mark.docker
@pytest.mark.slow
def test_root_of_the_container_is_not_root_of_the_host(desktop):
    caller = desktop[1]
    for command in (
        "mount -t tmpfs none /mnt",
        "mknod /tmp/disk b 8 0",
        "unshare --user true",
        "unshare --net true",
        "sysctl -w kernel.core_pattern=x",
        "sh -c 'echo x >/proc/sysrq-trigger'",
        "chroot / true",
        "setpriv --inh-caps +sys_admin --bounding-set +sys_admin true",
    ):
        assert shell(caller, f"echo password | sudo -S -p '' sh -c \"{command}\" >/dev/null 2>&1; echo $?") != "0", (
            command
        )


@pytest.mark.docker
@pytest.mark.slow
def test_devtools_answer_at_the_published_port(desktop, make_caller):
    container, caller = desktop
    shell(caller, "pkill chrome; sleep 1")
    caller.post("/setup/launch", {"command": "google-chrome --remote-debugging-port=1337", "shell": True})
    caller.post("/setup/launch", {"command": "socat tcp-listen:9222,fork tcp:localhost:1337", "shell": True})
    tools = make_caller("127.0.0.1", int(container.ports["9222/tcp"][0]["HostPort"]))
    tools.until("DevTools", lambda: b"Chrome/" in tools.send("GET", "/json/version")[2])


def on_one(spec, use):
    """Start a desktop of its own and hand it over."""

    async def main():
        async with DockerHost(run="test") as host:
            desktop = await start_one(host, spec, DesktopOptions(settings=SETTINGS))
            try:
                await use(desktop)
            finally:
                await desktop.close()

    asyncio.run(main())


def task(*config, **spec) -> Task:
    return Task("t", "Do nothing.", "tests", {"config": list(config), "evaluator": {"func": "infeasible"}, **spec})


CALC = {"type": "launch", "parameters": {"command": ["libreoffice", "--calc"]}}


@pytest.mark.docker
@pytest.mark.slow
def test_an_application_that_crashes_masks_its_attempt_and_asks_nothing_afterwards(spec):
    async def use(desktop):
        await desktop.reset(task(CALC), seed=1)
        await desktop.client.execute("pkill -SEGV soffice.bin; sleep 2", shell=True)
        await desktop.client.launch(["libreoffice", "--writer"])
        wait = "until wmctrl -l | grep -q Writer; do sleep 0.1; done; wmctrl -l"
        shown = (await desktop.client.execute(wait, shell=True, seconds=60.0)).output
        assert "Recovery" not in shown
        with pytest.raises(ApplicationCrashed, match="libreoffice --calc"):
            await desktop.evaluate()

    on_one(spec, use)


@pytest.mark.docker
@pytest.mark.slow
def test_a_crash_that_gimp_catches_masks_its_attempt_and_its_end_does_not(spec):
    async def end_by(client, command):
        # Its handler of signals may hang if one comes while it starts; a hung one is killed, which is a crash too.
        await client.launch(["gimp"])
        shown = "until wmctrl -l | grep -q 'GNU Image'; do sleep 0.1; done; sleep 4"
        gone = f"for i in $(seq 40); do pgrep -x 'gimp.*' || exit 0; {command}; sleep 0.5; done"
        await client.execute(f"{shown}; {gone}; pkill -KILL -f '^/usr/bin/gimp'", shell=True)

    async def use(desktop):
        await desktop.reset(task(), seed=1)
        await end_by(desktop.client, "wmctrl -c 'GNU Image'")
        assert await desktop.evaluate() == 0.0
        await end_by(desktop.client, "pkill -SEGV -f '^/usr/bin/gimp'")
        with pytest.raises(ApplicationCrashed, match="gimp"):
            await desktop.evaluate()

    on_one(spec, use)


@pytest.mark.docker
@pytest.mark.slow
def test_a_full_disk_masks_the_attempt(spec):
    async def use(desktop):
        fill = {"type": "execute", "parameters": {"command": "cat /dev/zero > ~/fill", "shell": True}}
        with pytest.raises(DiskFull):
            await desktop.reset(task(fill), seed=1)

    on_one(replace(spec, tmpfs={"/home/user": "size=16m,uid=1000,gid=1000"}), use)


@pytest.mark.docker
@pytest.mark.slow
def test_a_set_up_that_fails_and_a_display_that_dies_mask_the_attempt(spec):
    async def use(desktop):
        with pytest.raises(SetupFailed, match="absent"):
            await desktop.reset(task({"type": "open", "parameters": {"path": "/home/user/absent.xlsx"}}), seed=1)
        await desktop.reset(task(), seed=1)
        await desktop.client.execute("pkill -KILL Xvfb", shell=True)
        with pytest.raises(EnvFault):
            await desktop.step("pyautogui.click(9, 9)")
        with pytest.raises((EnvFault, ScoreUnavailable)):
            await desktop.evaluate()

    on_one(spec, use)


@pytest.mark.docker
@pytest.mark.slow
def test_a_script_that_fails_makes_no_image(engine, spec):
    before = {image.id for image in engine.images.list()}
    with pytest.raises(ConfigError, match="not to be found"):
        debian.in_container(engine, spec.image, "echo not to be found; exit 3", "dartsim-test/none:1", lambda _: None)
    assert {image.id for image in engine.images.list()} == before


@pytest.mark.docker
@pytest.mark.slow
def test_packages_are_installed_in_an_image_of_debian_too(engine, spec, monkeypatch):
    monkeypatch.setattr(debian, "REPOSITORY", "dartsim-test/debian")
    lines: list[str] = []
    try:
        name = debian.debian_image(engine, ("hello",), lines.append, base=spec.image)
    except ConfigError as failure:
        pytest.skip(f"Debian's archive cannot be reached: {failure}")
    try:
        assert engine.containers.run(name, ["-c", "hello"], remove=True, network_mode="none").startswith(b"Hello")
        assert debian.debian_image(engine, ("hello",), lines.append, base="not-needed") == name
    finally:
        engine.images.remove(name)
