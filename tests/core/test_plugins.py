"""Plug-ins: modules that register components, named by the caller."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError

PROJECT = Path(__file__).resolve().parents[2]

MODULE = """
import dartsim
from dartsim import ComponentSection
from pydantic import Field


@dartsim.register("router", "last")
class Last(dartsim.Router):
    "The worker of the highest number."

    def __init__(self, parameters):
        super().__init__()
        self.workers = []

    def add(self, worker):
        super().add(worker)
        self.workers.append(worker)

    def pick(self, last, group=0):
        return max((worker for worker in self.workers if worker.routable), key=lambda worker: worker.index)


@dartsim.register("policy", "patient")
class Patient(dartsim.Policy):
    "Waits a number of turns, then says that it is done."

    class Parameters(ComponentSection):
        "How patient."

        turns: int = Field(3, ge=0, description="Turns that it waits.")

    def act(self, request):
        return "WAIT" if request.turn < self.parameters.turns else "DONE"


@dartsim.register("fault", "cable_pulled")
class CablePulled(dartsim.Fault):
    "A cable is pulled."

    place, cause, lasts = "desktop.step", "vm_refused", 7.0
"""

SHORT = ("run.hours=0.5", "rollout.num_envs=4", "rollout.num_workers=2")


@pytest.fixture
def install(tmp_path):
    """Write a module into the test's folder; return a function that runs Python there."""

    def installed(module: str, *, named: bool = True):
        (tmp_path / "ours.py").write_text(module)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PROJECT)])}
        environment["DARTSIM_PLUGINS"] = "ours" if named else ""

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, *arguments]
            return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

        return run

    return installed


PROGRAM = f"""
import json
from pathlib import Path

import dartsim
from dartsim.config import load, to_toml
from dartsim.observe.recorder import Listener
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.faults import as_data


workers = set()
used = Listener(attempt_ended=lambda trajectory: workers.update(turn.reply.worker for turn in trajectory.turns))


def runs(*settings):
    config = load("dart", overrides=[*{SHORT!r}, *settings])
    return config, run_prepared(prepare(config), instruments=[used]).recorder


said = {{}}
_, recorder = runs("rollout.routing.rule=last")
said["workers"] = sorted(workers)
_, recorder = runs("policy.agent.rule=patient", "policy.agent.turns=1")
said["turns"] = recorder.counts["trajectory_turns"] / recorder.counts["trajectories"]
said["rewards"] = recorder.counts["reward"]
config, recorder = runs("cluster.faults.kinds.cable_pulled.share=0.2")
said["pulled"] = recorder.counts["fault/cable_pulled"]
Path("saved.toml").write_text(to_toml(config))
said["same"] = load(Path("saved.toml")) == config
said["listed"] = "cable_pulled" in {{kind["name"] for kind in as_data()}}
print(json.dumps(said))
"""


def test_a_component_of_each_kind_works_in_a_simulated_run(install):
    done = install(MODULE)("-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["workers"] == [1]
    assert 1.8 < said["turns"] <= 2.0, "attempts at the end of the run may have one"
    assert said["rewards"] == 0.0
    assert said["pulled"] > 0
    assert said["same"], "a run directory's configuration is read again"
    assert said["listed"]


ROUTER = """
import dartsim


@dartsim.register("router", "least")
class Least(dartsim.Router):
    "The least loaded worker."

    def pick(self, last, group=0):
        return self.least_loaded()
"""


def test_a_run_names_its_plug_ins_and_none_is_imported_unasked(install, tmp_path):
    run = install(ROUTER, named=False)
    short, one = ("--on", "laptop", "--hours", "0.1", "--set", "rollout.routing.rule=least"), ("--processes", "1")
    made = run("-m", "dartsim", "run", "dart", "--plugin", "ours", *short, "--out", "made")
    assert made.returncode == 0, made.stderr
    asked = ("--plugin", "ours")
    done = run("-m", "dartsim", "run", "made", "--hours", "0.2", *asked)
    assert done.returncode == 0, done.stderr
    compared = ("compare", "made", "dart", *short[:4], "--seeds", "2", *one, "--fail-if", "env_utilization > 0")
    gate = run("-m", "dartsim", *compared, *asked)
    assert "dartsim run made/config.toml --plugin ours --on laptop --set run.hours=0.1 --seed 1" in gate.stderr
    (tmp_path / "ours.py").write_text("raise SystemExit('imported')")
    shown = run("-m", "dartsim", "show", "made")
    assert shown.returncode == 0, shown.stderr
    done = run("-m", "dartsim", *compared)
    assert (done.returncode, "If you trust this code, give --plugin ours" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("modules", ['"ours"', "[1]", '["ours.py/"]', '[""]'])
def test_modules_that_are_none_are_refused(tmp_path, modules):
    (tmp_path / "own.toml").write_text(f"plugin_modules = {modules}")
    with pytest.raises(ConfigError, match=r"own\.toml"):
        load(tmp_path / "own.toml")


def test_a_broken_plug_in_is_named(install):
    run = install("import nothing_of_this_name")
    done = run("-c", "import dartsim; dartsim.simulate('dart', overrides={'run.hours': 0.1})")
    assert "ConfigError: --plugin ours: No module named 'nothing_of_this_name'" in done.stderr
