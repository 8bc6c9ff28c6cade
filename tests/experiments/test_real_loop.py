"""The experiment on the whole loop: its configurations, its refusal without vLLM, and one small run on a stand-in."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from dartsim.config import Config
from dartsim.config.load import from_tree
from dartsim.config.settings import merge
from dartsim.lab.virtual import COMPARED
from experiments import real_loop

STANDIN = f"PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m dartsim.real.stand_ins.engine"


@pytest.mark.parametrize("quick", [True, False])
def test_real_runs_end_by_time_alone(quick):
    config = real_loop.config("vllm", 7, quick=quick, minutes=3.0, changes=["rollout.num_workers=2"])
    assert (config.run.updates, config.run.target_success, config.run.seed) == (None, None, 7)
    assert config.run.hours == pytest.approx(0.05)
    assert (config.backend.workers, config.rollout.num_workers) == ("vllm", 2)
    assert (config.rollout.sync.mode, config.rollout.sync.workers_at_a_time) == ("keep", 1)
    assert config.curation.store == "sqlite"


def test_it_is_refused_without_an_interpreter_that_has_vllm(monkeypatch, capsys):
    pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("aiohttp", reason="needs the extra `real`")
    monkeypatch.delenv("DARTSIM_VLLM_PYTHON", raising=False)
    with pytest.raises(SystemExit) as ended:
        real_loop.STUDY.run(["--quick"])
    assert ended.value.code == 2
    assert "set DARTSIM_VLLM_PYTHON" in capsys.readouterr().err


def test_requests_are_failed_or_lost():
    summary = {"faults": {"request_worker": 3, "request_restarted": 1, "load": 9}, "endings": {"worker_fault": 2}}
    assert real_loop.requests(summary) == {"failed_requests": 4, "lost_requests": 2}
    assert real_loop.requests({"faults": {}, "endings": {}}) == {"failed_requests": 0, "lost_requests": 0}


def test_a_figure_is_judged_by_the_spread_of_the_twins():
    twins = [{"a": 1.0 + number / 10.0, "b": 5.0 + number / 10.0, "c": None} for number in range(8)]
    found = real_loop.compare_with_twins({"a": 1.5, "b": 1.5, "c": 1.0}, twins)
    assert found["outside"] == ["b"]
    assert found["predicted"] == {"a": pytest.approx(1.35), "b": pytest.approx(5.35), "c": None}
    assert found["predicted_interval"]["c"] is None
    low, high = real_loop.interval([0.0, 2.0]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((1.0 - 22.0069, 1.0 + 22.0069), rel=1e-4), "t of one degree of freedom"


def small_run(monkeypatch, arguments: list[str]) -> dict:
    """Run the command with few desktops, tasks and groups, for three updates: a busy machine takes longer for them."""
    full = real_loop.config

    def small(backend: str, seed: int, **options) -> Config:
        changes = {"run": {"updates": 3}, "tasks": {"count": 64, "held_out": 8}, "rollout": {"num_envs": 4}}
        batch = {"groups": {"drop_all_failed": False, "drop_equal": False}, "batch": {"min_groups": 1, "max_groups": 1}}
        return from_tree(merge(full(backend, seed, **options).model_dump(), {**changes, "curation": batch}))

    monkeypatch.setattr(real_loop, "config", small)
    return real_loop.STUDY.run(arguments)


def test_a_small_run_has_the_figures_of_the_list(monkeypatch, tmp_path):
    pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("httpx", reason="needs the extra `real`")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nshift 2\nexec env {STANDIN} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("DARTSIM_VLLM_PYTHON", str(script))
    figures = small_run(monkeypatch, ["--quick", "--minutes", "3"])
    for key in ("measured", "predicted", "relative_error"):
        assert set(figures[key]) == set(COMPARED)
    assert set(figures["outside"]) <= set(COMPARED)
    assert figures["measured"]["trajectories_per_minute"] > 0
    assert (figures["failed_requests"], figures["lost_requests"], figures["config"]["engines"]) == (0, 0, 1)
    assert figures["sync_seconds_p50"] > 0
    assert {"success_rate_first", "success_rate_last", "seeds", "commit", "machine", "config"} <= set(figures)
