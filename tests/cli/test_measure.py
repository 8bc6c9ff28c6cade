"""``dartsim measure``: from a real run's folder to a profile, a twin, and a comparison."""

from __future__ import annotations

import json
import tomllib

import pytest
from typer.testing import CliRunner

from dartsim.cli.app import app
from dartsim.config import load
from dartsim.run.execute import execute

REAL = ("backend.desktops=mock", "backend.workers=local", "backend.learner=local")
SMALL = ("run.hours=0.0008", "tasks.count=64", "tasks.held_out=8", "rollout.num_envs=4", "run.target_success=none")
FAST = ("curation.batch.min_groups=1", "curation.batch.max_groups=1", "curation.groups.drop_all_failed=false")


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    """Folder of a run of three seconds by the machine's clock."""
    pytest.importorskip("torch", reason="needs the extra `train`")
    folder = tmp_path_factory.mktemp("measure") / "real"
    execute(load(preset_name="tiny", overrides=[*REAL, *SMALL, *FAST]), folder)
    return folder


def test_a_real_run_becomes_a_profile_and_a_twin_that_predicts_it(real_run, tmp_path):
    figures = tmp_path / "figures.json"
    done = invoke("measure", real_run, "--check", "--json", figures)
    assert done.exit_code == 0, done.output
    for text in ("worker/batch", "learner/update", "trajectories per minute", "predicted"):
        assert text in done.output
    found = json.loads(figures.read_text())
    assert set(found["measured"]) == set(found["predicted"]) == set(found["relative_error"])
    assert found["measured"]["generated_turns_per_minute"] > 0
    assert found["predicted"]["generated_turns_per_minute"] > 0
    profile = tomllib.loads((real_run / "profile.toml").read_text())
    assert profile["cluster"] == found["settings"]["cluster"]
    assert profile["about"]["counts"]["worker/batch"] > 0
    assert load(real_run / "twin.toml").backend.virtual
    assert (real_run / "twin" / "report.html").exists()


def test_a_profile_is_written_where_asked_and_can_be_run(real_run, tmp_path):
    profile = tmp_path / "here.toml"
    done = invoke("measure", real_run, "--out", profile, "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["profile"] == str(profile)
    small = ("--set", "rollout.num_envs=2", "--hours", "0.01", "--set", "rollout.max_turns=2")
    done = invoke("run", "--preset", "dart", "--profile", profile, *small, "--out", tmp_path / "run", "--json", "-")
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "run" / "config.toml").cluster.engine.model == "batch"


def test_a_simulated_run_is_refused(tmp_path):
    execute(load(preset_name="dart", overrides=["run.hours=0.01"]), tmp_path / "run")
    done = invoke("measure", tmp_path / "run")
    assert done.exit_code != 0
    assert "only a run by the machine's clock writes it" in str(done.exception)


def test_help_has_examples():
    assert "dartsim measure runs/real --check" in invoke("measure", "--help").output
