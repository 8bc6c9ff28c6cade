"""``dartsim run --dry-run``: what would start is told, and nothing starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dartsim.cli.app import app
from dartsim.core.errors import ConfigError

VLLM = ("--preset", "tiny", "--backend", "mock", "--workers", "vllm")


@pytest.fixture(autouse=True)
def _without_vllm_and_without_a_run(tmp_path, monkeypatch):
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
    assert found["engines"] == {"what": "4 modeled"}
    assert found["desktops"] == {"what": "38 modeled"}
    assert found["learner"] == {"what": "modeled"}


def test_engines_are_told_by_command_environment_and_port():
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
    sets = ('vllm.python="python"', "vllm.gpus=[0,1,2,3]", "vllm.tensor_parallel=2", 'vllm.device="cuda"')
    processes = as_json(*VLLM, sets=sets)["engines"]["processes"]
    assert [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in processes] == ["0,1", "2,3"]


def test_engines_that_run_are_attached_to():
    urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    found = as_json(*VLLM, sets=(f"vllm.addresses={json.dumps(urls)}",))
    assert found["engines"]["addresses"] == urls
    (missing,) = [one for one in found["missing"] if one["name"] == "engines"]
    assert all(f"{url} does not answer" in missing["found"] for url in urls)


@pytest.mark.parametrize("interval", [0, 5])
def test_a_connection_of_ssh_that_would_never_end_is_told(interval, tmp_path, monkeypatch):
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\n[ "$*" = "-G me@far" ] && echo serveraliveinterval {interval}\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    sets = ('desktop.hosts.far.url="ssh://me@far:22"', 'desktop.hosts.far.address="127.0.0.1"')
    told = [one["found"] for one in as_json("--preset", "desktop", sets=sets)["missing"] if one["name"] == "ssh"]
    assert (
        told
        == ["ssh waits forever for ssh://me@far:22 if that machine is lost: its ServerAliveInterval is 0"][
            : interval == 0
        ]
    )


@pytest.mark.parametrize("variant", ["skeleton", "full"])
def test_a_skeleton_is_missing_on_another_machine(variant):
    sets = ('desktop.hosts.far.url="ssh://far"', 'desktop.hosts.far.bind="10.0.0.5"', f'desktop.variant="{variant}"')
    told = [
        one["fix"] for one in as_json("--preset", "desktop", sets=sets)["missing"] if one["name"] == "desktop image"
    ]
    wanted = "--set desktop.variant=full, after `dartsim desktop build --variant full --host ssh://far`"
    assert told == [wanted] * (variant == "skeleton")


def test_hosts_that_do_not_answer_are_missing():
    sets = ('desktop.hosts.far.url="tcp://127.0.0.1:1"', 'desktop.hosts.far.address="127.0.0.1"')
    found = as_json("--preset", "desktop", sets=sets)
    (missing,) = [one for one in found["missing"] if one["name"] == "host far"]
    assert missing["found"] == "no Docker engine answers at tcp://127.0.0.1:1 ([Errno 111] Connection refused)"
    assert "is that machine up" in missing["fix"]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (('vllm.addresses=["http://a:1"]',), "make 1 engines"),
        (('vllm.python="python"', "vllm.gpus=[0]"), "make 1 engines"),
    ],
)
def test_what_a_run_would_refuse_is_refused(sets, message):
    failed = dry_run(*VLLM, sets=sets)
    assert isinstance(failed.exception, ConfigError)
    assert message in str(failed.exception)


def test_an_interpreter_that_nobody_named_is_missing_and_no_error():
    found = as_json(*VLLM)
    assert found["engines"]["processes"][0]["command"][0] == "VLLM_PYTHON"
    assert "vLLM's interpreter" in [one["name"] for one in found["missing"]]
    said = dry_run(*VLLM)
    assert said.exit_code == 0, said.output
    assert "DARTSIM_VLLM_PYTHON" in said.stdout


FAMILIES = ("osworld", "osworld-dartsim")
OSWORLD = [f"{family}-{gpus}gpu" for family in FAMILIES for gpus in (1, 8, 16)]


@pytest.mark.parametrize("name", OSWORLD)
def test_a_real_run_is_told_on_a_machine_that_has_nothing_of_it(name):
    found = as_json("--preset", name)
    missing = {one["name"] for one in found["missing"]}
    assert {"model", "tasks"} <= missing
    assert ("vLLM's interpreter" in missing) == (not name.endswith("16gpu"))
    container = found["desktops"]["container"]
    assert container["image"] == "happysixd/osworld-docker"
    assert container["volumes"] == {"/data/Ubuntu.qcow2": "/System.qcow2:ro"}
    assert container["devices"] == ["/dev/kvm"]
    if "processes" in found["learner"]:  # Ray starts the others
        ranks = found["learner"]["processes"][0]
        assert f"--nproc-per-node={len(ranks['environment']['CUDA_VISIBLE_DEVICES'].split(','))}" in ranks["command"]
    desktops = {"osworld-16gpu": 180, "osworld-dartsim-16gpu": 80}.get(name, 38)
    assert sum(host["desktops"] for host in found["desktops"]["hosts"]) == desktops
    said = dry_run("--preset", name)
    assert said.exit_code == 0, said.output
    assert "missing on this machine" in said.stdout
    assert ("torch.distributed.run" in said.stdout) == ("processes" in found["learner"])


def test_engines_of_another_machine_are_told_with_their_command():
    there = as_json("--preset", "osworld-16gpu")["engines"]["start_there"]
    assert [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in there] == list("01234567")
    last = there[7]["command"]
    assert last[last.index("--port") + 1] == "8007"
    assert last[last.index("--model") + 1] == "models/UI-TARS-1.5-7B"


def test_two_machines_that_do_everything_are_told_what_to_start():
    """The guide's recipe: each has an engine on its GPU 0, seven ranks, and half of the desktops."""
    found = as_json("--preset", "osworld-dartsim-16gpu")
    assert [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in found["engines"]["start_there"]] == ["0", "0"]
    assert "on Ray (gpu-1:6379), actors: 14" in found["learner"]["what"]
    assert [host["desktops"] for host in found["desktops"]["hosts"]] == [40, 40]
    assert len(found["memory"]["gpus"]) == 16


