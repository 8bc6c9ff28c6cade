"""The files of a list's tasks are fetched before a run, and what is not available is named with its tasks."""

import json
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

pytest.importorskip("httpx")

from dartsim.cli.app import app


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path.startswith("/there")
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(self.path.encode() if found else b"")

    def log_message(self, *args):
        pass


@pytest.fixture
def url():
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def folder_of(path, *urls):
    """Write a list with one task, which downloads the first URL, and compares with the others."""
    expected = {"type": "cloud_file", "path": list(urls[1:]), "dest": ["x"] * (len(urls) - 1), "multi": True}
    evaluator = {"func": "exact_match", "result": {"type": "vm_file", "path": "/a", "dest": "a"}, "expected": expected}
    config = [{"type": "download", "parameters": {"files": [{"url": urls[0], "path": "/a"}]}}]
    (path / "examples/os").mkdir(parents=True)
    spec = {"id": "t", "instruction": "do it", "config": config, "evaluator": evaluator}
    (path / "examples/os/t.json").write_text(json.dumps(spec))
    (path / "small.json").write_text(json.dumps({"os": ["t"]}))
    return path


def fetch(folder, cache, *more):
    words = ["osworld", "fetch", str(folder), "--list", "small", "--cache", str(cache), "--allow-host", "127.0.0.1"]
    return CliRunner().invoke(app, [*words, *more])


def test_every_file_is_kept_by_its_hash(url, tmp_path):
    folder = folder_of(tmp_path / "tasks", f"{url}/there/a", f"{url}/there/b")
    done = fetch(folder, tmp_path / "cache", "--json", "-")
    assert done.exit_code == 0, done.output
    files = json.loads(done.stdout)["files"]
    assert [file["sha256"] for file in files] == [sha256(f"/there/{name}".encode()).hexdigest() for name in "ab"]
    assert {path.name for path in (tmp_path / "cache" / "sha256").iterdir()} == {file["sha256"] for file in files}


def test_tasks_that_cannot_be_read_are_named(url, tmp_path):
    folder = folder_of(tmp_path / "tasks", f"{url}/there/a")
    (folder / "small.json").write_text(json.dumps({"os": ["t", "gone", "bad"]}))
    (folder / "examples/os/bad.json").write_text('{"id": "bad"')
    done = fetch(folder, tmp_path / "cache", "--json", "-")
    assert done.exit_code == 1
    assert set(json.loads(done.stdout)["unreadable_tasks"]) == {"os/gone", "os/bad"}
    assert "os/gone: it has no file" in done.stderr
    assert "bad.json: is not JSON" in done.stderr


def test_what_cannot_be_had_is_named_with_its_task(url, tmp_path):
    done = fetch(folder_of(tmp_path / "tasks", f"{url}/there/a", f"{url}/gone"), tmp_path / "cache")
    assert done.exit_code == 1
    assert "1 of 2 files, 8 bytes" in done.output
    assert "t: http://127.0.0.1" in done.output
    assert "/gone could not be downloaded" in done.output
