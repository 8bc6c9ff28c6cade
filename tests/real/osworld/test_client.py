"""The client of the server inside a desktop: every route, and what it makes of every fault."""

import asyncio
import struct
import zlib

import numpy as np
import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("PIL")

from dartsim.core.png import check_png, encode_png  # noqa: E402
from dartsim.real.osworld.client import VmClient  # noqa: E402
from dartsim.real.osworld.errors import (  # noqa: E402
    ActionUncertain,
    BadScreenshot,
    VmBadReply,
    VmHung,
    VmLost,
    VmMissing,
    VmRefused,
)
from dartsim.real.osworld.frames import read_frame  # noqa: E402
from dartsim.real.osworld.pyautogui_code import command  # noqa: E402
from dartsim.real.osworld.transport import ServerTraits, Timeouts  # noqa: E402

CLICK = command("pyautogui.click(30, 40)")
SHORT = Timeouts(connect=0.5, screenshot=0.3, execute=0.3, other=0.3)


def now():
    return asyncio.get_running_loop().time()


@pytest.fixture
def vm(standin):
    return standin.Vm()


@pytest.fixture
def make(standin, vm):
    """Return what makes a client of ``vm`` in memory."""

    def client(server=None, **options):
        return VmClient("http://vm", server=server or standin.PATIENT, transport=standin.Memory(vm), **options)

    return client


# ---- one contract, over sockets to the stand-in and to a real desktop


async def check_screen(client):
    width, height = check_png(await client.screenshot())
    assert (await client.frame()).pixels.shape == (height, width, 3)


async def check_commands(client):
    assert (await client.execute(["echo", "a", "b"], action=False)) == ("a b\n", "", 0)
    assert (await client.execute("echo c", shell=True)).output == "c\n"
    assert (await client.execute(["false"])).returncode == 1
    with pytest.raises(VmBadReply) as caught:
        await client.execute(["no-such-program-anywhere"])
    assert caught.value.status == 500
    assert "launched" in await client.launch(["true"])
    passed = await client.execute_with_verification(
        ["true"], {"command_success": "true"}, max_wait_seconds=1.0, check_seconds=0.1
    )
    assert passed.returncode == 0
    with pytest.raises(VmBadReply, match="verification"):
        await client.execute_with_verification(
            ["true"], {"command_success": "false"}, max_wait_seconds=0.5, check_seconds=0.1
        )


async def check_pointer(client):
    assert (await client.execute(CLICK)).returncode == 0


async def check_files(client):
    data = bytes(range(256)) * 10
    await client.upload("/tmp/contract/a b.bin", data)
    assert await client.file("/tmp/contract/a b.bin") == data
    await client.upload("/tmp/contract/empty", b"")
    assert await client.file("/tmp/contract/empty") == b""
    tree = await client.list_directory("/tmp/contract")
    assert tree["name"] == "contract"
    assert {child["name"] for child in tree["children"]} == {"a b.bin", "empty"}
    with pytest.raises(VmMissing):
        await client.file("/tmp/contract/none")
    with pytest.raises(VmMissing):
        await client.open_file("/tmp/contract/none", seconds=5.0)
    with pytest.raises(VmBadReply):
        await client.list_directory("/tmp/no/such/folder")


async def check_facts(client):
    assert "<desktop-frame" in await client.accessibility()
    await client.activate_window("no such window")
    await client.close_window("no such window", strict=True)


CONTRACT = [check_screen, check_commands, check_pointer, check_files, check_facts]


@pytest.mark.parametrize("check", CONTRACT)
def test_the_client_speaks_the_protocol(standin, vm, check):
    async def main():
        async with standin.Sockets(vm) as server, VmClient(server.base_url) as client:
            await check(client)

    asyncio.run(main())


@pytest.mark.docker
@pytest.mark.parametrize("check", CONTRACT)
def test_a_real_desktop_speaks_the_protocol(desktop_url, check):
    async def main():
        async with VmClient(desktop_url) as client:
            await check(client)

    asyncio.run(main())


# ---- faults, over sockets: few, as they take real time


@pytest.mark.parametrize("fault", ["close", "lost", "cut", "hang", "html500"])
def test_an_action_over_sockets_is_sent_once(standin, vm, fault):
    async def main():
        error = VmBadReply if fault == "html500" else ActionUncertain

        async with standin.Sockets(vm) as server, VmClient(server.base_url, timeouts=SHORT) as client:
            vm.fail("/execute", fault)
            with pytest.raises(error):
                await client.execute(CLICK)
        assert vm.requests == ["/execute"]
        assert len(vm.actions) == (1 if fault in ("lost", "cut") else 0)

    asyncio.run(main())


def test_refused_is_told_from_hung_over_sockets(standin, vm):
    async def main():
        traits = ServerTraits()
        async with standin.Sockets(vm) as server, VmClient(server.base_url, timeouts=SHORT, server=traits) as client:
            vm.fail("/screenshot", "hang")
            with pytest.raises(VmHung):
                await client.screenshot()
            with pytest.raises(VmHung):
                await client.execute(CLICK)
            client.server_restarted()
            await client.screenshot()
            await server.stop()
            with pytest.raises(VmRefused):
                await client.execute(CLICK)
            with pytest.raises(VmRefused):
                await client.screenshot()

    asyncio.run(main())


