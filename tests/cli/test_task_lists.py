"""``dartsim desktop tasks FOLDER``, ``fetch`` and ``evaluator``: who scores a list's tasks, and the files they need."""

from __future__ import annotations

import json
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

pytest.importorskip("httpx")

from dartsim.cli.app import app

RULE = {"type": "rule", "rules": {"expected": "a"}}
SAYS = {"type": "vm_command_line", "command": "say"}


@pytest.fixture
def tasks(tmp_path):
    """A folder of three tasks, and an empty cache."""
    names = {"t1": "exact_match", "t2": "compare_pdfs", "t3": "compare_cats"}
    (tmp_path / "examples/os").mkdir(parents=True)
    for name, func in names.items():
        spec = {"id": name, "instruction": "do it", "evaluator": {"func": func, "result": SAYS, "expected": RULE}}
        (tmp_path / f"examples/os/{name}.json").write_text(json.dumps(spec))
    (tmp_path / "test_nogdrive.json").write_text(json.dumps({"os": [*names, "gone"]}))
    return tmp_path


def desktop(*arguments, home):
    return CliRunner().invoke(app, ["desktop", *map(str, arguments)], env={"XDG_CACHE_HOME": str(home)})


def test_a_list_shows_who_can_score_its_tasks(tasks, tmp_path):
    shown = desktop("tasks", tasks, home=tmp_path)
    assert shown.exit_code == 0
    assert [line.split() for line in shown.output.splitlines() if line.startswith("all")] == [
        ["all", "│", "3", "│", "0", "│", "0", "│", "0", "│", "1", "│", "2"]
    ]
    found = json.loads(desktop("tasks", tasks, "--json", "-", home=tmp_path).stdout)
    assert found["counts"] == {"builtin": 1, "desktop-env": 2, "unsupported": 0}
    assert found["states"] == {"runs": 3, "internet": 0, "missing": 0, "unsupported": 0}
    assert found["reasons"]["desktop-env"] == {"metric compare_cats": 1, "metric compare_pdfs": 1}
    assert (found["missing"], found["unreadable"]) == (["os/gone"], {})


def test_a_variant_of_our_image_lacks_applications(tasks, tmp_path):
    path = tasks / "examples/os/t1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"related_apps": ["vscode"]}))
    found = json.loads(desktop("tasks", tasks, "--variant", "vm", "--json", "-", home=tmp_path).stdout)
    assert found["states"]["missing"] == 1
    assert found["tasks"]["os/t1"]["reasons"] == ["needs an application that is missing: Visual Studio Code"]


def test_the_evaluator_replaces_nothing_but_an_environment(tmp_path):
    place = tmp_path / "dartsim" / "evaluator"
    place.mkdir(parents=True)
    (place / "mine").touch()
    failed = desktop("evaluator", home=tmp_path)
    assert "is no virtual environment" in str(failed.exception)
    assert (place / "mine").exists()


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
    words = ["fetch", folder, "--list", "small", "--cache", cache, "--allow-host", "127.0.0.1"]
    return desktop(*words, *more, home=cache)


def test_every_file_is_kept_by_its_hash(url, tmp_path):
    folder = folder_of(tmp_path / "tasks", f"{url}/there/a", f"{url}/there/b")
    done = fetch(folder, tmp_path / "cache", "--json", "-")
    assert done.exit_code == 0, done.output
    files = json.loads(done.stdout)["files"]
    assert [file["sha256"] for file in files] == [sha256(f"/there/{name}".encode()).hexdigest() for name in "ab"]
    assert {path.name for path in (tmp_path / "cache" / "sha256").iterdir()} == {file["sha256"] for file in files}


def test_tasks_that_cannot_be_read_and_files_that_cannot_be_fetched_are_named(url, tmp_path):
    folder = folder_of(tmp_path / "tasks", f"{url}/there/a", f"{url}/gone")
    (folder / "small.json").write_text(json.dumps({"os": ["t", "gone", "bad"]}))
    (folder / "examples/os/bad.json").write_text('{"id": "bad"')
    done = fetch(folder, tmp_path / "cache", "--json", "-")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert set(found["unreadable_tasks"]) == {"os/gone", "os/bad"}
    assert [(file["tasks"], "problem" in file) for file in found["files"]] == [(["t"], False), (["t"], True)]
    assert "t: http://127.0.0.1" in done.stderr
