"""The recorded window, and its stays as written and read."""

from __future__ import annotations

import numpy as np
import pytest

from dartsim.observe import DesktopState, Recorder
from dartsim.observe.recorder_state import restore_state, save_state
from dartsim.observe.recording import SEGMENT_FIELDS, SegmentLog, read_segments, with_open_stays
from dartsim.observe.window import recorded_window


@pytest.fixture(scope="module")
def recorder(make_recorder) -> Recorder:
    return make_recorder(seed=2, hours=3.0)


@pytest.fixture(scope="module")
def truncated(make_recorder) -> Recorder:
    return make_recorder(seed=2, hours=3.0, max_segments=600)


def test_a_run_that_fits_is_recorded_from_its_start(recorder):
    window = recorded_window(recorder)
    assert window is not None
    assert (window.start, window.end) == (0.0, recorder.snapshots[-1].time)


@pytest.mark.parametrize("name", ["recorder", "truncated"])
def test_in_the_window_no_part_has_a_gap(name, request):
    recorder = request.getfixturevalue(name)
    window = recorded_window(recorder)
    assert window is not None
    assert window.end == recorder.snapshots[-1].time
    assert window.sizes == {"desktops": 8, "engines": 2, "trainer": 1}
    for name, size in window.sizes.items():
        for stays in (window.stays[name][window.stays[name]["component"] == member] for member in range(size)):
            assert (stays["start"][0], stays["end"][-1]) == (window.start, window.end)
            assert (stays["start"][1:] == stays["end"][:-1]).all()


def test_a_truncated_window_starts_where_everything_is_known(recorder, truncated):
    whole, newest = recorded_window(recorder), recorded_window(truncated)
    assert whole is not None
    assert newest is not None
    assert 0.0 < newest.start < newest.end
    # It is the same run, seen from later on.
    clipped = whole.clipped(newest.start)
    assert (newest.start, newest.end, newest.sizes) == (clipped.start, clipped.end, clipped.sizes)
    for name, stays in newest.stays.items():
        assert sorted(stays.tolist()) == sorted(clipped.stays[name].tolist())


def test_durations_add_up_to_the_totals_of_the_window(recorder):
    window = recorded_window(recorder)
    assert window is not None
    last = recorder.snapshots[-1]
    for name, totals in (("desktops", last.desktops), ("engines", last.engines), ("trainer", last.trainer)):
        for state, total in enumerate(totals):
            stays = window.stays[name][window.stays[name]["state"] == state]
            assert (stays["end"] - stays["start"]).sum() == pytest.approx(total, abs=1e-6)


def test_without_segments_there_is_no_window(make_recorder):
    recorder = make_recorder(hours=0.2, max_segments=0)
    assert recorded_window(recorder) is None


def made(**options):
    now = [0.0]
    recorder = Recorder(lambda: now[0], num_envs=2, num_engines=1, **options)
    return recorder, now


def acts(recorder, now, part, state, until):
    now[0] = until
    recorder.desktops.tracks[part].enter(state)


def test_each_segment_is_written_once_and_in_order(tmp_path):
    recorder, now = made(max_segments=100)
    log = SegmentLog(tmp_path / "segments.bin", spacing_seconds=1.0)
    recorder.start([log])
    acts(recorder, now, 0, DesktopState.ACTING, 1.0)
    log.state_saved()
    log.state_saved()
    acts(recorder, now, 0, DesktopState.SETUP, 2.0)
    acts(recorder, now, 1, DesktopState.ACTING, 2.0)
    log.state_saved()
    assert read_segments(tmp_path / "segments.bin", until=9.0)[0].tolist() == list(recorder.desktops.segments)


def test_a_row_that_was_cut_off_and_time_that_is_played_again_are_left_out(tmp_path):
    recorder, now = made(max_segments=100)
    path = tmp_path / "segments.bin"
    log = SegmentLog(path, spacing_seconds=1.0)
    recorder.start([log])
    for until in (1.0, 2.0, 3.0):
        acts(recorder, now, 0, DesktopState.ACTING if until == 2.0 else DesktopState.SETUP, until)
    log.state_saved()
    path.write_bytes(path.read_bytes()[:-1])
    assert read_segments(path, until=9.0)[0]["end"].tolist() == [1.0, 2.0]
    assert read_segments(path, until=1.5)[0]["end"].tolist() == [1.0, 1.5]
    assert read_segments(tmp_path / "none.bin", until=9.0) == []


def test_the_file_keeps_the_newest_as_memory_does(tmp_path):
    recorder, now = made(max_segments=4)
    path = tmp_path / "segments.bin"
    log = SegmentLog(path, spacing_seconds=1.0)
    recorder.start([log])
    for index in range(200):
        acts(recorder, now, 0, DesktopState.ACTING if index % 2 else DesktopState.SETUP, index + 1.0)
        log.state_saved()
        assert path.stat().st_size <= 2 * 3 * 4 * np.dtype(list(SEGMENT_FIELDS)).itemsize
    assert read_segments(path, until=500.0)[0][-4:].tolist() == list(recorder.desktops.segments)


def test_a_resumed_timeline_continues_without_gaps(tmp_path):
    recorder, now = made(max_segments=100)
    path = tmp_path / "segments.bin"
    recorder.start([SegmentLog(path, spacing_seconds=1.0)])
    acts(recorder, now, 0, DesktopState.ACTING, 3.0)
    now[0] = 5.0
    state = save_state(recorder)
    present = [{member: (state, None) for member, state in enumerate(states)} for states in state["states"]]
    past = [own.tolist() for own in with_open_stays(read_segments(path, until=5.0), present, 5.0)]
    again, now = made(max_segments=100)
    now[0] = 5.0
    again.started = 5.0
    restore_state(again, state, segments=past)
    assert again.started == 0.0
    desktops = sorted(again.desktops.segments, key=lambda one: (one[0], one[2]))
    assert [(part, start, end) for part, _, start, end in desktops] == [(0, 0.0, 3.0), (0, 3.0, 5.0), (1, 0.0, 5.0)]
    assert desktops[1][1] == DesktopState.ACTING