def test_no_proxy_of_the_environment_is_asked(standin, vm, monkeypatch):
    async def main():
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")

        async with standin.Sockets(vm) as server, VmClient(server.base_url, timeouts=SHORT) as client:
            assert "<desktop-frame" in await client.accessibility()

    asyncio.run(main())


# ---- faults in virtual time


@pytest.mark.parametrize("fault", ["close", "cut", "half", "html500", "junk"])
async def test_a_read_is_tried_three_times(make, vm, fault):
    async with make() as client:
        vm.fail("/screenshot", fault, fault)
        await client.screenshot()
        assert len(vm.requests) == 3
        vm.fail("/screenshot", fault, fault, fault)
        with pytest.raises(VmBadReply) as caught:
            await client.screenshot()
        kinds = {"close": VmLost, "cut": VmLost, "half": BadScreenshot, "junk": BadScreenshot, "html500": VmBadReply}
        assert type(caught.value) is kinds[fault]
        assert len(vm.requests) == 6


async def test_a_read_behind_a_hung_one_is_never_sent(make, vm):
    async with make() as client:
        vm.fail("/screenshot", "hang")
        with pytest.raises(VmHung, match="no answer within 10 s"):
            await client.screenshot()
        assert now() == 10.0
        with pytest.raises(VmHung):
            await client.screenshot()
        assert vm.requests == ["/screenshot"]


async def test_a_request_that_was_cancelled_under_way_stops_all_others(make, vm):
    async with make() as client:
        vm.fail("/accessibility", "hang")
        asking = asyncio.ensure_future(client.accessibility())
        await asyncio.sleep(1.0)
        asking.cancel()
        await asyncio.wait([asking])
        with pytest.raises(VmHung):
            await client.screenshot()
        client.forget_requests()
        await client.screenshot()


async def test_one_request_at_a_time(make, vm):
    async with make() as client:
        vm.fail("/screenshot", *["slow"] * 4)
        await asyncio.gather(*(client.screenshot() for _ in range(4)))
        assert now() == 4.0
        assert vm.overlaps == 0


async def test_an_action_that_was_refused_was_not_sent(make, vm):
    async with make() as client:
        vm.die()
        with pytest.raises(VmRefused):
            await client.execute(CLICK)
        assert now() == 0.0
        assert vm.requests == []


async def test_a_command_that_changes_nothing_is_tried_again(make, vm):
    async with make() as client:
        vm.fail("/execute", "close", "junk")
        assert (await client.execute(["echo", "x"], action=False)).output == "x\n"


async def test_a_read_waits_for_a_server_that_restarts(make, vm):
    async with make() as client:
        vm.die(seconds=5.1)
        await client.screenshot()
        assert now() == 5.25
        assert client.refusals == 1
        vm.die(seconds=20.0)
        with pytest.raises(VmRefused):
            await client.screenshot()
        assert now() == 13.25
        assert client.refusals == 1


async def test_a_missing_file_is_not_asked_for_again(make, vm):
    async with make() as client:
        with pytest.raises(VmMissing, match="404"):
            await client.file("/none")
        with pytest.raises(VmBadReply, match="400"):
            await client.list_directory("/none")
        assert len(vm.requests) == 2


async def test_an_unknown_route_is_no_missing_file(make, vm, standin, monkeypatch):
    monkeypatch.delitem(standin.ROUTES, "/file")
    async with make() as client:
        with pytest.raises(VmBadReply) as caught:
            await client.file("/a")
        assert type(caught.value) is VmBadReply


@pytest.mark.parametrize(
    ("route", "call"),
    [
        ("/execute", lambda client: client.execute(["echo"], action=False)),
        ("/accessibility", lambda client: client.accessibility()),
        ("/list_directory", lambda client: client.list_directory("/")),
    ],
)
async def test_an_answer_of_the_wrong_shape_is_a_fault(make, vm, route, call):
    async with make() as client:
        vm.fail(route, "junk", "junk", "junk")
        with pytest.raises(VmBadReply, match=route):
            await call(client)


async def test_a_screen_that_rests_is_decoded_once(make, vm):
    async with make() as client:
        first = await client.frame()
        assert await client.frame() is first
        vm.paint()
        assert (await client.frame()).pixels[0, 0, 0] == 200


# ---- pictures


def test_a_whole_picture_is_read():
    pixels = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(4, 5, 3)
    data = encode_png(pixels)
    frame = read_frame(data)
    assert frame.size == (5, 4)
    assert (frame.pixels == pixels).all()
    assert not frame.pixels.flags.writeable


def test_no_part_of_a_picture_passes_for_one():
    data = encode_png(np.arange(3 * 8 * 8, dtype=np.uint8).reshape(8, 8, 3))
    for length in range(len(data)):
        with pytest.raises(BadScreenshot):
            read_frame(data[:length])
    with pytest.raises(BadScreenshot):
        read_frame(data + b"x")
    for at in range(len(data)):
        broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(BadScreenshot):
            read_frame(broken)


def test_a_picture_that_does_not_decode_is_refused():
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    start = b"\x89PNG\r\n\x1a\n"
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0))
    end = chunk(b"IEND", b"")
    for body in (b"", chunk(b"IDAT", b"no zlib"), chunk(b"IDAT", zlib.compress(b"short"))):
        with pytest.raises(BadScreenshot, match="decode"):
            read_frame(start + head + body + end)
    huge = chunk(b"IHDR", struct.pack(">IIBBBBB", 2**20, 2**20, 8, 2, 0, 0, 0))
    with pytest.raises(BadScreenshot):
        read_frame(start + huge + end)
