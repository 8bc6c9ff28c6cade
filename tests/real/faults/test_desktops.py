"""One desktop of a running cluster is harmed for real: its attempt has no reward, its slot serves again."""

import asyncio
from operator import methodcaller

import pytest

pytestmark = pytest.mark.docker

X = ("env", "DISPLAY=:99", "XAUTHORITY=/home/user/.Xauthority")
BLACK = (
    "from Xlib import X; from Xlib.display import Display; d = Display(); s = d.screen(); "
    "w = s.root.create_window(0, 0, s.width_in_pixels, s.height_in_pixels, 0, s.root_depth, X.InputOutput, "
    "background_pixel=s.black_pixel, override_redirect=True); w.map(); d.sync(); print('up', flush=True); "
    "import signal; signal.pause()"
)


async def pause(rig, container):
    await container.engine.call(container.id, methodcaller("pause"))


async def disconnect(rig, container):
    await container.engine.call(container.id, lambda each: each.client.networks.get("bridge").disconnect(each.id))


async def kill_during_the_request(rig, container):
    asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(container.kill()))


async def kill_x(rig, container):
    await container.exec(["pkill", "-KILL", "Xvfb"])


async def stop_x(rig, container):
    await container.exec(["pkill", "-STOP", "Xvfb"])


async def kill_server(rig, container):
    await container.exec(["pkill", "-KILL", "-f", "dartsim.real.desktop.server$"])


async def go_black(rig, container):
    start = f'{" ".join(X)} setsid /usr/bin/python3 -c "$1" > /tmp/black 2>&1 &'
    wait = "until grep -q up /tmp/black; do sleep 0.05; done"
    code, output = await container.exec(["sh", "-c", f"{start} {wait}", "sh", BLACK])
    assert code == 0, output


async def eat_memory(rig, container):
    """Something allocates without end; the kernel, short of memory, takes everything else first."""
    first = "for p in $(ls /proc | grep '^[0-9]*$'); do [ $p = 1 ] || echo 1000 > /proc/$p/oom_score_adj; done; "
    await container.exec(["sh", "-c", f"{first} (echo 0 > /proc/self/oom_score_adj; exec tail /dev/zero)"])


async def eat_the_panel(rig, container):
    """As before, but only the application goes, and what is left looks like a desktop."""
    first = "for p in $(pgrep -f '[p]anel.py|/[p]anel '); do echo 1000 > /proc/$p/oom_score_adj; done; "
    code, output = await container.exec(["sh", "-c", f"{first} tail /dev/zero; pgrep -f '[p]anel.py|/[p]anel '"])
    assert code != 0, output


async def crash_the_panel(rig, container):
    code, output = await container.exec(["pkill", "-SEGV", "-f", "[p]anel.py"])
    assert code == 0, output


LONG = f"pyautogui.write({'a' * 800!r})"  # some 3 s, in one request
EVERY_TIME = [
    # The engine refuses a call to a container that is paused or dead, where that comes before the request's end.
    (pause, {"action_uncertain", "call_refused"}, None),
    # On a busy machine the kill may come before the request has a connection.
    (kill_during_the_request, {"action_uncertain", "call_refused", "vm_refused"}, LONG),
    (kill_x, {"action_failed", "bad_screenshot", "vm_bad_reply"}, None),
]
"""What is done, which causes that may have, and the action that it meets."""
FAULTS = [
    pytest.param(stop_x, {"action_uncertain", "vm_hung"}, None, id="Xvfb stopped"),
    pytest.param(disconnect, {"vm_refused"}, None, id="network disconnect"),
    pytest.param(go_black, {"black_screen"}, None, id="black screen"),
    pytest.param(kill_server, {"vm_refused", "action_uncertain"}, None, id="server killed"),
    pytest.param(
        eat_memory,
        {"vm_refused", "action_failed", "action_uncertain", "bad_screenshot", "out_of_memory"},
        None,
        id="out of memory",
    ),
    pytest.param(eat_the_panel, {"out_of_memory"}, None, id="application out of memory"),
    pytest.param(crash_the_panel, {"application_crashed"}, None, id="application crashed"),
]


def check(cluster, counts, causes):
    struck = cluster.of(cluster.struck)
    assert (struck.reward, struck.ending) == (None, "broken")
    assert struck.cause in causes
    assert counts[f"cause/{struck.cause}"] >= 1
    assert len(struck.turns) == 2, "what was generated is kept"


@pytest.mark.slow
def test_the_attempts_are_masked_and_the_slots_serve_again(rig, left, desktop_image):
    """Each in a cluster of its own, side by side: most of the time the desktops that hang are waited for."""
    plans = [{"harm": harm, "action": action} for harm, _, action in EVERY_TIME]
    lives = rig.live_beside(desktop_image, plans)
    for (_, causes, _), (cluster, counts) in zip(EVERY_TIME, lives, strict=True):
        check(cluster, counts, causes)
        assert left(cluster.owner) == 0


@pytest.mark.soak
@pytest.mark.parametrize(("harm", "causes", "action"), FAULTS)
def test_the_attempt_is_masked_and_the_slot_serves_again(rig, left, desktop_image, harm, causes, action):
    cluster, counts = rig.live(desktop_image, harm=harm, action=action)
    check(cluster, counts, causes)
    assert left(cluster.owner) == 0
