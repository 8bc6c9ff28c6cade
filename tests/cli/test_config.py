"""``dartsim config``: a scheduler as TOML, and what can be listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dartsim.config import load, presets
from dartsim.config.settings import describe


def test_a_configuration_is_shown_with_all_that_a_run_takes(dartsim, capsys):
    assert (
        dartsim("config", "areal-eta4", "--on", "osworld", "--set", "cluster.env.profile=dart", "--faults", "calm") == 0
    )
    shown = capsys.readouterr().out
    assert presets()["areal-eta4"]["about"]["source"] in shown
    Path("shown.toml").write_text(shown)
    config = load(Path("shown.toml"))
    assert dartsim("config", "shown.toml", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == config.model_dump(mode="json")
    assert (config.rollout.num_envs, config.cluster.env.profile, config.cluster.faults.profile) == (64, "dart", "calm")


def listed(dartsim, capsys, *arguments):
    """Return a list as JSON, and as it is printed."""
    assert dartsim("config", *arguments) == 0
    printed = capsys.readouterr().out
    assert dartsim("config", *arguments, "--json", "-") == 0
    return json.loads(capsys.readouterr().out), printed


@pytest.mark.parametrize("what", ["settings", "profiles", "faults"])
def test_what_can_be_named_is_listed(dartsim, capsys, what):
    found, printed = listed(dartsim, capsys, "--list", what)
    names = {
        "settings": lambda: [setting.key for setting in describe()],
        "profiles": lambda: [*found["desktops"], *found["gpus"]],
        "faults": lambda: [kind["name"] for kind in found["kinds"]],
    }[what]()
    assert names
    assert all(name in printed for name in names)


@pytest.mark.parametrize("arguments", [("dart", "--list", "faults"), ("--on", "osworld"), ("dartt",)])
def test_a_wrong_request_is_refused(dartsim, arguments):
    assert dartsim("config", *arguments) == 2
