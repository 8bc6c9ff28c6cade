"""``dartsim check CONFIG``: what would start, what is missing here; nothing starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dartsim.cli import run_checks
from dartsim.cli.app import app
from dartsim.cli.machine_checks import Check, CheckState, EngineAnswer
from dartsim.cli.run_checks import missing_requirements
from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.lab.estimate import estimate
from dartsim.real.containers import EngineInfo

VLLM = ("tiny", "--backend", "mock", "--workers", "vllm")
GPU = "NVIDIA H100 80GB HBM3, 81559 MiB"


@pytest.fixture(autouse=True)
def _without_vllm_and_without_a_run(tmp_path, monkeypatch):
    monkeypatch.delenv("DARTSIM_VLLM_PYTHON", raising=False)
    yield
    assert not (tmp_path / "runs").exists()


def check(*arguments, sets=()):
    overrides = [word for one in sets for word in ("--set", one)]
    return CliRunner().invoke(app, ["check", *arguments, *overrides])


def as_json(*arguments, sets=()):
    return json.loads(check(*arguments, "--json", "-", sets=sets).stdout)


def missing(*arguments, sets=()):
    """Return what is missing, by name."""
    return {one["name"]: one for one in as_json(*arguments, sets=sets)["missing"]}


def test_a_simulation_needs_nothing():
    found = as_json("dart")
    assert found["clock"] == "virtual"
    assert found["engines"] == {"what": "4 modeled"}
    assert found["desktops"] == {"what": "38 modeled"}
    assert found["learner"] == {"what": "modeled"}
    assert found["missing"] == []
    assert check("dart").exit_code == 0
    assert "in this process" in as_json("tiny")["learner"]["what"]


def test_engines_are_shown_by_command_environment_and_port():
    sets = ("vllm.python=/opt/vllm/bin/python", "vllm.max_model_len=512")
    first, second = as_json(*VLLM, sets=sets)["engines"]["processes"]
    assert first["command"][:3] == ["/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert first["command"][first["command"].index("--port") + 1] == "PORT"
    assert first["command"][first["command"].index("--max-model-len") + 1] == "512"
    assert first["environment"]["VLLM_SERVER_DEV_MODE"] == "1"
    assert (first["name"], second["name"]) == ("engine-0", "engine-1")
    shown = check(*VLLM, sets=sets)
    assert shown.exit_code == 1, "there is no such interpreter"
    assert "VLLM_SERVER_DEV_MODE=1" in shown.stdout


@pytest.mark.parametrize("interval", [0, 5])
def test_a_connection_of_ssh_that_would_never_end_is_named(interval, tmp_path, monkeypatch):
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\n[ "$*" = "-G me@far" ] && echo serveraliveinterval {interval}\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    sets = ('desktop.hosts.far.url="ssh://me@far:22"', 'desktop.hosts.far.address="127.0.0.1"')
    assert ("ssh" in missing("desktop", sets=sets)) == (interval == 0)


@pytest.mark.parametrize("variant", ["skeleton", "apps"])
def test_a_skeleton_is_missing_on_another_machine(variant):
    sets = ('desktop.hosts.far.url="ssh://far"', 'desktop.hosts.far.bind="10.0.0.5"', f'desktop.variant="{variant}"')
    assert ("desktop image" in missing("desktop", sets=sets)) == (variant == "skeleton")


def test_hosts_that_do_not_answer_are_missing():
    sets = ('desktop.hosts.far.url="tcp://127.0.0.1:1"', 'desktop.hosts.far.address="127.0.0.1"')
    host = missing("desktop", sets=sets)["host far"]
    assert host["found"] == "no Docker engine answers at tcp://127.0.0.1:1 ([Errno 111] Connection refused)"
    assert "is that machine up" in host["fix"]


@pytest.mark.parametrize(
    ("arguments", "sets", "message"),
    [
        (VLLM, ('vllm.addresses=["http://a:1"]',), "make 1 engines"),
        (VLLM, ('vllm.python="python"', "vllm.gpus=[0]"), "make 1 engines"),
        (("osworld-8gpu",), ("trainer.fsdp.gpus=[0,1,2,3,4,5]",), "would hold engine-0"),
        ((), ("run.seed=1",), "name a configuration"),
        (("dart", "--stand-in", "all"), (), "stand-ins replace real desktops"),
        (("osworld-8gpu", "--stand-in", "all"), ("trainer.fsdp.ranks=2",), "trainer.fsdp.gpus"),
    ],
)
def test_what_a_run_would_refuse_is_refused(arguments, sets, message):
    failed = check(*arguments, sets=sets)
    assert isinstance(failed.exception, ConfigError)
    assert message in str(failed.exception)


FAMILIES = ("osworld", "osworld-dartsim")
OSWORLD = [f"{family}-{gpus}gpu" for family in FAMILIES for gpus in (1, 8, 16)]


@pytest.mark.parametrize("name", OSWORLD)
def test_a_real_run_is_shown_on_a_machine_that_has_nothing_of_it(name):
    found = as_json(name)
    lacking = {one["name"] for one in found["missing"]}
    assert {"model", "tasks", "vllm"} <= lacking
    container = found["desktops"]["container"]
    assert container["image"] == "happysixd/osworld-docker"
    assert container["volumes"] == {"/data/Ubuntu.qcow2": "/System.qcow2:ro"}
    assert container["devices"] == ["/dev/kvm"]
    if name == "osworld-dartsim-16gpu":
        assert "on Ray (gpu-1:6379), actors: 14" in found["learner"]["what"]
    else:
        assert found["learner"]["what"].startswith(f"{load(name).trainer.fsdp.ranks} processes")
    desktops = {"osworld-16gpu": 180, "osworld-dartsim-16gpu": 80}.get(name, 38)
    assert sum(host["desktops"] for host in found["desktops"]["hosts"]) == desktops
    shown = check(name)
    assert shown.exit_code == 1, shown.output


def test_an_evaluation_trains_nothing():
    found = as_json("osworld-8gpu", "--eval")
    assert found["memory"]["learner_gib"] is None
    assert all("rank-0" not in gpu["holds_gib"] for gpu in found["memory"]["gpus"])
    assert {"model", "tasks", "vllm"} <= {one["name"] for one in found["missing"]}


BARE = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # an import of it now raises ModuleNotFoundError
from typer.testing import CliRunner
from dartsim.cli import run_checks
from dartsim.cli.app import app
for arguments in {runs!r}:
    done = CliRunner().invoke(app, ["check", *arguments, "--json", "-"])
    assert done.exit_code == 1, (arguments, done.exception)
    print(done.stdout)
"""
EXTRAS = (
    "anyio", "cssselect", "docker", "httpx", "lxml", "openpyxl", "optuna", "peft", "PIL", "ray", "safetensors", "torch",
    "transformers", "vllm",
)  # fmt: skip


