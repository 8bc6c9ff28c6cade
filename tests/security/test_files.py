"""Task files, archives and stored files cannot reach out of their folder, nor fill the memory."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from dartsim.core.errors import TaskFileError, TornFile
from dartsim.envs.tasks import load_suite
from dartsim.real.osworld.fetch import DesktopAddress, Downloads, TaskFolder, check_name, local_file
from dartsim.real.osworld.steps import STEPS, check_steps, run_steps
from dartsim.store.blobs import BlobStore

OUT = [
    "../x",
    "a/../../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a\\..\\..\\x",
    "C:\\x",
    "C:x",
    "\\\\server\\share",
    "a\0b",
    "//x",
    "./../x",
]


def suite(folder, listed):
    (folder / "examples").mkdir(parents=True, exist_ok=True)
    (folder / "list.json").write_text(json.dumps(listed))
    return folder


@pytest.mark.parametrize("name", [*OUT, "a/b", "%2e%2e", "~root", "a b"])
def test_lists_name_no_file_outside_of_the_suite(tmp_path, name):
    for listed in ({name: ["id"]}, {"os": [name]}):
        with pytest.raises(TaskFileError):
            load_suite(suite(tmp_path / "s", listed), "list")
    with pytest.raises(TaskFileError):
        load_suite(tmp_path / "s", name)


def test_links_in_a_suite_lead_nowhere_else(tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "id.json").write_text(json.dumps({"id": "id", "instruction": "x", "evaluator": {"func": "f"}}))
    folder = suite(tmp_path / "s", {"os": ["id"]})
    (folder / "examples" / "os").symlink_to(secret)
    with pytest.raises(TaskFileError, match="leads out of"):
        load_suite(folder, "list")
    (folder / "examples" / "os").unlink()
    (folder / "examples" / "os").mkdir()
    (folder / "examples" / "os" / "id.json").symlink_to(secret / "id.json")
    with pytest.raises(TaskFileError, match="leads out of"):
        load_suite(folder, "list")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"os": ["' + "a" * 5000 + '"]}', "{", "\\ud800"])
def test_lists_that_are_nonsense_are_told_so(tmp_path, text):
    folder = suite(tmp_path / "s", {})
    (folder / "list.json").write_text(text)
    with pytest.raises((TaskFileError, OSError)):
        load_suite(folder, "list")


@pytest.mark.parametrize("name", OUT)
def test_no_file_name_of_a_task_leads_out_of_its_folder(tmp_path, name):
    where = TaskFolder(
        tmp_path / "t", address=DesktopAddress(server_url="http://vm"), downloads=Downloads(tmp_path / "d")
    )
    for attempt in (check_name, where.inside):
        with pytest.raises(TaskFileError):
            attempt(name)
    for coroutine in (where.write(name, b"x"), where.fetch("https://a.org/b", name)):
        with pytest.raises(TaskFileError):
            asyncio.run(coroutine)
    assert not list(tmp_path.iterdir())


def test_a_link_left_in_the_folder_is_replaced_not_followed(tmp_path):
    where = TaskFolder(
        tmp_path / "t", address=DesktopAddress(server_url="http://vm"), downloads=Downloads(tmp_path / "d")
    )
    where.path.mkdir()
    (where.path / "real").write_text("mine")
    (where.path / "link").symlink_to(where.path / "real")
    asyncio.run(where.write("link", b"new"))
    assert (where.path / "real").read_text() == "mine"
    assert not (where.path / "link").is_symlink()
    (where.path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TaskFileError, match="links lead out"):
        asyncio.run(where.write("out", b"new"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link", "folder/../../secret"])
def test_local_files_of_a_task_come_from_its_sources(tmp_path, name):
    from dartsim.real.osworld.errors import FetchFailed

    (tmp_path / "secret").write_text("secret")
    (tmp_path / "s" / "folder").mkdir(parents=True)
    (tmp_path / "s" / "link").symlink_to(tmp_path / "secret")
    downloads = Downloads(tmp_path / "d", sources=[tmp_path / "s"])
    with pytest.raises(FetchFailed):
        local_file(name, downloads.sources)
    with pytest.raises(FetchFailed):
        asyncio.run(downloads.fetch(f"file://{tmp_path}/secret"))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a" * 64, "A" * 64 + ".png", "../" + "a" * 61, ""])
def test_files_of_a_store_or_a_pool_are_named_by_hashes_only(tmp_path, name):
    blobs = BlobStore(tmp_path)
    for use in (blobs.get, blobs.get_text, lambda name: blobs.remove([name])):
        with pytest.raises(TornFile, match="files are named by hashes"):
            use(name)


# ---- replies of a desktop


def test_replies_of_a_desktop_are_bounded_and_plain():

    httpx = pytest.importorskip("httpx")
    from dartsim.real.osworld.errors import VmBadReply
    from dartsim.real.osworld.exchange import OneExchange

    async def ask(body, length, **fields):
        written = 0

        async def serve(reader, writer):
            nonlocal written
            await reader.readuntil(b"\r\n\r\n")
            head = "".join(f"{name}: {value}\r\n" for name, value in {"Content-Length": length, **fields}.items())
            writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode())
            try:
                while written < length:
                    writer.write(body)
                    await writer.drain()
                    written += len(body)
            except OSError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/file"
            request = httpx.Request("GET", url)
            try:
                return (await OneExchange(max_bytes=1000).handle_async_request(request)).content, written
            except VmBadReply as fault:
                return fault, written

    assert asyncio.run(ask(b"x" * 500, 1000))[0] == b"x" * 1000
    fault, written = asyncio.run(ask(b"x" * 2**16, 2**30))
    assert "more than is taken" in str(fault)
    assert written < 2**26, "the connection was closed"
    packed = gzip.compress(b"x", mtime=0)
    fault, _ = asyncio.run(ask(packed, len(packed), **{"Content-Encoding": "gzip"}))
    assert "packed" in str(fault)


# ---- commands of task files

COMMANDS = [
    {"type": "execute", "parameters": {"command": "touch {canary}", "shell": True}},
    {"type": "command", "parameters": {"command": ["touch", "{canary}"]}},
    {"type": "launch", "parameters": {"command": "touch {canary}", "shell": True}},
    {"type": "execute", "parameters": {"command": "$(touch {canary}); `touch {canary}`", "shell": True, "stdout": "o"}},
    {"type": "execute_with_verification", "parameters": {"command": ["sh", "-c", "touch {canary}"]}},
    {"type": "open", "parameters": {"path": "/tmp/$(touch {canary})"}},
    {"type": "activate_window", "parameters": {"window_name": "'; touch {canary} #"}},
    {"type": "close_window", "parameters": {"window_name": "$(touch {canary})"}},
    {"type": "change_wallpaper", "parameters": {"path": "`touch {canary}`"}},
    {"type": "sleep", "parameters": {"seconds": 0}},
]


class Recorder:
    """A desktop's client that writes down what it is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        async def told(*args, **options):
            self.told.append((name, args, options))
            from dartsim.real.osworld.replies import Executed

            return Executed(returncode=0, output="out", error="")

        return told


