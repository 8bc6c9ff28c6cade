"""A hostile server in the desktop, against every getter: it answers with too much, never, elsewhere, or with lies.

Every case is refused, which masks the attempt with a cause, or harmless: no answer scores, none makes a getter ask
another host, and the same sandboxes score honestly afterwards.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dartsim.core.errors import EnvFault, ScoreUnavailable, cause_of
from dartsim.core.types import Task

pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.real.osworld.client import VmClient
from dartsim.real.osworld.fetch import DesktopAddress, Downloads, TaskFolder
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.osworld.transport import OWN_SERVER, Timeouts
from dartsim.real.scoring import SandboxPool
from dartsim.real.scoring.container import open_pool
from dartsim.real.scoring.sandbox import ScoreLimits

HOME = os.environ.get("DARTSIM_EVALUATOR", "")
MARK = Path("/tmp/dartsim-red-team-was-here")
SECONDS = 10.0
LIMITS = ScoreLimits(metric_seconds=20.0, getter_seconds=SECONDS, memory_mib=128, scratch_mib=64, cpu_seconds=3)
TIMEOUTS = Timeouts(connect=5.0, execute=2.0, file=2.0, accessibility=2.0, other=2.0)
OWN = ("list_directory", "vm_command_error", "vm_command_line", "vm_file")
"""Getters of the driver that ask the desktop."""
_THEIRS = """
    accessibility_tree active_tab_html_parse active_tab_info active_tab_url_parse active_url_from_accessTree
    audio_in_slide background_image_in_slide bookmarks chrome_font_size chrome_language content_from_vm_file
    cookie_data data_delete_automacally default_search_engine default_video_player enable_do_not_track
    enable_enhanced_safety_browsing enable_safe_browsing enabled_experiments find_installed_extension_name
    find_unpacked_extension_path gimp_config_file history macys_product_url_parse new_startup_page
    profile_name shortcuts_on_desktop url_dashPart url_path_parse vlc_config vlc_playing_info vm_screen_size
    vm_terminal_output vm_wallpaper vm_window_size vscode_config
"""
THEIRS = tuple(_THEIRS.split())
"""Getters of ``desktop-env`` that ask the desktop's server."""
BROWSER = ("gotoRecreationPage_and_get_html_content", "number_of_search_results", "open_tabs_info", "page_info")
"""They start a driver of Chrome first, which takes a second of a core."""
CONFIG = {
    **{"path": "/home/user/a.txt", "dest": "a.txt", "command": ["say"], "shell": False, "url": "http://a.example/"},
    **{"file_name": "gimprc", "app_class_name": "gimp", "ppt_file_path": "/home/user/a.pptx", "slide_index": 0},
    **{"vscode_extension_command": "code --list-extensions", "csv_path": "/home/user/a.csv", "goto_prefix": "https://"},
    **{"category": "class", "selector": "class", "class": "a", "order": 0, "parse_keys": ["q"], "replace": {}},
    **{"partIndex": 0, "returnType": "string", "infos": [], "file_type": "text", "file_content": "a"},
}
"""What the getters look for in their part of a task file."""
OFFLINE = frozenset({"cache_file", "cloud_file", "googledrive_file", "replay", "rule", "rule_relativeTime"})
OFFLINE |= {"conference_city_in_order", "time_diff_range", "info_from_website", "pdf_from_url"}
"""They ask no desktop, or fetch what a task names by its browser."""

OK = b"HTTP/1.1 200 OK\r\n"
NAMES = ("/etc/passwd", "../../escaped", "a\nb", "\udcff", "x" * 5_000, str(MARK))


