"""The headline experiment in small, and its recorded figures against what is claimed of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.clusters import Cluster, mean_figures, run_cluster
from experiments.headline import FIGURES, PRESETS, PUBLISHED, gpu_definitions
from experiments.other_runs import PREDICTIONS
from experiments.study import recorded

BAND = {"dart": 0.05, "coupled": 0.08}
"""Allowed distance from the published figures."""

UNDEFINED = ("coupled", "gpu_utilization")
"""Published without a definition; ours is given under each possible one."""


def test_recorded_figures_meet_the_published_ones():
    figures = recorded("headline")
    for preset, published in PUBLISHED.items():
        for name, known in published.items():
            if known is not None and (preset, name) != UNDEFINED:
                assert figures[preset][name] == pytest.approx(known, rel=BAND[preset]), (preset, name)
    assert figures["dart"]["max_staleness"] == 1
    assert figures["coupled"]["max_staleness"] == 0


def test_recorded_figures_say_what_made_them():
    figures = recorded("headline")
    assert {"seeds", "config", "commit", "versions", "machine", "published", "other_runs"} <= set(figures)
    assert all({"name", "figure", "measured", "predicted"} <= set(entry) for entry in figures["other_runs"])
    assert len(figures["other_runs"]) == len(PREDICTIONS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_small_run_gives_the_recorded_picture(name: str):
    """Three hours of one seed lie near the recorded means of three days."""
    found = run_cluster(Cluster(PRESETS[name], 3.0))
    known = recorded("headline")[name]
    for figure in ("env_utilization", "gpu_utilization", "trajectories_per_minute"):
        assert found[figure] == pytest.approx(known[figure], rel=0.2), figure
    assert found["event_hash"]


@pytest.mark.parametrize("name", PRESETS)
def test_the_run_has_the_settings_that_were_recorded(name: str):
    """Presets may learn new settings, and be renamed; what the recorded run was made with stays."""
    known = recorded("headline")["config"][name]
    resolved = Cluster(PRESETS[name], known["run"]["hours"]).config.model_dump(mode="json")
    assert differing(known, resolved) <= {"preset"}


def differing(known: Any, resolved: Any, place: str = "") -> set[str]:
    """Return the settings, by dotted name, in which a recorded configuration differs where both have one."""
    if not isinstance(known, dict):
        return set() if known == resolved else {place}
    return {
        found
        for key, value in known.items()
        if key in resolved
        for found in differing(value, resolved[key], f"{place}.{key}".lstrip("."))
    }


def test_definitions_of_gpu_utilization_are_ordered():
    run = run_cluster(Cluster("coupled", 2.0))
    definitions = gpu_definitions([run])
    assert definitions["all_time"] < definitions["rollout_phase"] < definitions["hybrid_training_counts_full"]


def test_means_take_the_largest_of_a_maximum():
    assert mean_figures([{"a": 1.0, "b_max": 1}, {"a": 3.0, "b_max": 2}], ("a", "b_max")) == {
        "a": 2.0,
        "b_max": 2,
    }


def test_the_experiment_prints_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The whole command on a toy: two and a half hours, one prediction."""
    from experiments import headline, other_runs

    monkeypatch.setattr(other_runs, "PREDICTIONS", PREDICTIONS[:1])
    short = {preset: Cluster(preset, 2.5) for preset in PRESETS.values()}
    monkeypatch.setattr(headline, "Cluster", lambda preset, hours, seed=0: short[preset])
    monkeypatch.setattr(headline, "run_clusters", lambda clusters, options, what: [run_cluster(c) for c in clusters])
    monkeypatch.setattr(other_runs, "run_clusters", lambda clusters, options, what: [run_cluster(c) for c in clusters])
    target = tmp_path / "f.json"
    headline.STUDY.run(["--quick", "--json", str(target)])
    figures = json.loads(target.read_text())
    assert set(figures["dart"]) >= {*FIGURES, "max_staleness"}