def test_commands_of_task_files_reach_the_desktop_and_nothing_of_the_host(tmp_path, monkeypatch):
    """Every way of a host to run something is closed, and a canary says whether one was found all the same."""
    import os
    import subprocess

    def refused(*args, **options):
        raise AssertionError(f"a command of a task file ran on the host: {args}")

    for name in ("Popen", "run", "call", "check_output", "check_call", "getoutput", "getstatusoutput"):
        monkeypatch.setattr(subprocess, name, refused)
    for name in ("system", "popen", "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "fork"):
        monkeypatch.setattr(os, name, refused)
    for name in ("create_subprocess_exec", "create_subprocess_shell"):
        monkeypatch.setattr(asyncio, name, refused)
    canary = tmp_path / "canary"
    steps = json.loads(json.dumps(COMMANDS).replace("{canary}", str(canary)))
    client = Recorder()
    where = TaskFolder(
        tmp_path / "t", address=DesktopAddress(server_url="http://vm"), downloads=Downloads(tmp_path / "d")
    )
    asyncio.run(run_steps(steps, client, where))
    told = [name for name, _, _ in client.told]
    assert told.count("execute") == 3
    assert {"launch", "execute_with_verification", "open_file", "activate_window"} <= set(told)
    assert any(str(canary) in str(args) for _, args, _ in client.told)
    assert not canary.exists()
    assert {path.name for path in tmp_path.rglob("*")} <= {"t", "o"}


def test_every_step_type_has_been_looked_at():
    """A new one has to be thought about: what of the host could it touch?"""
    files = {"download", "upload_file"}
    tabs = {"chrome_open_tabs", "chrome_close_tabs", "update_browse_history"}
    assert set(STEPS) == {step["type"] for step in COMMANDS} | files | tabs


def test_steps_import_nothing_that_starts_processes():
    """What carries out task files has no way to run anything here: it does not even import one."""
    import ast
    from pathlib import Path

    import dartsim.real.osworld.steps as steps

    folder = Path(steps.__file__).parent
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"subprocess", "pty", "multiprocessing"} & set(names), path
            where = path, getattr(node, "lineno", 0)
            if isinstance(node, ast.Name):
                assert node.id not in {"eval", "exec", "builtins"}, where
            if isinstance(node, ast.Attribute):  # a container's `exec` runs its command inside the container
                assert node.attr not in {"system", "popen", "create_subprocess_shell", "create_subprocess_exec"}, where


@pytest.mark.parametrize(
    "step",
    [
        {"type": "execute", "parameters": {"command": "ls", "stdout": "../../x"}},
        {"type": "execute", "parameters": {"command": "ls", "stderr": "/etc/cron.d/x"}},
        {"type": "download", "parameters": {"files": [{"url": "file://h/etc/passwd", "path": "/a"}]}},
        {"type": "download", "parameters": {"files": [{"url": "gopher://h/x", "path": "/a"}]}},
        {"type": "__class__", "parameters": {}},
        {"type": "execute", "parameters": {"command": "ls", "client": None}},
        {"type": "sleep", "parameters": {"seconds": 1e9}},
        {"type": "sleep", "parameters": {"seconds": float("nan")}},
    ],
)
def test_hostile_steps_are_refused_before_anything_is_done(step):
    with pytest.raises(TaskFileError):
        check_steps([step])
