"""The study of scoring: a small run with our own metrics, whose hostile answers forge nothing and write nowhere."""

from __future__ import annotations

import asyncio

import pytest

from dartsim.real.scoring.sandbox import ScoreLimits
from experiments import scoring, study


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
def test_hostile_answers_forge_nothing(monkeypatch):
    monkeypatch.setattr(scoring, "DESKTOPS", (4,))
    monkeypatch.setattr(scoring, "PACE_SECONDS", 0.1)
    monkeypatch.setattr(scoring, "LIMITS", ScoreLimits(metric_seconds=5.0, cpu_seconds=1))
    found = asyncio.run(scoring.measure_pool(None, rounds=2))
    assert (found["escaped"], found["forged"]) == (0, 0)
    assert found["hostile_cases"] == 3
    assert found["scores_per_second"]["4"] > 0.0
    assert found["p95_seconds"]["4"] > 0.0
    assert found["p95_paced_seconds"]["4"] > 0.0
    assert found["overhead_seconds_p50"] > 0.0
    assert found["longest_loop_pause_ms"] > 0.0
    recorded = found | {"commit": {"id": "0123456789abcdef"}}
    for table in scoring.STUDY.tables.values():
        assert "–" not in study.markdown(table(recorded))
