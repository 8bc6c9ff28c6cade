"""The experiment on the whole loop: its configurations, its refusal without vLLM, and one small run on a stand-in."""

from __future__ import annotations

import io
import json
import stat
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dartsim.config import Config
from dartsim.config.load import from_tree, merge
from dartsim.lab.virtual import COMPARED
from experiments import pages, real_loop, study

STANDIN = f"PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m dartsim.real.stand_ins.engine"


@pytest.mark.parametrize("quick", [True, False])
def test_real_runs_end_by_time_alone(quick):
    config = real_loop.config("vllm", 7, quick=quick, minutes=3.0, size=2)
    assert (config.run.updates, config.run.target_success, config.run.seed) == (None, None, 7)
    assert config.run.hours == pytest.approx(0.05)
    assert (config.backend.workers, config.rollout.num_workers) == ("vllm", 2)
    assert (config.rollout.sync.mode, config.rollout.sync.workers_at_a_time) == ("keep", 1)
    assert config.curation.store == "sqlite"


@pytest.mark.parametrize("backend", ["mock", "desktop"])
@pytest.mark.parametrize("quick", [True, False])
def test_runs_without_engines_end_by_time_alone(backend, quick):
    config = real_loop.config(backend, 3, quick=quick, size=6)
    assert (config.run.updates, config.run.target_success, config.run.seed) == (None, None, 3)
    assert (config.backend.desktops, config.backend.virtual, config.rollout.num_envs) == (backend, False, 6)
    minutes = real_loop.QUICK_MINUTES if quick else real_loop.MINUTES
    assert config.run.hours == pytest.approx(minutes[backend] / 60.0)
    assert real_loop.config("desktop", 3, quick=quick).rollout.num_envs == real_loop.DESKTOPS


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


def small_run(monkeypatch, arguments: list[str]) -> dict:
    """Run the command with few desktops, tasks and groups, for three updates: a busy machine takes longer for them."""
    full = real_loop.config

    def small(backend: str, seed: int, **options) -> Config:
        changes = {"run": {"updates": 3}, "tasks": {"count": 64, "held_out": 8}, "rollout": {"num_envs": 4}}
        batch = {"groups": {"drop_all_failed": False, "drop_equal": False}, "batch": {"min_groups": 1, "max_groups": 1}}
        return from_tree(merge(full(backend, seed, **options).model_dump(), {**changes, "curation": batch}))

    monkeypatch.setattr(real_loop, "config", small)
    return real_loop.STUDY.run(arguments)


def test_a_small_run_without_engines_has_the_same_figures(monkeypatch):
    pytest.importorskip("torch", reason="needs the extra `train`")
    figures = small_run(monkeypatch, ["--quick", "--backend", "mock", "--minutes", "3"])
    for key in ("measured", "predicted", "relative_error"):
        assert set(figures[key]) == set(COMPARED)
    assert figures["backend"] == "mock"
    assert figures["measured"]["trajectories_per_minute"] > 0
    assert figures["runs"][0]["sync_seconds_p50"] > 0
    assert "4 desktops, 3 minutes" in real_loop.loop_table(figures)


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
    assert figures["measured"]["trajectories_per_minute"] > 0
    assert (figures["failed_requests"], figures["lost_requests"], figures["engines"]) == (0, 0, 1)
    assert figures["sync_seconds_p50"] > 0
    assert {"success_rate_first", "success_rate_last", "seeds", "commit", "machine", "config"} <= set(figures)
    shown = Console(file=io.StringIO(), width=120)
    real_loop.STUDY.show(figures, shown)
    assert "trajectories per minute" in shown.file.getvalue()
    quoted = real_loop.loop_table(figures)
    assert "| trajectories per minute | " in quoted
    assert "Engines: 1; 3 minutes, seeds 0: success on held-out tasks" in quoted
    assert "0 were lost" in quoted


def test_a_page_is_filled_once_there_is_a_record(monkeypatch, tmp_path):
    marked = "<!-- figures: real-loop-found -->\nold\n<!-- end -->"
    assert marked.split("\n")[0] in (pages.ROOT / "docs" / "desktops-and-engines.md").read_text(encoding="utf-8")
    monkeypatch.setattr(study, "RECORDED", tmp_path)
    assert pages.render(marked) == marked.replace("old", "Not recorded yet.")
    figures = {
        "measured": {"trained_turns_per_minute": 100.0, "env_utilization": None},
        "predicted": {"trained_turns_per_minute": 104.0, "env_utilization": 0.5},
        "relative_error": {"trained_turns_per_minute": 0.04, "env_utilization": None},
        "engines": 2, "config": {"run": {"hours": 0.5}}, "seeds": [0], "load_average": 1.25, "commit": {"id": None},
        "success_rate_first": 0.1, "success_rate_last": 0.9, "sync_seconds_p50": 0.5,
        "failed_requests": 3, "lost_requests": 0,
    }  # fmt: skip
    (tmp_path / "real_loop.json").write_text(json.dumps(figures))
    filled = pages.render(marked)
    assert "largest error of a figure 4.0% (trained turns per minute)" in filled
    assert "10.0% → 90.0%" in filled
    table = real_loop.loop_table(figures)
    assert "| trained turns per minute | 100 | 104 | +4.0% |" in table
    assert "| env utilization | – | 0.5 | – |" in table