class Attack(socketserver.ThreadingTCPServer):
    """A server that reads requests and answers them as one attack does."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, answer: Callable[[Attack, socket.socket], None]) -> None:
        self.answer = answer
        self.asked = 0
        self.elsewhere = 0
        """Port of a server that nobody may ask."""
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(socketserver.BaseRequestHandler):
    server: Attack

    def handle(self) -> None:
        self.server.asked += 1
        with suppress(OSError):
            self.request.recv(2**16)
            self.server.answer(self.server, self.request)


def body(content: bytes, *headers: bytes) -> Callable[[Attack, socket.socket], None]:
    head = b"".join(header + b"\r\n" for header in (*headers, b"Content-Length: %d" % len(content)))
    return lambda server, connection: connection.sendall(OK + head + b"\r\n" + content)


def lies(server: Attack, connection: socket.socket) -> None:
    """Claim everything that a getter could look for, by names that lead out and addresses that lead elsewhere."""
    tree = {"type": "directory", "name": NAMES[1], "children": [{"type": "file", "name": name} for name in NAMES]}
    found = {
        **{"output": "\n".join(NAMES), "error": NAMES[0], "returncode": -9, "status": "success", "AT": "<a/>" * 9},
        **{"desktop_path": NAMES[0], "directory_tree": tree, "width": -1, "height": 1e308, "score": 1.0, "value": 1},
        "webSocketDebuggerUrl": f"ws://127.0.0.1:{server.elsewhere}/",
    }
    body(json.dumps(found).encode(), b"Content-Type: application/json")(server, connection)


def endless(head: bytes, chunk: bytes, pause: float = 0.0) -> Callable[[Attack, socket.socket], None]:
    def answer(server: Attack, connection: socket.socket) -> None:
        connection.sendall(OK + head + b"\r\n\r\n")
        while True:
            connection.sendall(chunk)
            time.sleep(pause)

    return answer


def elsewhere(server: Attack, connection: socket.socket) -> None:
    location = f"http://127.0.0.1:{server.elsewhere}/solved"
    connection.sendall(f"HTTP/1.1 307 Go\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())


def raw(data: bytes) -> Callable[[Attack, socket.socket], None]:
    return lambda server, connection: connection.sendall(data)


ATTACKS: dict[str, Callable[[Attack, socket.socket], None]] = {
    "deep JSON": body(b"[" * 200_000, b"Content-Type: application/json"),
    "endless reply": endless(b"Transfer-Encoding: chunked", b"100000\r\n" + bytes(2**20) + b"\r\n"),
    "giant reply": endless(b"Content-Length: 68719476736", bytes(2**20)),
    "gzip bomb": body(gzip.compress(bytes(2**30), 1), b"Content-Encoding: gzip"),
    "half a reply": raw(OK + b"Content-Length: 1000\r\n\r\n" + b'{"output": "solved'),
    "lies": lies,
    "long header": raw(OK + b"X: " + b"a" * 2**24 + b"\r\n\r\n"),
    "no HTTP": raw(b"\0\xff" * 5_000),
    "nothing": raw(b""),
    "redirect": elsewhere,
    "redirect to a file": raw(b"HTTP/1.1 302 Go\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
    "slow reply": endless(b"Content-Length: 1000", b"a", 0.2),
    "smuggled reply": raw(
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\n1"
    ),
    "wrong type": body(b"\x89PNG\r\n" + b"\xff" * 1000, b"Content-Type: image/png"),
}
HARMLESS = {"deep JSON", "gzip bomb", "lies", "smuggled reply", "wrong type"}
"""A getter may believe these, or take them for a file: they then score 0, as any wrong answer."""
QUICK = [name for name in ATTACKS if name not in ("endless reply", "giant reply", "slow reply")]
THOROUGH = ("cookie_data", "shortcuts_on_desktop", "vlc_playing_info", "vm_screen_size", "vm_wallpaper")


class RedTeam:
    """Runs getters against every attack, in one pool."""

    def __init__(self, pool: SandboxPool, run: Callable[..., Any], folder: Path) -> None:
        self.pool = pool
        self.run = run
        self._folder = folder

    async def score(self, getter: str, server: Attack) -> float | str:
        """Return the score of a task with this getter, or why there is none."""
        folder = self._folder / f"{getter}-{server.server_address[1]}"
        address = DesktopAddress(server_url=server.url, chromium_url=server.url, vlc_url=server.url)
        where = TaskFolder(folder, address=address, downloads=Downloads(folder / "downloads"))
        result = {**CONFIG, "type": getter}
        expected = {"type": "rule", "rules": {"expected": "solved"}}
        task = Task("t", "do it", "os", {"evaluator": {"func": "exact_match", "result": result, "expected": expected}})
        async with VmClient(server.url, timeouts=TIMEOUTS, server=OWN_SERVER) as client:
            try:
                return await Scorer(self.pool).score(task, client, where, last_action="DONE")
            except (ScoreUnavailable, EnvFault) as fault:
                return cause_of(fault)

    def attack(self, getter: str, attacks: Sequence[str]) -> dict[str, float | str]:
        """Return what each attack on a getter gave; fail if a getter asked a server that it was sent to."""
        with ExitStack() as stack:
            canary = stack.enter_context(Attack(raw(OK + b"Content-Length: 6\r\n\r\nsolved")))
            servers = {name: stack.enter_context(Attack(ATTACKS[name])) for name in attacks}
            for server in servers.values():
                server.elsewhere = canary.server_address[1]

            async def all_of_them() -> list[float | str]:
                return await asyncio.gather(*(self.score(getter, server) for server in servers.values()))

            found = dict(zip(servers, self.run(all_of_them), strict=True))
            assert canary.asked == 0
            assert [name for name, server in servers.items() if not server.asked] == [], "were never asked"
        return found


@contextmanager
def opened(home: str, folder: Path, limits: ScoreLimits = LIMITS) -> Iterator[RedTeam]:
    from anyio.from_thread import start_blocking_portal

    if not home:
        pytest.skip("no environment with desktop-env in DARTSIM_EVALUATOR")
    pools = open_pool(Path(home), size=4, limits=limits)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(pools) as pool:
        yield RedTeam(pool, portal.call, folder)


@pytest.fixture(scope="module")
def own(own_metrics: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedTeam]:
    """Our getters run in the driver."""
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal:
        yield RedTeam(own_metrics(), portal.call, tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def osworld(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedTeam]:
    with opened(HOME, tmp_path_factory.mktemp("osworld")) as team:
        yield team


@pytest.fixture(scope="module")
def osworld_with_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedTeam]:
    """With memory and time for the driver of Chrome."""
    limits = ScoreLimits(getter_seconds=60.0, scratch_mib=64)
    with opened(HOME, tmp_path_factory.mktemp("browser"), limits) as team:
        yield team


def check(team: RedTeam, getter: str, attacks: Sequence[str] = tuple(ATTACKS), harmless: Set[str] = HARMLESS) -> None:
    found = team.attack(getter, attacks)
    believed = {attack for attack, score in found.items() if not isinstance(score, str)}
    assert all(found[attack] == 0.0 for attack in believed), found
    assert believed <= harmless, found
    assert "" not in found.values(), found
    assert not MARK.exists()
    with Attack(body(b'{"output": "solved", "error": "", "returncode": 0, "status": "success"}')) as honest:
        assert team.run(team.score, "vm_command_line", honest) == 1.0


@pytest.mark.parametrize("getter", OWN)
def test_no_answer_of_a_hostile_server_scores_through_our_getters(own, getter):
    check(own, getter)


@pytest.mark.docker
@pytest.mark.parametrize("getter", THEIRS)
def test_no_answer_of_a_hostile_server_scores_through_osworlds_getters(osworld, getter):
    """All attacks for one getter of each kind of request; for the others those that take no time."""
    check(osworld, getter, list(ATTACKS) if getter in THOROUGH else QUICK)


@pytest.mark.docker
@pytest.mark.soak
@pytest.mark.parametrize("getter", THEIRS)
def test_no_attack_of_a_hostile_server_scores_through_any_getter(osworld, getter):
    check(osworld, getter)


@pytest.mark.docker
@pytest.mark.soak
@pytest.mark.parametrize("getter", BROWSER)
def test_no_attack_at_chromes_port_scores(osworld_with_browser, getter):
    """These getters take any answer that makes no sense for a browser that shows nothing."""
    check(osworld_with_browser, getter, harmless=set(ATTACKS))


@pytest.mark.docker
def test_every_getter_of_osworld_is_attacked(osworld):
    getters = osworld.run(osworld.pool.facts).getters
    usable = {name for name, lacks in getters.items() if not lacks}
    assert usable - OFFLINE - set(OWN) == {*THEIRS, *BROWSER} & usable
