"""The evaluator process, with a small package in ``desktop-env``'s place."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dartsim.core.errors import ConfigError
from dartsim.core.types import Task
from dartsim.real.osworld.errors import Unscored
from dartsim.real.osworld.evaluator import MAIN, EvaluatorProcess, ResultFileMissing
from dartsim.real.osworld.evaluator_main import KEPT
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.scoring.evaluator_venv import LIGHT, PACKAGE, commands, default_home, install, python_of

METRICS = """
import os, signal, sys, time
import easyocr, PIL
from easyocr import Reader
from librosa.feature import mfcc

def half(result, expected=None, *, scale=1):
    print("noise on standard output")
    return 0.5 * scale

def kind(result, expected, **options):
    if options.get("strict"):
        return 1.0
    return float(type(result).__name__ == expected)

def read_text(path): return _read(path)
def _read(path): return Reader(["en"]).readtext(path)
def sound(path: mfcc): return float(mfcc(path))
def fails(result): raise TypeError("result is None")
def dies(result): os.kill(os.getpid(), signal.SIGKILL)
def sleeps(result): time.sleep(60)
def leaves(result): os.close(1) or sys.exit(0)
def environment(result): return float(result in os.environ)
def folder(result): return float(os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"])
"""
GETTERS = """
import requests
from playwright.sync_api import sync_playwright

def get_pair(env, config): return ("a", 1)
def get_text(env, config): return config["text"]
def get_missing(env, config): return open(env.cache_dir + "/none")
def get_page(env, config): return sync_playwright()
def get_file(env, config): return (env.controller.get_file(config["path"]) or b"gone").decode()
def get_home(env, config): return env.controller.execute_python_command("print(1)")["output"]
def get_swallowed(env, config):
    try:
        return env.controller.get_file("/a")
    except Exception:
        return None
def get_system(env, config): return env.vm_platform
def get_ports(env, config): return [env.vm_ip, env.server_port, env.chromium_port, env.vlc_port]
def helper(): pass
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with a package ``desktop_env``."""
    root = tmp_path_factory.mktemp("site")
    for name, text in (("metrics", METRICS), ("getters", GETTERS)):
        package = root / "desktop_env/evaluators" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
    for package in ("desktop_env", "desktop_env/evaluators"):
        (root / package / "__init__.py").touch()
    (root / "desktop_env-9.9.dist-info").mkdir()
    (root / "desktop_env-9.9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: desktop-env\nVersion: 9.9\n")
    return root


@pytest.fixture
def make(site):
    # Isolated (-S), so that what is not installed there is not installed.
    code = f"import runpy, sys; sys.path.insert(0, {str(site)!r}); runpy.run_path({str(MAIN)!r}, run_name='__main__')"

    def make(**options):
        return EvaluatorProcess(Path("/nowhere"), command=[sys.executable, "-I", "-S", "-c", code], **options)

    return make


def run(process, use):
    """Use a process within one event loop, and end it."""

    async def main():
        try:
            return await use(process)
        finally:
            await process.aclose()

    return asyncio.run(main())


def test_it_says_what_is_there_and_what_that_lacks(make):
    facts = run(make(), lambda process: process.facts())
    assert facts.desktop_env == "9.9"
    assert facts.metrics["half"] == []
    assert facts.metrics["read_text"] == ["easyocr"]
    assert facts.metrics["sound"] == ["librosa"]
    assert facts.getters["page"] == ["playwright"]
    assert "helper" not in facts.getters
    assert facts.options["half"] == ["expected", "result", "scale"]
    assert facts.no_metric("half", ["scale", "_remark"]) == ""
    assert facts.no_metric("half", ["colour"]) == "desktop-env 9.9 does not know its option colour"
    assert facts.no_metric("kind", ["strict"]) == ""
    assert facts.no_metric("kind", ["lenient"]) == "desktop-env 9.9 does not know its option lenient"
    assert facts.no_metric("read_text") == "easyocr is not installed"
    assert facts.no_getter("moon") == "desktop-env 9.9 does not have it"


def test_one_process_serves_many_calls_one_at_a_time(make):
    async def use(process):
        values = await asyncio.gather(*(process.metric("half", [None], {"scale": n % 3}) for n in range(9)))
        return values, process.starts

    assert run(make(), use) == ([0.0, 0.5, 1.0] * 3, 1)


def test_values_that_json_would_change_stay_there(make, fakes, tmp_path):
    async def use(process):
        where = fakes.folder(tmp_path)
        pair = await process.getter("pair", {}, where)
        text = await process.getter("text", {"text": "ä\n"}, where)
        return (
            pair,
            text,
            await process.metric("kind", [pair, "tuple"], {}),
            await process.metric("kind", [text, "str"], {}),
        )

    pair, text, *values = run(make(), use)
    assert next(iter(pair)).startswith(KEPT)
    assert text == "ä\n"
    assert values == [1.0, 1.0]


def test_what_an_agent_wrote_is_not_taken_for_a_kept_value(make, fakes, tmp_path):
    async def use(process):
        where = fakes.folder(tmp_path)
        await process.getter("pair", {}, where)
        found = [await process.metric("kind", [forged, "dict"], {}) for forged in ({"kept": 2}, {"kept": 1})]
        with pytest.raises(Unscored) as guessed:
            await process.metric("kind", [{f"{KEPT}0123456789abcdef": 2}, "tuple"], {})
        return found, guessed.value.cause

    assert run(make(), use) == ([1.0, 1.0], "metric_failed")


def test_a_kept_value_does_not_outlive_its_process(make, fakes, tmp_path):
    async def use(process):
        pair = await process.getter("pair", {}, fakes.folder(tmp_path))
        with pytest.raises(Unscored) as died:
            await process.metric("dies", [None], {})
        await process.getter("pair", {}, fakes.folder(tmp_path))
        with pytest.raises(Unscored) as lost:
            await process.metric("kind", [pair, "tuple"], {})
        return died.value.cause, lost.value.cause

    assert run(make(), use) == ("evaluator_died", "metric_failed")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("fails", "metric_failed"),
        ("read_text", "metric_unavailable"),
        ("none", "metric_failed"),
        ("dies", "evaluator_died"),
        ("sleeps", "evaluator_timeout"),
        ("leaves", "evaluator_died"),
    ],
)
def test_a_metric_that_breaks_is_named_and_the_next_call_goes_on(make, name, cause):
    async def use(process):
        await process.facts()
        with pytest.raises(Unscored, match=name) as caught:
            await process.metric(name, ["x"], {})
        return caught.value.cause, await process.metric("half", [None], {})

    assert run(make(call_seconds=1.0 if name == "sleeps" else 60.0), use) == (cause, 0.5)


def test_a_call_that_is_cancelled_leaves_no_reply_for_the_next(make):
    async def use(process):
        await process.facts()
        call = asyncio.create_task(process.metric("sleeps", [None], {}))
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return await process.metric("half", [None], {}), process.starts

    assert run(make(), use) == (0.5, 2)


def test_a_program_that_is_none_cannot_be_started():
    async def use(process):
        with pytest.raises(Unscored) as caught:
            await process.facts()
        return caught.value.cause

    for command in (["/nowhere/python"], [sys.executable, "-c", "print('no JSON')"], [sys.executable, "-c", "exit(3)"]):
        assert run(EvaluatorProcess(Path("/nowhere"), command=command), use) == "evaluator_died"


def test_it_gets_no_secrets_and_a_folder_of_its_own(make, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")

    async def use(process):
        secret, path, folder = [
            await process.metric(*call, {})
            for call in (("environment", ["MY_TOKEN"]), ("environment", ["PATH"]), ("folder", [None]))
        ]
        return secret, path, folder, process._folder

    *values, folder = run(make(), use)
    assert values == [0.0, 1.0, 1.0]
    assert not folder.exists()


async def serve(reader, writer):
    """Answer as the server in a desktop would."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    route = head.split()[1]
    status, body = {
        "/platform": (200, b"Linux"),
        "/execute": (200, b'{"output": "Xlib warns\\n/home/u\\n", "returncode": 0}'),
        "/file": (404, b"{}"),
    }.get(route, (500, b""))
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()


def test_getters_ask_the_desktop_and_a_dead_one_is_not_none(make, fakes, tmp_path):
    async def use(process):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        where = fakes.TaskFolder(
            tmp_path, desk=fakes.Desk(server_url=url, vlc_url="http://127.0.0.1:8"), downloads=None
        )
        async with server:
            found = [await process.getter(name, {"path": "/a"}, where) for name in ("system", "home", "file", "ports")]
        with pytest.raises(Unscored) as caught:
            await process.getter("file", {"path": "/a"}, where)
        with pytest.raises(Unscored, match="of desktop-env: /file: "):
            await process.getter("swallowed", {}, where)
        with pytest.raises(ResultFileMissing):
            await process.getter("missing", {}, where)
        with pytest.raises(Unscored) as lacking:
            await process.getter("page", {}, where)
        assert found == ["Linux", "/home/u\n", "gone", ["127.0.0.1", port, None, 8]]
        return caught.value.cause, lacking.value.cause

    assert run(make(), use) == ("vm_unreachable", "getter_unavailable")


def test_its_folder_goes_even_if_we_were_killed(make):
    async def use(process):
        await process.facts()
        folder = process._folder
        process._process.stdin.close()
        await process._process.wait()
        return folder

    process = make()
    assert not asyncio.run(use(process)).exists()


def test_there_must_be_an_environment(tmp_path):
    with pytest.raises(ConfigError, match="wanted one made by `dartsim evaluator install`"):
        EvaluatorProcess(tmp_path)


def test_where_the_environment_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_home() == tmp_path / "dartsim/evaluator"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_home() == Path.home() / ".cache/dartsim/evaluator"


def test_the_light_environment_takes_the_package_without_what_it_asks_for(tmp_path):
    make, wanted, package = commands(tmp_path, light=True, python="py")
    assert make == ["py", "-m", "venv", "--clear", str(tmp_path)]
    assert wanted[-len(LIGHT) :] == list(LIGHT)
    assert package[-2:] == ["--no-deps", PACKAGE]
    assert [command[-1] for command in commands(tmp_path, light=False)[1:]] == [PACKAGE]


def test_an_environment_is_made_where_nothing_else_is(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").touch()
    with pytest.raises(ConfigError, match="is no virtual environment"):
        install(tmp_path / "full", light=True)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nmkdir -p "$4/bin"\ncp "$0" "$4/bin/python"\ntest "$2" = venv || exit 7\n')
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"failed with 7; desktop-env wants Python 3\.10 to 3\.12"):
        install(tmp_path / "new", light=True, python=str(python))
    assert python_of(tmp_path / "new").is_file()


HOME = os.environ.get("DARTSIM_EVALUATOR", "")
needs_desktop_env = pytest.mark.skipif(not HOME, reason="no environment with desktop-env in DARTSIM_EVALUATOR")


@needs_desktop_env
def test_desktop_env_itself_scores(fakes, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["a", 1])
    book.save(tmp_path / "gold.xlsx")
    both = {"sheet_idx0": 0, "sheet_idx1": "EI0"}
    evaluator = {
        "func": "compare_table",
        "result": {"type": "vm_file", "path": "/a.xlsx", "dest": "a.xlsx"},
        "expected": {"type": "cloud_file", "path": (tmp_path / "gold.xlsx").as_uri(), "dest": "gold.xlsx"},
        "options": {"rules": [{"type": kind, **both} for kind in ("sheet_data", "chart", "pivot_table")]},
    }
    client = fakes.FakeClient(files={"/a.xlsx": (tmp_path / "gold.xlsx").read_bytes()})
    where = fakes.folder(tmp_path, sources=[tmp_path])
    given = Task("t", "do it", "libreoffice_calc", {"evaluator": evaluator})

    async def use(process):
        return await Scorer(process).score(given, client, where, last_action="DONE")

    assert run(EvaluatorProcess(Path(HOME)), use) == 1.0
