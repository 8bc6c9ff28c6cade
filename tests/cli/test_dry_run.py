"""``dartsim run --dry-run``: what would start is told, and nothing starts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dartsim.cli.app import app
from dartsim.errors import ConfigError

VLLM = ("--preset", "tiny", "--backend", "mock", "--workers", "vllm")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DARTSIM_VLLM_PYTHON", raising=False)
    yield
    assert not (tmp_path / "runs").exists()


def dry_run(*arguments, sets=()):
    overrides = [word for one in sets for word in ("--set", one)]
    return CliRunner().invoke(app, ["run", *arguments, *overrides, "--dry-run"])


def as_json(*arguments, sets=()):
    return json.loads(dry_run(*arguments, "--json", "-", sets=sets).stdout)


def test_a_simulation_starts_nothing():
    found = as_json("--preset", "dart")
    assert found["clock"] == "virtual"
    assert found["engines"] == {"what": "4 modelled"}
    assert found["desktops"] == {"what": "38 modelled"}
    assert found["learner"] == {"what": "modelled"}


def test_engines_are_told_by_command_environment_and_port():
    pytest.importorskip("torch", reason="needs the extra `train`")
    sets = ("vllm.python=/opt/vllm/bin/python", "vllm.max_model_len=512")
    found = as_json(*VLLM, sets=sets)
    first, second = found["engines"]["processes"]
    assert first["command"][:3] == ["/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert first["command"][first["command"].index("--port") + 1] == "PORT"
    assert first["command"][first["command"].index("--max-model-len") + 1] == "512"
    assert first["environment"]["VLLM_SERVER_DEV_MODE"] == "1"
    assert (first["name"], second["name"]) == ("engine-0", "engine-1")
    said = dry_run(*VLLM, sets=sets)
    assert said.exit_code == 0, said.output
    assert "VLLM_SERVER_DEV_MODE=1" in said.stdout
    assert "nothing was started" in said.stdout


def test_gpus_are_dealt_to_engines():
    pytest.importorskip("torch", reason="needs the extra `train`")
    sets = ('vllm.python="python"', "vllm.gpus=[0,1,2,3]", "vllm.tensor_parallel=2", 'vllm.device="cuda"')
    processes = as_json(*VLLM, sets=sets)["engines"]["processes"]
    assert [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in processes] == ["0,1", "2,3"]


def test_engines_that_run_are_attached_to():
    pytest.importorskip("torch", reason="needs the extra `train`")
    sets = ('vllm.addresses=["http://a:1","http://b:2"]',)
    assert as_json(*VLLM, sets=sets)["engines"]["addresses"] == ["http://a:1", "http://b:2"]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ((), "DARTSIM_VLLM_PYTHON"),
        (('vllm.addresses=["http://a:1"]',), "make 1 engines"),
        (('vllm.python="python"', "vllm.gpus=[0]"), "make 1 engines"),
    ],
)
def test_what_a_run_would_refuse_is_refused(sets, message):
    pytest.importorskip("torch", reason="needs the extra `train`")
    failed = dry_run(*VLLM, sets=sets)
    assert isinstance(failed.exception, ConfigError)
    assert message in str(failed.exception)


def test_containers_are_told_by_image_ports_and_limits():
    pytest.importorskip("docker", reason="needs the extra `real`")
    sets = ('desktop.variant="full"', "desktop.memory_mib=777", 'desktop.hosts.a.url="ssh://a"')
    desktops = as_json("--preset", "desktop", sets=sets)["desktops"]
    assert desktops["container"]["ports"] == {"server": 5000}
    assert desktops["container"]["limits"]["memory_mib"] == 777
    assert desktops["addresses"] == ["ssh://a: at most 64, ports on 127.0.0.1"]
