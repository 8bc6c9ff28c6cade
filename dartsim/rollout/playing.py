"""``play``: an attempt on a desktop, from set-up to score, and the consequences of faults.

Compiled in wheels; ``dartsim.rollout.turns`` says where it must not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dartsim.core.answers import describe, is_own, score_of, text_of
from dartsim.core.errors import DartsimError, EnvBroken, EnvFault, ScoreUnavailable, WorkerFault, cause_of
from dartsim.core.types import Attempt, Ending, Trajectory, Turns
from dartsim.core.waiting import pausable
from dartsim.observe.records import Track
from dartsim.observe.states import DesktopState
from dartsim.rollout.deadlines import Deadlines
from dartsim.rollout.turns import Session, take_turns

if TYPE_CHECKING:
    from dartsim.config.sections.rollout import LimitsConfig
    from dartsim.core.ports import AsyncEnv


async def play(
    attempt: Attempt,
    env: AsyncEnv,
    session: Session,
    track: Track,
    limits: LimitsConfig,
    *,
    started: float,
    fail_at_limit: bool = False,
    on_fault: Callable[[str, str], None] | None = None,
) -> Trajectory:
    """Play an attempt on a desktop, from setup to score, and return its trajectory.

    A fault ends the attempt without a reward and with its cause; it never becomes a reward of 0. If cancelled, the
    caller records that. The session is closed after the last turn, however it ended, so no one waits for a missing
    turn.
    """
    turns = Turns()
    reward: float | None = None
    cause: str | None = None
    failure: DartsimError | None = None
    deadlines = Deadlines()
    try:
        with deadlines:
            deadlines.lane("lease", limits.lease_seconds).begin()
            try:
                ending = await take_turns(attempt, env, session, track, limits, deadlines, turns, fail_at_limit)
            except BaseException as error:
                if is_own(error) and not isinstance(error, TimeoutError) and not deadlines.in_progress("request"):
                    raise EnvBroken(f"the desktop failed: {describe(error)}") from error
                raise
            finally:
                session.close()
            track.enter(DesktopState.EVALUATING)
            deadlines.lane("evaluate", limits.evaluate_seconds).begin()
            with pausable(_ScoringQueue(deadlines, track)):
                try:
                    score: Any = await env.evaluate()
                except BaseException as error:
                    if is_own(error) and not isinstance(error, TimeoutError):
                        raise ScoreUnavailable(f"the evaluator failed: {describe(error)}") from error
                    raise
            deadlines.check()
            reward = score_of(score)
    except TimeoutError:
        expired = deadlines.expired
        ending, cause = Ending.TIMED_OUT, f"{expired.label if expired else 'call'} timed out"
    except EnvFault as fault:
        ending, failure = Ending.BROKEN, fault
    except WorkerFault as fault:
        ending, failure = Ending.WORKER_FAULT, fault
    except ScoreUnavailable as fault:
        ending, failure = Ending.UNSCORED, fault
    if failure is not None:
        cause = cause_of(failure)
        if on_fault is not None:
            on_fault(cause, text_of(failure))
    now = asyncio.get_running_loop().time()
    return Trajectory(attempt, turns, ending, reward, cause, started, now)


class _ScoringQueue:
    """Pauses the deadlines, and sets the desktop's state, while its score waits for its turn."""

    def __init__(self, deadlines: Deadlines, track: Track) -> None:
        self._deadlines = deadlines
        self._track = track

    def pause(self) -> None:
        self._deadlines.pause()
        self._track.enter(DesktopState.SCORE_WAIT)

    def resume(self) -> None:
        """Score within the remaining time."""
        self._track.enter(DesktopState.EVALUATING)
        self._deadlines.resume()