def test_parts_that_do_not_fit_are_refused():
    failed = dry_run("--preset", "osworld-8gpu", sets=("trainer.fsdp.gpus=[0,1,2,3,4,5]",))
    assert isinstance(failed.exception, ConfigError)
    assert "would hold engine-0" in str(failed.exception)


def test_the_twin_of_a_real_configuration_is_virtual():
    found = as_json("--preset", "osworld-8gpu", "--twin")
    assert found["clock"] == "virtual"
    assert found["engines"] == {"what": "2 modeled"}
    assert found["memory"] is None


def test_containers_are_told_by_image_ports_and_limits():
    sets = ('desktop.variant="full"', "desktop.memory_mib=777", 'desktop.hosts.a.url="ssh://a"')
    desktops = as_json("--preset", "desktop", sets=sets)["desktops"]
    assert desktops["container"]["ports"] == {"server": 5000}
    assert desktops["container"]["limits"]["memory_mib"] == 777
    assert desktops["addresses"] == ["ssh://a: at most 64, ports on 127.0.0.1"]


def test_packages_that_a_desktop_image_needs_are_told_and_do_not_stop_the_answer(monkeypatch):
    monkeypatch.setattr("dartsim.real.desktop.skeleton.missing_packages", lambda **_: ["xterm", "xvfb"])
    told = as_json("--preset", "desktop")
    assert told["desktops"]["container"]["image"] == "IMAGE"
    (image,) = (one for one in told["missing"] if one["name"] == "desktop image")
    assert "xterm, xvfb are missing" in image["found"]
    assert "apt-get install" in image["fix"]
    named = as_json("--preset", "desktop", sets=('desktop.image="mine:1"',))
    assert named["desktops"]["container"]["image"] == "mine:1"
    assert "desktop image" not in {one["name"] for one in named["missing"]}


def test_a_run_whose_ranks_cannot_hold_the_model_never_starts():
    pytest.importorskip("docker")
    pytest.importorskip("httpx")
    sets = ("trainer.fsdp.ranks=2", "trainer.fsdp.gpus=[6,7]")
    words = [word for one in sets for word in ("--set", one)]
    failed = CliRunner().invoke(app, ["run", "--preset", "osworld-8gpu", *words])
    assert isinstance(failed.exception, ConfigError)
    assert "trainer.fsdp.ranks = 4 would fit" in str(failed.exception)


BARE = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # an import of it now raises ModuleNotFoundError
from dartsim.cli.app import app
for arguments in {runs!r}:
    app(["run", *arguments, "--dry-run", "--json", "-"], standalone_mode=False)
"""
EXTRAS = (
    "anyio", "cssselect", "docker", "httpx", "lxml", "openpyxl", "optuna", "peft", "PIL", "ray",
    "safetensors", "torch", "transformers", "vllm",
)  # fmt: skip


def test_a_bare_machine_tells_every_real_preset():
    real = ["desktop", *OSWORLD]
    runs = [list(VLLM), *(["--preset", name] for name in real), ["--preset", "osworld-8gpu", "--twin"]]
    program = BARE.format(blocked=EXTRAS, runs=runs)
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text, told, decoder = done.stdout.strip(), [], json.JSONDecoder()
    while text:
        found, end = decoder.raw_decode(text)
        told.append(found)
        text = text[end:].lstrip()
    assert [one["preset"] for one in told] == ["tiny", *real, "osworld-8gpu"]
    for one in told[1:-1]:
        assert one["desktops"]["container"]["image"]
    assert "engine" in {missing["name"] for missing in told[1]["missing"]}  # the package `docker` is missing


def test_every_task_that_will_not_run_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "examples/os").mkdir(parents=True)
    for name in ("a", "b"):
        spec = {"id": name, "instruction": "do it", "evaluator": {"func": "infeasible"}}
        spec["config"] = [{"type": "login", "parameters": {}}] if name == "b" else []
        (tmp_path / f"examples/os/{name}.json").write_text(json.dumps(spec))
    (tmp_path / "small.json").write_text(json.dumps({"os": ["a", "b", "c"]}))
    sets = (f"tasks.folder={tmp_path}", "tasks.list_name=small")
    found = as_json("--preset", "osworld-8gpu", sets=sets)
    assert (found["tasks"]["num_run"], found["tasks"]["num_listed"]) == (1, 3)
    assert set(found["tasks"]["problems"]) == {"os/b", "os/c"}
    assert "2 of 3 cannot run here" in next(one["found"] for one in found["missing"] if one["name"] == "tasks")
    said = dry_run("--preset", "osworld-8gpu", sets=sets)
    assert said.exit_code == 0, said.output
    assert "small: 1 of 3 will run; scored by our own metrics" in said.stdout
    assert "will not run: os/b: step 1 of 1 (login) is not supported" in said.stdout
    assert "will not run: os/c: it has no file" in said.stdout
