"""The presets of DART beside each other: their recorded figures, and the experiment in small."""

from __future__ import annotations

import json

from experiments import presets
from experiments.clusters import Cluster, run_cluster
from experiments.presets import FIGURES, PRESETS
from experiments.study import recorded


def test_the_measured_preset_is_the_recorded_headline():
    measured, headline = recorded("presets")["presets"]["dart-measured"], recorded("headline")["dart"]
    assert measured["event_hashes"] == headline["event_hashes"]
    assert measured["trained_turns_per_minute"] == headline["trained_turns_per_minute"]


def test_the_paper_s_curation_makes_attempts_shorter():
    figures = recorded("presets")["presets"]
    assert figures["dart"]["turns_per_trajectory"] < figures["dart-released"]["turns_per_trajectory"]


def test_the_experiment_prints_and_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(presets, "Cluster", lambda preset, hours, seed=0: Cluster(preset, 1.5, seed))
    monkeypatch.setattr(presets, "run_clusters", lambda clusters, options, what: [run_cluster(c) for c in clusters])
    target = tmp_path / "f.json"
    presets.STUDY.run(["--quick", "--json", str(target)])
    figures = json.loads(target.read_text())
    assert set(figures["presets"]) == set(PRESETS) == set(figures["config"])
    assert all(set(found) >= set(FIGURES) for found in figures["presets"].values())
