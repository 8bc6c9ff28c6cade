"""Task files that attack: every step with every parameter, every getter.

Nothing happens on this machine: an attack is refused, or it reaches the desktop, where it may do as it likes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from dartsim.core.errors import DartsimError
from dartsim.real.osworld.getters import GETTERS, check_getter
from dartsim.real.osworld.steps import STEPS, run_steps

httpx = pytest.importorskip("httpx")
MARK = Path("/tmp/dartsim-red-team-was-here")
NAMES = (
    *("../escaped", f"{MARK}", "a/../../escaped", "~/escaped", "$HOME/escaped"),
    *("a\0b", "\ud800", "x" * 300, "x/" * 600, "", "/", ".."),
)
URLS = (
    "file:///etc/passwd",
    "file://../../etc/passwd",
    "http://127.0.0.1/x",
    "http://169.254.169.254/latest/meta-data",
    "http://[::1]/x",
    "http://0x7f000001/x",
    "ftp://a.example/x",
    "gopher://a.example/x",
    "data:text/plain,x",
    "http://a.example:99999/x",
    "javascript:alert(1)",
    "http://",
)
COMMANDS = tuple(each.format(f"touch {MARK}") for each in ("{}", "; {}", "$({})", "`{}`", "import os; os.system('{}')"))
SHAPES: tuple[Any, ...] = (
    *(None, True, -1, 1e308, float("nan"), float("inf"), 10**400),
    *([], {}, [None], [{}], {"": None}, [[]], "x" * 100_000),
)
WEB = httpx.MockTransport(lambda request: httpx.Response(404))
DEEP: Any = []
for _ in range(500):
    DEEP = [DEEP]
VALID: dict[str, Any] = {
    "command": ["true"],
    "path": "/home/user/a",
    "files": [],
    "seconds": 0,
    "window_name": "A",
    "urls_to_open": [],
    "urls_to_close": [],
    "history": [],
}


def parameters(kind: str) -> list[str]:
    return list(inspect.signature(STEPS[kind]).parameters)[2:]


def hostile(name: str) -> list[Any]:
    """Return hostile values of a parameter."""
    words = [*NAMES, *URLS, *COMMANDS]
    if name == "files":
        files = [{"path": "/home/user/a", "url": word, "local_path": word} for word in words]
        return [*SHAPES, DEEP, *([file] for file in files), *([{"path": word, "url": URLS[0]}] for word in words)]
    if name == "history":
        return [*SHAPES, *([{"url": word, "title": word, "visit_time_from_now_in_seconds": word}] for word in words)]
    if name == "until":
        return [*SHAPES, *({"stdout": word} for word in SHAPES)]
    return [*SHAPES, DEEP, *words, *([word] for word in words), [["a"]]]


def files(folder: Path) -> set[str]:
    return {f"{root}/{name}" for root, _, names in os.walk(folder) for name in names}


def check_machine(folder: Path) -> None:
    """Fail if a file was written outside an attempt's folder, or a command was run."""
    assert not MARK.exists()
    assert not (Path.home() / "escaped").exists()
    assert all(path.startswith((f"{folder}/inner/attempt/", f"{folder}/inner/downloads")) for path in files(folder))


@pytest.fixture
def fakes(module_of):
    return module_of(Path(__file__).parents[1] / "real/osworld/fakes.py")


@pytest.mark.parametrize("kind", STEPS)
async def test_no_step_does_anything_on_this_machine(fakes, tmp_path, kind, monkeypatch):
    started: list[Any] = []
    for name in ("os.system", "os.posix_spawn", "subprocess.Popen", "os.fork"):
        monkeypatch.setattr(name, lambda *arguments, **options: started.append(arguments))
    before = {name: VALID[name] for name in parameters(kind) if name in VALID}
    for name in parameters(kind):
        for value in hostile(name):
            folder = fakes.folder(tmp_path / "inner", transport=WEB)
            try:
                async with asyncio.timeout(3600):  # of virtual time: some wait for what never comes
                    await run_steps([{"type": kind, "parameters": {**before, name: value}}], fakes.FakeClient(), folder)
            except (DartsimError, TimeoutError):
                pass
    assert started == []
    check_machine(tmp_path)


@pytest.mark.parametrize("kind", [*GETTERS, "vm_wallpaper", "audio_in_slide", "history", "vlc_config"])
async def test_no_getter_reads_or_writes_outside_of_its_folder(fakes, tmp_path, kind):
    valid = {"path": "/home/user/a", "dest": "a", "command": "true", "rules": {}}
    if kind in ("cache_file", "cloud_file"):
        valid["path"] = "a" if kind == "cache_file" else "https://a.example/a"
    refused = 0
    for name in ("dest", "path", "command", "rules", "time_format", "gives", "multi", "shell"):
        for value in (*NAMES, *URLS, *COMMANDS, *SHAPES, *([word] for word in NAMES)):
            config = {**valid, "type": kind, name: value}
            folder = fakes.folder(tmp_path / "inner", transport=WEB)
            try:
                check_getter(config)
                if kind in GETTERS:
                    client = fakes.FakeClient(files={config["path"]: b"x"} if isinstance(config["path"], str) else {})
                    await GETTERS[kind](client, folder, config)
            except (DartsimError, KeyError, TypeError, ValueError, OSError):
                refused += 1  # a scorer masks what these say
    assert refused
    check_machine(tmp_path)
