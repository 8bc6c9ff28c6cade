"""``Rollout``: one actor per desktop slot, each asking for attempts, playing them and handing them over.

admit --> lease a desktop --> play: reset, (generate, step)*, evaluate --> finish
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dartsim.config.sections.rollout import LimitsConfig
from dartsim.core.errors import DartsimError, EnvFault, EnvStartFailed, ScoreUnavailable, WorkerFault, cause_of
from dartsim.core.ports import AsyncEnv, AttemptSource
from dartsim.core.time_limit import TimeLimit
from dartsim.core.types import Attempt, Ending, Trajectory, Turn
from dartsim.core.waiting import pausable
from dartsim.observe import DesktopState, Recorder, Track
from dartsim.rollout.cluster import EnvCluster
from dartsim.rollout.deadlines import Deadlines
from dartsim.rollout.service import Service
from dartsim.rollout.turns import Session, take_turns

WITHDRAWN = "withdrawn"
"""Cause of attempts that curation ended because they would be too stale to train on."""


class Rollout:
    """The actors of a cluster.

    Invariant: every admitted attempt is handed over exactly once, even if its desktop never started or the run was
    cancelled.
    """

    def __init__(
        self,
        cluster: EnvCluster,
        service: Service,
        source: AttemptSource,
        *,
        limits: LimitsConfig,
        recorder: Recorder,
        fail_at_limit: bool = False,
    ) -> None:
        self._cluster = cluster
        self._service = service
        self._source = source
        self._limits = limits
        self._fail_at_limit = fail_at_limit
        self._recorder = recorder
        self._playing: dict[int, TimeLimit] = {}
        """What ends each running attempt early, by attempt."""

    async def run(self) -> None:
        """Serve all slots until the source has no more work."""
        async with asyncio.TaskGroup() as actors:
            for slot in range(self._cluster.num_envs):
                actors.create_task(self._serve(slot), name=f"slot-{slot}")

    def withdraw(self, attempt: int) -> None:
        """Cancel an attempt that still runs; it is handed over as cancelled."""
        scope = self._playing.get(attempt)
        if scope is not None:
            scope.end_now()

    async def _serve(self, slot: int) -> None:
        track = self._recorder.desktops.tracks[slot]
        while (attempt := await self._source.admit(slot)) is not None:
            await self._attempt(slot, attempt, track)
            await self._cluster.rest(slot)
        track.enter(DesktopState.OFF)

    async def _attempt(self, slot: int, attempt: Attempt, track: Track) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        trajectory: Trajectory | None = None
        session = self._service.session(attempt, track)
        scope = TimeLimit()
        try:
            with scope:
                self._playing[attempt.id] = scope
                async with self._cluster.lease(slot, attempt) as env:
                    trajectory = await play(
                        attempt,
                        env,
                        session,
                        track,
                        self._limits,
                        started=started,
                        fail_at_limit=self._fail_at_limit,
                        on_fault=self._recorder.attempt_failed,
                    )
                    del self._playing[attempt.id]
                    scope.lift()  # it has ended by itself; withdrawn at this very instant, it is torn down all the same
                    self._source.finish(trajectory)
        except TimeoutError:
            if not scope.expired:
                raise
            if trajectory is None:
                trajectory = masked(attempt, Ending.CANCELLED, WITHDRAWN, started, loop.time())
                self._source.finish(trajectory)
        except EnvStartFailed:
            trajectory = masked(attempt, Ending.BROKEN, "EnvStartFailed", started, loop.time())
            self._source.finish(trajectory)
        finally:
            self._playing.pop(attempt.id, None)
            session.close()
            if trajectory is None:
                self._source.finish(masked(attempt, Ending.CANCELLED, "run ended", started, loop.time()))


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

    A fault ends the attempt with its cause and without a reward; it never becomes a reward of 0. If cancelled, it
    returns nothing: the caller records the cancellation. The session is closed after the last turn, however that one
    ended, so that nobody waits for a turn that will not come.
    """
    turns: list[Turn] = []
    reward: float | None = None
    cause: str | None = None
    failure: DartsimError | None = None
    deadlines = Deadlines()
    try:
        with deadlines:
            deadlines.lane("lease", limits.lease_seconds).begin()
            try:
                ending = await take_turns(attempt, env, session, track, limits, deadlines, turns, fail_at_limit)
            finally:
                session.close()
            track.enter(DesktopState.EVALUATING)
            deadlines.lane("evaluate", limits.evaluate_seconds).begin()
            with pausable(_ScoringQueue(deadlines, track)):
                reward = await env.evaluate()
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
            on_fault(cause, str(failure))
    now = asyncio.get_running_loop().time()
    return Trajectory(attempt, tuple(turns), ending, reward, cause, started, now)


class _ScoringQueue:
    """The deadlines and the desktop's state, while its score waits for its turn."""

    def __init__(self, deadlines: Deadlines, track: Track) -> None:
        self._deadlines = deadlines
        self._track = track

    def pause(self) -> None:
        self._deadlines.pause()
        self._track.enter(DesktopState.SCORE_WAIT)

    def resume(self) -> None:
        """Score with the time that was left."""
        self._track.enter(DesktopState.EVALUATING)
        self._deadlines.resume()


def masked(attempt: Attempt, ending: Ending, cause: str, started: float, now: float) -> Trajectory:
    """Return the trajectory of an attempt that ended before its first turn."""
    return Trajectory(attempt, (), ending, None, cause, started, now)
