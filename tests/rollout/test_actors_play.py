"""``play``: every way an attempt can end, what it took, and that no fault becomes a reward."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.rollout import LimitsConfig
from dartsim.core.errors import EnvBroken, ScoreUnavailable, WorkerFault, WorkerRestarted
from dartsim.core.types import Ending
from dartsim.core.waiting import paused_deadline
from dartsim.rollout import play
from dartsim.sim import run_virtual

MASKED = (Ending.BROKEN, Ending.TIMED_OUT, Ending.WORKER_FAULT, Ending.UNSCORED, Ending.CANCELLED)
LIMITS = LimitsConfig(
    setup_seconds=60.0, request_seconds=50.0, step_seconds=40.0, evaluate_seconds=30.0, lease_seconds=1000.0
)


async def run(fakes, desktop, session, *, turn_limit=3, limits=LIMITS, started=0.0):
    """Play one attempt; return its trajectory and what its time was spent on."""
    recorder = fakes.recorder()
    track = recorder.desktops.tracks[0]
    attempt = fakes.attempt(5, turn_limit=turn_limit)
    trajectory = await play(attempt, desktop, session, track, limits, started=started)
    assert trajectory.attempt is attempt
    assert trajectory.finished == fakes.now()
    assert session.closed_at is not None
    assert not desktop.in_use
    assert (trajectory.reward is None) == (trajectory.ending in MASKED) == (trajectory.cause is not None)
    return trajectory, fakes.spent(recorder.desktops)


async def test_an_attempt_is_set_up_plays_its_turns_and_is_scored(fakes):
    desktop, session = fakes.Desktop(score=0.75), fakes.Session(["click", "type", "DONE"])
    await asyncio.sleep(100.0)
    trajectory, spent = await run(fakes, desktop, session, started=90.0)
    assert (trajectory.ending, trajectory.reward) == (Ending.DONE, 0.75)
    assert (trajectory.started, trajectory.finished) == (90.0, 100.0 + 4.0 + 3 * (3.0 + 1.0) + 2.0)
    assert [turn.reply.action for turn in trajectory.turns] == ["click", "type", "DONE"]
    assert desktop.actions == ["click", "type", "DONE"]
    assert desktop.seeds == [5]
    assert spent == {"SETUP": 4.0, "GENERATING": 9.0, "ACTING": 3.0, "EVALUATING": 2.0}


async def test_waiting_for_a_sandbox_is_a_state_of_its_own_and_pauses_the_deadline(fakes):
    class Desktop(fakes.Desktop):
        async def evaluate(self):
            with paused_deadline():
                await asyncio.sleep(10.0 * LIMITS.evaluate_seconds)
            return await super().evaluate()

    trajectory, spent = await run(fakes, Desktop(score=0.75), fakes.Session(["DONE"]))
    assert trajectory.reward == 0.75
    assert (spent["SCORE_WAIT"], spent["EVALUATING"]) == (10.0 * LIMITS.evaluate_seconds, 2.0)


async def test_a_request_carries_the_turns_before_it(fakes):
    session = fakes.Session(["click", "type", "DONE"])
    trajectory, _ = await run(fakes, fakes.Desktop(), session)
    assert [turn for turn, _, _ in session.requests] == [0, 1, 2]
    assert [observation for _, observation, _ in session.requests] == [fakes.SEEN] * 3
    assert [history for _, _, history in session.requests] == [list(trajectory.turns[:n]) for n in range(3)]


async def test_declaring_a_task_infeasible_ends_it_as_fail(fakes):
    trajectory, _ = await run(fakes, fakes.Desktop(score=1.0), fakes.Session(["click", "FAIL"]))
    assert (trajectory.ending, trajectory.reward, len(trajectory.turns)) == (Ending.FAIL, 1.0, 2)


async def test_an_attempt_that_uses_up_its_turns_can_declare_its_task_infeasible(fakes):
    desktop, track = fakes.Desktop(score=1.0), fakes.recorder().desktops.tracks[0]
    attempt, session = fakes.attempt(turn_limit=2), fakes.Session(["click", "type"])
    trajectory = await play(attempt, desktop, session, track, LIMITS, started=0.0, fail_at_limit=True)
    assert desktop.actions == ["click", "type", "FAIL"]
    assert (trajectory.ending, trajectory.reward, len(trajectory.turns)) == (Ending.TURN_LIMIT, 1.0, 2)


@pytest.mark.parametrize(
    ("call", "fault", "ending", "turns", "ends"),
    [
        ("reset", EnvBroken("gone"), Ending.BROKEN, 0, 4.0),
        ("step", EnvBroken("gone"), Ending.BROKEN, 1, 8.0),
        ("evaluate", EnvBroken("gone"), Ending.BROKEN, 2, 14.0),
        ("evaluate", ScoreUnavailable("no file"), Ending.UNSCORED, 2, 14.0),
    ],
)
async def test_a_fault_of_the_desktop_masks_the_attempt(fakes, call, fault, ending, turns, ends):
    session = fakes.Session(["click", "DONE"])
    trajectory, _ = await run(fakes, fakes.Desktop(faults={call: fault}), session)
    assert (trajectory.ending, trajectory.reward, len(trajectory.turns)) == (ending, None, turns)
    assert trajectory.cause == type(fault).__name__
    assert trajectory.finished == ends
    assert session.closed_at == min(ends, 12.0)


@pytest.mark.parametrize("fault", [WorkerFault("down"), WorkerRestarted("again")])
async def test_a_pool_that_cannot_answer_masks_the_attempt(fakes, fault):
    trajectory, _ = await run(fakes, fakes.Desktop(), fakes.Session(["click", fault]))
    assert (trajectory.ending, trajectory.reward, len(trajectory.turns)) == (Ending.WORKER_FAULT, None, 1)
    assert (trajectory.cause, trajectory.finished) == (type(fault).__name__, 4.0 + 4.0 + 3.0)


@pytest.mark.parametrize(
    ("slow", "ends", "turns"),
    [
        ("setup", 60.0, 0),
        ("request", 4.0 + 50.0, 0),
        ("step", 4.0 + 3.0 + 40.0, 1),
        ("evaluate", 4.0 + 4.0 + 30.0, 1),
    ],
)
async def test_a_call_that_takes_too_long_masks_the_attempt_when_it_is_due(fakes, slow, ends, turns):
    desktop = fakes.Desktop()
    session = fakes.Session(["DONE"])
    if slow == "request":
        session.seconds = 1e9
    else:
        desktop.seconds["reset" if slow == "setup" else slow] = 1e9
    trajectory, _ = await run(fakes, desktop, session)
    assert (trajectory.ending, trajectory.reward, len(trajectory.turns)) == (Ending.TIMED_OUT, None, turns)
    assert (trajectory.cause, trajectory.finished) == (f"{slow} timed out", ends)


async def test_a_lease_expires_whatever_the_attempt_is_doing(fakes):
    limits = LimitsConfig(lease_seconds=100.0)
    trajectory, _ = await run(fakes, fakes.Desktop(), fakes.Session([]), turn_limit=10**6, limits=limits)
    assert (trajectory.ending, trajectory.cause) == (Ending.TIMED_OUT, "lease timed out")
    assert (trajectory.finished, len(trajectory.turns)) == (100.0, 24)


async def test_a_desktop_that_is_slow_to_be_cancelled_is_waited_for(fakes):
    desktop = fakes.Desktop(step=1e9, cleanup=2000.0)
    trajectory, _ = await run(fakes, desktop, fakes.Session(["click"]))
    assert (trajectory.ending, trajectory.cause) == (Ending.TIMED_OUT, "step timed out")
    assert trajectory.finished == 4.0 + 3.0 + 40.0 + 2000.0


async def test_the_session_is_closed_before_scoring(fakes):
    session = fakes.Session(["DONE"])
    trajectory, _ = await run(fakes, fakes.Desktop(evaluate=20.0), session)
    assert (session.closed_at, trajectory.finished) == (8.0, 28.0)


async def test_a_bug_of_the_pool_is_no_fault(fakes):
    session = fakes.Session(["act", ZeroDivisionError()])
    with pytest.raises(ZeroDivisionError):
        await run(fakes, fakes.Desktop(), session)
    assert session.closed_at == 11.0


@given(st.floats(0.0, 14.5))
def test_cancelling_comes_through_at_once_and_closes_the_session(fakes, moment):
    async def main():
        session = fakes.Session(["click", "DONE"])
        recorder = fakes.recorder()
        playing = play(fakes.attempt(), fakes.Desktop(), session, recorder.desktops.tracks[0], LIMITS, started=0.0)
        task = asyncio.get_running_loop().create_task(playing)
        await asyncio.sleep(moment)
        task.cancel()
        await asyncio.wait([task])
        assert fakes.now() == moment
        assert session.closed_at is not None or moment == 0.0
        assert task.cancelled() or moment >= 14.0

    run_virtual(main())
