"""The figures of real desktops, without one."""

import pytest

pytest.importorskip("docker", reason="needs the extra `real`")
pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.observe import DesktopState, Recorder
from experiments.desktop import SKIPPED, STUDY
from experiments.desktop_work import gaps, lost_records, percentiles


def test_a_gap_is_from_a_score_to_the_next_set_up_of_the_same_slot():
    now = 0.0
    recorder = Recorder(lambda: now, num_envs=3, num_engines=1, max_segments=100)
    moves = [
        (1.0, 0, DesktopState.EVALUATING),
        (2.0, 0, DesktopState.CLOSING),
        (3.0, 1, DesktopState.SETUP),
        (4.0, 0, DesktopState.STARTING),
        (7.0, 0, DesktopState.SETUP),
        (8.0, 1, DesktopState.EVALUATING),
        (9.0, 0, DesktopState.CLOSING),
        (9.5, 1, DesktopState.SETUP),
        (9.75, 0, DesktopState.SETUP),
        (11.0, 1, DesktopState.OFF),
        (11.0, 0, DesktopState.OFF),
    ]
    for now, slot, state in moves:  # noqa: B007 - the recorder reads it
        recorder.desktops.tracks[slot].enter(state)
    assert gaps(recorder, num_envs=2) == [5.0, 0.0], "an attempt that was not scored has no gap after it"
    assert gaps(recorder, num_envs=1) == [5.0]


def test_percentiles_are_of_the_nearest_rank():
    assert percentiles([3.0]) == {"p50": 3.0, "p95": 3.0, "number": 1}
    assert percentiles([float(n) for n in range(100, 0, -1)]) == {"p50": 50.0, "p95": 95.0, "number": 100}


def test_a_record_is_lost_if_neither_a_row_nor_the_scheduler_has_it():
    scheduler = {"admitted": 4, "running": [["task", 3, 0, 0, 0, 3, 0]]}
    stored = {0: 1.0, 1: None, 2: 0.0}
    assert lost_records({0: 1.0, 1: None, 3: None}, stored, scheduler) == set()
    assert lost_records({0: 1.0, 2: 1.0}, stored, scheduler) == {2}, "the row has another reward"
    assert lost_records({}, {0: 1.0, 1: None}, scheduler) == {2}, "admitted, and nowhere"
    assert lost_records({4: 1.0}, stored, scheduler) == {4}, "told, and never written"
    assert lost_records({}, {}, {}) == set(), "killed before anything was written"


def test_without_an_engine_it_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    monkeypatch.setattr("sys.argv", ["desktop", "--quick"])
    with pytest.raises(SystemExit) as ended:
        STUDY.run()
    assert ended.value.code == SKIPPED
