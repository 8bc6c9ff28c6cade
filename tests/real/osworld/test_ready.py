"""When a screen is ready and when it has settled, in virtual time."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("PIL")

from dartsim.core.png import Screenshot, encode_png
from dartsim.real.osworld.client import VmClient
from dartsim.real.osworld.errors import BlackScreen, NotReady, VmBadReply, VmHung
from dartsim.real.osworld.frames import Frame, is_black, resized, same
from dartsim.real.osworld.ready import Readiness, ScreenMotion, SettlingRules, settle, wait_booted, wait_set_up
from dartsim.real.osworld.recycle import recycle_server
from dartsim.real.osworld.transport import ServerTraits

BOOT = Readiness(limit_seconds=60.0)


def now():
    return asyncio.get_running_loop().time()


def frame(pixels):
    pixels = np.asarray(pixels, np.uint8)
    return Frame(Screenshot(encode_png(pixels)), pixels)


@pytest.fixture
def vm(standin):
    return standin.Vm()


@pytest.fixture
def client(standin, vm):
    return VmClient("http://vm", transport=standin.Memory(vm), server=ServerTraits())


# ---- settling


async def test_two_equal_screens_have_settled(client, vm):
    await settle(client, SettlingRules(poll_seconds=0.1))
    assert now() == 0.1
    assert len(vm.requests) == 2


async def test_a_screen_that_changes_is_waited_for(client, vm):
    for tenths in range(1, 8):
        vm.paint_later(tenths / 10 - 0.05, 30 * tenths)
    shown = await settle(client, SettlingRules(poll_seconds=0.1))
    assert now() == pytest.approx(1.1)  # looked at 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.1
    assert shown.pixels[0, 0, 0] == 210


async def test_a_screen_that_has_to_rest_longer(client, vm):
    vm.paint_later(0.3)
    shown = await settle(client, SettlingRules(poll_seconds=0.125, quiet_seconds=0.5))
    assert now() == 0.875  # seen at 0.375
    assert shown.pixels[0, 0, 0] == 200


async def test_a_screen_that_never_rests_is_taken_at_the_cap(client, vm):
    for tenths in range(100):
        vm.paint_later(tenths / 10 + 0.05, tenths)
    await settle(client, SettlingRules(poll_seconds=0.1, cap_seconds=2.0))
    assert now() == pytest.approx(2.0, abs=0.11)


async def test_a_screen_that_keeps_moving_is_polled_less(client, vm):
    vm.moving = True
    motion, looks = ScreenMotion(), []
    for _ in range(4):
        began = now()
        await settle(client, SettlingRules(cap_seconds=2.0), motion)
        assert now() - began == pytest.approx(2.0)
        looks.append(vm.total_screenshots - sum(looks))
    assert looks == [10, 2, 2, 2]
    vm.moving = False
    for seconds in (2.0, 0.1):
        began = now()
        await settle(client, SettlingRules(cap_seconds=2.0), motion)
        assert now() - began == pytest.approx(seconds)


async def test_a_video_may_be_black_for_a_moment(client, vm):
    vm.moving = True
    motion = ScreenMotion(changes=50)
    vm.fail("/screenshot", None, "black")
    assert (await settle(client, SettlingRules(cap_seconds=2.0), motion)).pixels.any()
    assert now() == pytest.approx(4.0)
    vm.fail("/screenshot", None, *["black"] * 10)
    with pytest.raises(BlackScreen):
        await settle(client, SettlingRules(cap_seconds=2.0), motion)
    assert now() == pytest.approx(8.0)


async def test_a_set_up_that_keeps_moving_is_polled_once_a_second(client, vm):
    vm.moving = True
    await wait_set_up(client, Readiness(), before=None)
    assert now() == pytest.approx(20.0)
    assert vm.total_screenshots < 30


async def test_a_caret_does_not_keep_a_screen_from_settling(client, vm):
    for tenths in range(100):
        vm.paint_later(tenths / 10 + 0.05, 250 * (tenths % 2), side=10)
    await settle(client, SettlingRules(poll_seconds=0.1, still_pixels=100))
    assert now() == 0.1


async def test_a_moment_of_black_is_waited_out(client, vm):
    vm.fail("/screenshot", "black", "black")
    assert (await settle(client, SettlingRules())).pixels.any()
    vm.screen[:] = 0
    with pytest.raises(BlackScreen):
        await settle(client, SettlingRules())
    assert not (await settle(client, SettlingRules(lit_share=0.0))).pixels.any()


# ---- after a start


async def test_a_desktop_that_comes_up_slowly(client, vm):
    vm.die(seconds=20.0)
    vm.fail("/screenshot", "html500", "html500", "html500", "close", "close", "close", "black", "black")
    await wait_booted(client, BOOT)
    assert 20.0 < now() < 25.0


async def test_a_desktop_that_is_booting_is_not_restarting(standin, vm):
    client = VmClient("http://vm", transport=standin.Memory(vm), server=standin.PATIENT)
    vm.die(seconds=1.0)
    await wait_booted(client, BOOT)
    assert client.refusals == 0
    vm.die()
    began = now()
    with pytest.raises(NotReady):
        await wait_booted(client, Readiness(limit_seconds=1.0))
    assert now() - began <= 1.0


async def test_a_port_that_takes_connections_before_there_is_a_server(client, vm):
    vm.fail("/screenshot", "hang", "hang")
    await wait_booted(client, BOOT)
    assert 20.0 < now() < 22.0


@pytest.mark.parametrize(
    ("how", "found"),
    [("off", "nothing listens"), ("black", "a black screen"), ("html500", r"found status 500 \(500 Internal")],
)
async def test_a_desktop_that_never_gets_ready_says_why(client, vm, how, found):
    if how == "off":
        vm.die()
    else:
        vm.fail("/screenshot", *[how] * 1000)
    with pytest.raises(NotReady, match=found):
        await wait_booted(client, BOOT)
    assert 59.0 < now() <= 60.0


# ---- after a set-up


async def test_a_window_that_comes_late_is_waited_for(client, vm):
    before = await client.frame()
    vm.paint_later(3.0, 90)
    vm.paint_later(3.3, 200)
    shown = await wait_set_up(client, Readiness(), before=before)
    assert shown.pixels[0, 0, 0] == 200
    assert 3.3 < now() < 4.5


async def test_a_program_without_a_window_is_not_waited_for_for_ever(client, vm):
    await wait_set_up(client, Readiness(change_seconds=5.0), before=await client.frame())
    assert 5.0 < now() < 6.0


async def test_a_fault_after_a_set_up_is_a_fault(client, vm):
    vm.fail("/screenshot", "hang")
    with pytest.raises(VmHung):
        await wait_set_up(client, Readiness(), before=None)


async def test_a_screen_that_goes_black_in_a_set_up(client, vm):
    vm.screen[:] = 0
    with pytest.raises(BlackScreen):
        await wait_set_up(client, Readiness(), before=None)


# ---- restarting the server


async def test_the_server_is_killed_and_another_waited_for(client, vm):
    await client.screenshot()
    await recycle_server(client)
    assert vm.pid == 101
    assert client.screenshots == 0
    assert 5.3 <= now() < 6.0
    await client.screenshot()


@pytest.mark.parametrize("broken", [{"restart_seconds": None}, {"dies_on_kill": False}])
async def test_a_server_that_does_not_go_or_come_back_is_a_fault(client, vm, broken):
    vars(vm).update(broken)
    with pytest.raises(VmHung):
        await recycle_server(client)


async def test_a_server_that_does_not_say_who_it_is(client, vm, standin, monkeypatch):
    monkeypatch.setitem(standin.ROUTES, "/execute", ("POST", lambda *_: (200, standin.done("who?"))))
    with pytest.raises(VmBadReply, match="wanted its number"):
        await recycle_server(client)


# ---- frames


def test_frames_are_the_same_up_to_so_many_pixels():
    one = np.zeros((10, 10, 3))
    for other, differing in ((one, 0), (one + np.array([0, 0, 1]), 100), (one + 1, 100)):
        for allowed in (0, 33, 99, 100):
            assert same(frame(one), frame(other), still_pixels=allowed) == (differing <= allowed)
    assert not same(frame(one), frame(np.zeros((10, 11, 3))), still_pixels=1000)


def test_a_black_screen_shows_less_than_its_share():
    dark = np.full((100, 100, 3), 20)
    assert is_black(frame(dark), lit_share=0.001)
    assert not is_black(frame(dark), lit_share=0.0)
    for lit in (9, 10):
        some = dark.copy()
        some[0, : 10 * lit : 10, 1] = 200
        assert is_black(frame(some), lit_share=0.001) == (lit < 10)


def test_a_pointer_alone_is_nothing_to_see():
    dark = np.full((100, 100, 3), 20)
    dark[40:60, 30:45] = 255
    assert is_black(frame(dark), lit_share=0.001)
    dark[90, 30] = 200
    assert not is_black(frame(dark), lit_share=0.001)


def test_a_picture_is_averaged_when_it_shrinks():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:2, :2] = 200
    pixels[0, 2] = 100
    assert resized(pixels, (2, 2)).tolist() == [[[200] * 3, [25] * 3], [[0] * 3, [0] * 3]]
    assert resized(pixels, (4, 4)) is pixels
    assert resized(pixels, (8, 8)).shape == (8, 8, 3)
