"""``play``: one attempt on one desktop, from set-up to score."""

from __future__ import annotations

import asyncio

from dartsim.config.sections.rollout import LimitsConfig
from dartsim.core.errors import EnvFault, ScoreUnavailable, WorkerFault, cause_of
from dartsim.core.ports import AsyncEnv
from dartsim.core.types import Attempt, Ending, Request, Trajectory, Turn
from dartsim.observe import DesktopState, Track
from dartsim.rollout.deadlines import Deadlines
from dartsim.rollout.service import Session

# Looking a member of an enumeration up in its class costs ten times what a global name costs.
GENERATING, ACTING = DesktopState.GENERATING, DesktopState.ACTING

FAIL_ACTION = "FAIL"


async def play(
    attempt: Attempt, env: AsyncEnv, session: Session, track: Track, limits: LimitsConfig, *, started: float
) -> Trajectory:
    """Play an attempt and return what it left behind.

    A fault on the way ends the attempt with its cause and without a reward; it is never a reward of 0.
    Cancelling returns nothing: the caller records that the attempt was cancelled. The session is closed with
    the last turn, however that one ended, so that nobody waits for a turn that will not come.

    Args:
        attempt: What to play.
        env: A running desktop, lent to this attempt alone.
        session: Its session with the inference pool.
        track: The desktop's track.
        limits: Deadlines.
        started: Loop time at which the attempt was admitted, seconds.
    """
    turns: list[Turn] = []
    reward: float | None = None
    cause: str | None = None
    deadlines = Deadlines()
    try:
        async with deadlines:
            deadlines.lane("lease", limits.lease_seconds).begin()
            try:
                ending = await _turns(attempt, env, session, track, limits, deadlines, turns)
            finally:
                session.close()
            track.enter(DesktopState.EVALUATING)
            deadlines.lane("evaluate", limits.evaluate_seconds).begin()
            reward = await env.evaluate()
    except TimeoutError:
        expired = deadlines.expired
        ending, cause = Ending.TIMED_OUT, f"{expired.label if expired else 'call'} timed out"
    except EnvFault as fault:
        ending, cause = Ending.BROKEN, cause_of(fault)
    except WorkerFault as fault:
        ending, cause = Ending.WORKER_FAULT, cause_of(fault)
    except ScoreUnavailable as fault:
        ending, cause = Ending.UNSCORED, cause_of(fault)
    now = asyncio.get_running_loop().time()
    return Trajectory(attempt, tuple(turns), ending, reward, cause, started, now)


async def _turns(
    attempt: Attempt,
    env: AsyncEnv,
    session: Session,
    track: Track,
    limits: LimitsConfig,
    deadlines: Deadlines,
    turns: list[Turn],
) -> Ending:
    """Set the task up and take turns, appended to ``turns``, until the episode is over."""
    setup = deadlines.lane("setup", limits.setup_seconds)
    request = deadlines.lane("request", limits.request_seconds)
    step = deadlines.lane("step", limits.step_seconds)
    track.enter(DesktopState.SETUP)
    setup.begin()
    observation = await env.reset(attempt.task, seed=attempt.seed)
    setup.end()
    for number in range(attempt.turn_limit):
        track.enter(GENERATING)
        request.begin()
        reply = await session.generate(Request(attempt, number, observation, turns))
        request.end()
        turns.append(Turn(observation, reply))
        track.enter(ACTING)
        step.begin()
        observation, over = await env.step(reply.action)
        step.end()
        if over:
            return Ending.FAIL if reply.action == FAIL_ACTION else Ending.DONE
    return Ending.TURN_LIMIT


def masked(attempt: Attempt, ending: Ending, cause: str, started: float, now: float) -> Trajectory:
    """Return the record of an attempt that a fault ended before it took a turn."""
    return Trajectory(attempt, (), ending, None, cause, started, now)
