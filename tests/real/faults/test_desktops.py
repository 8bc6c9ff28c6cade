"""One desktop of a running cluster is harmed for real: its attempt has no reward, its slot serves again."""

import asyncio

import pytest

pytestmark = pytest.mark.docker
soak = pytest.mark.soak

X = ("env", "DISPLAY=:99", "XAUTHORITY=/home/user/.Xauthority")
BLACK = (
    "from Xlib import X; from Xlib.display import Display; d = Display(); s = d.screen(); "
    "w = s.root.create_window(0, 0, s.width_in_pixels, s.height_in_pixels, 0, s.root_depth, X.InputOutput, "
    "background_pixel=s.black_pixel, override_redirect=True); w.map(); d.sync(); print('up', flush=True); "
    "import signal; signal.pause()"
)


async def pause(rig, container):
    await container.pause()


async def disconnect(rig, container):
    await container.disconnect()


async def kill_during_the_request(rig, container):
    asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(container.kill()))


async def kill_x(rig, container):
    await container.exec(["pkill", "-KILL", "Xvfb"])


async def stop_x(rig, container):
    await container.exec(["pkill", "-STOP", "Xvfb"])


async def kill_server(rig, container):
    await container.exec(["pkill", "-KILL", "-f", "real.desktop.server$"])


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


LONG = f"pyautogui.write({'a' * 150!r})"  # some 3 s, in one request
FAULTS = [
    pytest.param(pause, {"action_uncertain"}, None, id="pause"),
    pytest.param(kill_during_the_request, {"action_uncertain"}, LONG, id="kill during a request"),
    pytest.param(kill_x, {"action_failed", "bad_screenshot", "vm_bad_reply"}, None, id="Xvfb killed"),
    pytest.param(stop_x, {"action_uncertain", "vm_hung"}, None, id="Xvfb stopped", marks=soak),
    pytest.param(disconnect, {"vm_refused"}, None, id="network disconnect", marks=soak),
    pytest.param(go_black, {"black_screen"}, None, id="black screen", marks=soak),
    pytest.param(kill_server, {"vm_refused", "action_uncertain"}, None, id="server killed", marks=soak),
    pytest.param(
        eat_memory,
        {"vm_refused", "action_failed", "action_uncertain", "bad_screenshot", "out_of_memory"},
        None,
        id="out of memory",
        marks=soak,
    ),
    pytest.param(eat_the_panel, {"out_of_memory"}, None, id="application out of memory", marks=soak),
]


@pytest.mark.parametrize(("harm", "causes", "action"), FAULTS)
def test_the_attempt_is_masked_and_the_slot_serves_again(rig, left, desktop_image, harm, causes, action):
    cluster, counts = rig.live(desktop_image, harm=harm, action=action)
    struck = cluster.of(cluster.struck)
    assert (struck.reward, struck.ending) == (None, "broken")
    assert struck.cause in causes
    assert counts[f"cause/{struck.cause}"] >= 1
    assert len(struck.turns) == 2, "what was generated is kept"
    assert left(cluster.owner) == 0
