"""The timeline as a file: what is written once, what a crash cuts off, what is kept."""

from dartsim.observe import DesktopState, Recorder
from dartsim.observe.recorder_state import restore_state, save_state
from dartsim.observe.segments import ROW, SegmentLog, filled, read_segments


def made(**options):
    now = [0.0]
    recorder = Recorder(lambda: now[0], num_envs=2, num_engines=1, **options)
    return recorder, now


def acts(recorder, now, part, state, until):
    now[0] = until
    recorder.desktops.tracks[part].enter(state)


def test_each_segment_is_written_once_and_in_order(tmp_path):
    recorder, now = made(max_segments=100)
    log = SegmentLog(tmp_path / "segments.bin")
    recorder.start([log])
    acts(recorder, now, 0, DesktopState.ACTING, 1.0)
    log.state_saved()
    log.state_saved()
    acts(recorder, now, 0, DesktopState.SETUP, 2.0)
    acts(recorder, now, 1, DesktopState.ACTING, 2.0)
    log.state_saved()
    assert read_segments(tmp_path / "segments.bin", until=9.0)[0] == list(recorder.desktops.segments)


def test_a_row_that_was_cut_off_and_time_that_is_played_again_are_left_out(tmp_path):
    recorder, now = made(max_segments=100)
    path = tmp_path / "segments.bin"
    log = SegmentLog(path)
    recorder.start([log])
    for until in (1.0, 2.0, 3.0):
        acts(recorder, now, 0, DesktopState.ACTING if until == 2.0 else DesktopState.SETUP, until)
    log.state_saved()
    path.write_bytes(path.read_bytes()[:-1])
    assert [end for _, _, _, end in read_segments(path, until=9.0)[0]] == [1.0, 2.0]
    assert [end for _, _, _, end in read_segments(path, until=1.5)[0]] == [1.0, 1.5]
    assert read_segments(tmp_path / "none.bin", until=9.0) == []


def test_the_file_keeps_the_newest_as_memory_does(tmp_path):
    recorder, now = made(max_segments=4)
    path = tmp_path / "segments.bin"
    log = SegmentLog(path)
    recorder.start([log])
    for index in range(200):
        acts(recorder, now, 0, DesktopState.ACTING if index % 2 else DesktopState.SETUP, index + 1.0)
        log.state_saved()
        assert path.stat().st_size <= 2 * 3 * 4 * ROW.size
    assert read_segments(path, until=500.0)[0][-4:] == list(recorder.desktops.segments)


def test_a_resumed_timeline_continues_without_gaps(tmp_path):
    recorder, now = made(max_segments=100)
    path = tmp_path / "segments.bin"
    recorder.start([SegmentLog(path)])
    acts(recorder, now, 0, DesktopState.ACTING, 3.0)
    now[0] = 5.0
    state = save_state(recorder)
    past = filled(read_segments(path, until=5.0), state["states"], 5.0)
    again, now = made(max_segments=100)
    now[0] = 5.0
    again.started = 5.0
    restore_state(again, state, segments=past)
    assert again.started == 0.0
    desktops = sorted(again.desktops.segments, key=lambda one: (one[0], one[2]))
    assert [(part, start, end) for part, _, start, end in desktops] == [(0, 0.0, 3.0), (0, 3.0, 5.0), (1, 0.0, 5.0)]
    assert desktops[1][1] == DesktopState.ACTING
