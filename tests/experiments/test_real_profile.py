"""The experiment on profiles of real runs: its configurations, and one small run of it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dartsim.config import Config
from dartsim.config.load import from_tree, merge
from dartsim.lab.virtual import COMPARED
from experiments import real_profile


@pytest.mark.parametrize("backend", ["mock", "desktop"])
@pytest.mark.parametrize("quick", [True, False])
def test_real_runs_end_by_time_alone(backend, quick):
    config = real_profile.config(backend, 6, 3, quick)
    assert (config.run.updates, config.run.target_success, config.run.seed) == (None, None, 3)
    assert (config.backend.desktops, config.backend.virtual, config.rollout.num_envs) == (backend, False, 6)
    minutes = real_profile.QUICK_MINUTES if quick else real_profile.MINUTES
    assert config.run.hours == pytest.approx(minutes[backend] / 60.0)


def test_a_small_run_has_the_figures_of_the_list(monkeypatch):
    pytest.importorskip("torch", reason="needs the extra `train`")
    full = real_profile.config

    def small(backend: str, num_envs: int | None, seed: int, quick: bool, minutes: float | None) -> Config:
        changes = {"run": {"hours": 0.0008}, "tasks": {"count": 64, "held_out": 8}, "rollout": {"num_envs": 4}}
        batch = {"groups": {"drop_all_failed": False}, "batch": {"min_groups": 1, "max_groups": 1}}
        return from_tree(merge(full(backend, num_envs, seed, quick).model_dump(), {**changes, "curation": batch}))

    monkeypatch.setattr(real_profile, "config", small)
    figures = real_profile.main(["--quick"])
    for key in ("measured", "predicted", "relative_error"):
        assert set(figures[key]) == set(COMPARED)
    assert figures["measured"]["trajectories_per_minute"] > 0
    assert figures["runs"][0]["sync_seconds_p50"] > 0
    assert {"seeds", "commit", "versions", "machine", "config", "backend"} <= set(figures)
    shown = Console(file=io.StringIO(), width=100)
    real_profile.STUDY.show(figures, shown)
    assert "trajectories per minute" in shown.file.getvalue()
