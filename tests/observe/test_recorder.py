"""The measurements themselves: shares add up, memory is bounded, thinning changes no figure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.observe import DesktopState, EngineState, Population, Recorder, TrainerState
from dartsim.observe.figures import figures, summary
from dartsim.observe.recorder_state import restore_state, save_state


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


# (pause, desktop, its new state, turns generated)
STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 500.0),
        st.integers(0, 3),
        st.sampled_from(list(DesktopState)),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=80,
)


def play(steps, **options) -> Recorder:
    clock = Clock()
    recorder = Recorder(clock, num_envs=4, num_engines=2, **options)
    for pause, desktop, state, num_turns in steps:
        clock.now += pause
        recorder.desktops.tracks[desktop].enter(state)
        recorder.engines.tracks[desktop % 2].enter(EngineState(num_turns % len(EngineState)))
        recorder.trainer.tracks[0].enter(TrainerState(num_turns % len(TrainerState)))
        recorder.hot.generated_turns += num_turns
        recorder.counts["trained_turns"] += num_turns // 2
        recorder.tick()
    clock.now += 1.0
    recorder.close()
    return recorder


def test_the_share_that_was_not_trained_is_never_negative():
    """An update after the warm-up trains turns from before it, in a short run more than were generated since."""
    clock = Clock()
    recorder = Recorder(clock, num_envs=1, num_engines=1)
    recorder.hot.generated_turns += 8
    before = recorder.snapshot()
    clock.now += 1.0
    recorder.hot.generated_turns += 4
    recorder.counts["trained_turns"] += 3
    assert figures(before, recorder.snapshot())["wasted_share"] == pytest.approx(0.25)
    recorder.counts["trained_turns"] += 6
    assert figures(before, recorder.snapshot())["wasted_share"] is None


@given(steps=STEPS)
def test_shares_add_up_to_one_and_utilization_stays_below(steps):
    recorder = play(steps)
    found = figures(recorder.snapshots[0], recorder.snapshots[-1])
    for shares in ("desktop_shares", "engine_shares", "trainer_shares"):
        assert sum(found[shares].values()) == pytest.approx(1.0, abs=1e-9)
    for name in ("env_utilization", "gpu_utilization", "rollout_share"):
        assert 0.0 <= found[name] <= 1.0 + 1e-9


def test_prefix_hits_are_of_the_prompts_that_were_looked_up_in_the_window():
    recorder = Recorder(Clock(), num_envs=1, num_engines=1)
    hot, shares = recorder.hot, []
    snapshots = [recorder.snapshot()]
    for prompt, looked_up, cached in ((500, 0, 0), (1_000, 1_000, 0), (3_000, 2_000, 1_500)):
        hot.prompt_tokens += prompt
        hot.looked_up_tokens += looked_up
        hot.cached_tokens += cached
        snapshots.append(recorder.snapshot())
        shares.append(figures(snapshots[0], snapshots[-1])["prefix_hit_share"])
    assert shares == [None, 0.0, 0.5]
    assert figures(snapshots[2], snapshots[3])["prefix_hit_share"] == 0.75


def test_a_resumed_recorder_continues_to_count():
    first, again = (Recorder(Clock(), num_envs=1, num_engines=1) for _ in range(2))
    first.hot.prompt_tokens, first.hot.cached_tokens, first.hot.looked_up_tokens = 700, 3, 4
    restore_state(again, save_state(first))
    assert again.hot == first.hot


@given(steps=STEPS)
def test_every_second_of_every_part_is_counted(steps):
    recorder = play(steps)
    for snapshot in recorder.snapshots:
        assert sum(snapshot.desktops) == pytest.approx(4 * snapshot.time)
        assert sum(snapshot.engines) == pytest.approx(2 * snapshot.time)
        assert sum(snapshot.trainer) == pytest.approx(snapshot.time)


@given(steps=STEPS, limit=st.integers(2, 20))
def test_thinning_keeps_the_first_the_last_the_order_and_every_figure(steps, limit):
    full = play(steps, max_snapshots=10_000, first_spacing_seconds=10.0)
    thin = play(steps, max_snapshots=limit, first_spacing_seconds=10.0)
    assert len(thin.snapshots) <= limit
    assert thin.snapshots[0] == full.snapshots[0]
    assert thin.snapshots[-1] == full.snapshots[-1]
    times = [snapshot.time for snapshot in thin.snapshots]
    assert times == sorted(times)
    by_time = {snapshot.time: snapshot for snapshot in full.snapshots}
    both = [(by_time[s.time], s) for s in thin.snapshots[1:] if s.time in by_time]
    for ours, theirs in both:
        assert figures(full.snapshots[0], ours) == figures(thin.snapshots[0], theirs)


@pytest.mark.parametrize("limit", [2, 3, 7, 10])
def test_memory_does_not_grow_with_the_length_of_the_run(limit):
    clock = Clock()
    recorder = Recorder(clock, num_envs=2, num_engines=1, max_segments=limit, max_snapshots=limit)
    for number in range(3000):
        clock.now += 40.0
        recorder.desktops.tracks[number % 2].enter(DesktopState.ACTING if number % 3 else DesktopState.GENERATING)
        recorder.tick()
        assert len(recorder.snapshots) <= limit
        assert len(recorder.desktops.segments or ()) <= limit
    recorder.close()
    assert len(recorder.snapshots) <= limit
    assert recorder.snapshots[0].time == 0.0
    assert recorder.snapshots[-1].time == 3000 * 40.0


@given(states=st.lists(st.sampled_from(list(DesktopState)), min_size=1, max_size=12))
def test_swap_moves_all_that_are_in_a_state_and_no_other(states):
    clock = Clock()
    population = Population("desktops", DesktopState, len(states), clock)
    for track, state in zip(population.tracks, states, strict=True):
        track.enter(state)
    clock.now += 10.0
    population.swap(DesktopState.GENERATING, DesktopState.SYNC_WAIT)
    clock.now += 3.0
    for track, state in zip(population.tracks, states, strict=True):
        moved = state == DesktopState.GENERATING
        assert track.state == (DesktopState.SYNC_WAIT if moved else state)
    seconds = population.seconds()
    waiting = states.count(DesktopState.SYNC_WAIT)
    moved = states.count(DesktopState.GENERATING)
    assert seconds[DesktopState.GENERATING] == 10.0 * moved
    assert seconds[DesktopState.SYNC_WAIT] == 3.0 * moved + 13.0 * waiting


def test_a_run_measures_what_was_played(make_recorder):
    recorder = make_recorder(seed=1, hours=2.0)
    found = summary(recorder, warmup_share=0.1)
    assert found["simulated_hours"] == pytest.approx(2.0, rel=0.05)
    assert found["desktop_shares"]["acting"] > 0.2
    assert found["generated_turns_per_minute"] > found["trained_turns_per_minute"] > 0
    assert sum(found["endings"].values()) == recorder.counts["trajectories"]
    assert found["staleness_max"] >= found["staleness_mean"] > 0
