"""What a change of weights costs, on stand-in servers: nobody loses a turn, and only restarts kill requests."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("torch", reason="needs the extra `train`")
pytest.importorskip("transformers", reason="needs the extra `train`")
pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.observe import DesktopState, EngineState, Recorder
from experiments import sync_cost
from experiments.sync_cost import PLANS, figures_of, mode_cost, model_folder


def test_seconds_are_shared_among_changes_and_desktops():
    now = [0.0]
    recorder = Recorder(lambda: now[0], num_envs=sync_cost.DESKTOPS, num_engines=sync_cost.ENGINES)
    recorder.engines.tracks[0].enter(EngineState.LOADING)
    recorder.desktops.tracks[0].enter(DesktopState.SYNC_WAIT)
    now[0] = 8.0
    recorder.engines.tracks[0].enter(EngineState.IDLE)
    recorder.desktops.tracks[0].enter(DesktopState.GENERATING)
    found = figures_of(recorder, [[1.0, None], [3.0]], [4.0])
    assert found["away_seconds_per_change"] == 4.0  # 8 s, one publication, two engines
    assert found["stopped_seconds_per_publication"] == 1.0  # one of eight desktops, 8 s
    assert (found["turns"], found["lost_requests"], found["turn_seconds_longest"]) == (2, 1, 3.0)


@pytest.mark.soak
@pytest.mark.parametrize("mode", sorted(PLANS))
def test_no_turn_is_lost_in_any_mode(mode: str):
    with model_folder() as model:
        found = asyncio.run(mode_cost("standin", PLANS[mode], model, 1, 0.5))
    assert found["lost_requests"] == 0
    assert (found["killed_requests"] > 0) == (mode == "restart")
