"""``dartsim config``: a scheduler as TOML, and what can be listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dartsim.config import load, presets
from dartsim.config.load import describe
from dartsim.sim.faults import KINDS


def test_a_configuration_is_shown_with_all_that_a_run_takes(dartsim, capsys):
    assert dartsim("config", "areal-eta4", "--on", "osworld", "--profile", "dart", "--faults", "calm") == 0
    shown = capsys.readouterr().out
    assert presets()["areal-eta4"]["about"]["source"] in shown
    Path("shown.toml").write_text(shown)
    config = load(Path("shown.toml"))
    assert dartsim("config", "shown.toml", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == config.model_dump(mode="json")
    assert (config.workload, config.cluster.env.profile, config.cluster.faults.profile) == ("osworld", "dart", "calm")


def listed(dartsim, capsys, *arguments):
    """Return a list as JSON, and as it is printed."""
    assert dartsim("config", *arguments) == 0
    printed = capsys.readouterr().out
    assert dartsim("config", *arguments, "--json", "-") == 0
    return json.loads(capsys.readouterr().out), printed


def test_presets_settings_profiles_and_faults_are_listed(dartsim, capsys):
    found, printed = listed(dartsim, capsys)
    assert list(found) == list(presets())
    assert all(name in printed for name in found)
    found, _ = listed(dartsim, capsys, "--list", "settings")
    assert found["properties"].keys() >= {setting.key.partition(".")[0] for setting in describe()}
    found, printed = listed(dartsim, capsys, "--list", "profiles")
    assert all(name in printed for name in (*found["desktops"], *found["gpus"]))
    found, printed = listed(dartsim, capsys, "--list", "faults")
    assert found["profiles"] == ["none", "calm", "osworld", "hostile"]
    assert [kind["name"] for kind in found["kinds"]] == list(KINDS)
    assert all(name in printed for name in KINDS)


def test_the_schema_has_every_kind_of_distribution(dartsim, capsys):
    found, printed = listed(dartsim, capsys, "--list", "settings")
    kinds = {row["kind"]: row["forms"] for row in found["distributions"]}
    assert "lognormal" in printed
    assert set(kinds["lognormal"][1]) == {"median_seconds", "sigma"}


@pytest.mark.parametrize("arguments", [("dart", "--list", "faults"), ("--on", "osworld"), ("dartt",)])
def test_a_wrong_request_is_refused(dartsim, arguments):
    assert dartsim("config", *arguments) == 2


SMALL = ("--preset", "dart", "--hours", "2", "--set", "rollout.num_envs=8", "--set", "rollout.num_workers=2")


def test_a_profile_of_faults_strikes_a_run(dartsim):
    assert dartsim("run", *SMALL, "--faults", "hostile", "--out", "run") == 0
    assert set(json.loads(Path("run/summary.json").read_text())["faults"]) & set(KINDS)


def test_a_kind_of_fault_that_does_not_exist_is_refused(dartsim, capsys):
    assert dartsim("run", *SMALL, "--set", "cluster.faults.kinds.worker_crsh.per_hour=1") == 2
    assert "did you mean 'worker_crash'?" in " ".join(capsys.readouterr().err.split())