def test_a_bare_machine_shows_every_real_preset():
    runs = [list(VLLM), *([name] for name in ("desktop", *OSWORLD))]
    program = BARE.format(blocked=EXTRAS, runs=runs)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text, shown, decoder = done.stdout.strip(), [], json.JSONDecoder()
    while text:
        found, end = decoder.raw_decode(text)
        shown.append(found)
        text = text[end:].lstrip()
    assert [one["preset"] for one in shown] == ["tiny", "desktop", *OSWORLD]
    assert "engine" in {one["name"] for one in shown[1]["missing"]}  # the package `docker` is missing


def test_every_task_that_will_not_run_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "examples/os").mkdir(parents=True)
    for name in ("a", "b"):
        spec = {"id": name, "instruction": "do it", "evaluator": {"func": "infeasible"}}
        spec["config"] = [{"type": "login", "parameters": {}}] if name == "b" else []
        (tmp_path / f"examples/os/{name}.json").write_text(json.dumps(spec))
    (tmp_path / "small.json").write_text(json.dumps({"os": ["a", "b", "c"]}))
    sets = (f"tasks.folder={tmp_path}", "tasks.list_name=small")
    found = as_json("osworld-8gpu", sets=sets)
    assert (found["tasks"]["num_run"], found["tasks"]["num_listed"]) == (1, 3)
    assert set(found["tasks"]["problems"]) == {"os/b", "os/c"}
    assert "tasks" not in {one["name"] for one in found["missing"]}, "the preset leaves such tasks out"
    assert "tasks" in missing("osworld-8gpu", sets=(*sets, "tasks.unsupported=refuse"))
    assert "tasks" in missing("osworld-8gpu", sets=(*sets, "tasks.exclude=['a']")), "then none is left"
    shown = check("osworld-8gpu", sets=sets)
    assert "1 of them: needs a Google account" in shown.stdout
    assert "1 of them: it has no file" in shown.stdout


def requirements(tmp_path: Path, *changes: str, gpus: int = 0) -> dict[str, str]:
    config = load("osworld-8gpu", overrides=[f"policy.model={tmp_path / 'UI-TARS-1.5-7B'}", *changes])
    cards = "; ".join([GPU] * gpus) or None
    return {check.name: check.found for check in missing_requirements(config, estimate(config), gpus=lambda: cards)}


def test_what_is_there_is_not_listed(tmp_path):
    found = requirements(tmp_path)
    assert {"model", "vllm", "gpus", "tasks"} <= found.keys()
    assert "kvm" not in found  # the machines are on other hosts, where nobody here can look
    python, tasks = tmp_path / "python", tmp_path / "examples"
    python.write_text("#!/bin/sh\necho vllm 0.32.0\n")
    python.chmod(0o755)
    tasks.mkdir()
    (tasks / "test_nogdrive.json").write_text("{}", encoding="utf-8")
    changes = (f"tasks.folder={tasks}", f"vllm.python={python}")
    assert not requirements(tmp_path, *changes, gpus=8).keys() & {"vllm", "gpus", "tasks"}
    assert requirements(tmp_path, *changes, gpus=7)["gpus"].startswith("7 on this machine")


def test_a_machine_too_small_for_the_start_is_named(tmp_path, monkeypatch):
    import psutil

    class Memory:
        total = 64 * 2**30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    assert requirements(tmp_path)["memory"].startswith("64 GiB here; 432 at the start")


def test_machines_and_states_that_the_engine_has_no_room_for_are_named(tmp_path, monkeypatch):
    facts = {"url": "u", "version": "v", "containers": 0, "ours": 0}
    info = EngineInfo(**facts, limits_disk=False, root=str(tmp_path), cores=2, memory_gib=16.0)
    monkeypatch.setattr(
        run_checks, "ask_engine", lambda image: EngineAnswer(Check("engine", CheckState.OK, "here"), info)
    )
    sets = ["desktop.variant=vm", "desktop.image=vm", "desktop.memory_mib=4096"]
    sets += ["desktop.revert=snapshot", "rollout.warm_envs=0", "desktop.states_gib=1e9"]
    found = missing("desktop", sets=[*sets, "rollout.num_envs=5"])
    assert found["memory"]["found"].startswith("5 virtual machines of 4.0 GiB")
    assert str(tmp_path) in found["disk space"]["found"]
    found = missing("desktop", sets=[*sets[:-1], "rollout.num_envs=4"])
    assert not {"memory", "disk space"} & set(found)
