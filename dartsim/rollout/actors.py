"""``Rollout``: one actor per desktop slot, which asks for attempts, plays them and hands over their trajectories.

admit --> lease a desktop --> play: reset, (generate, step)*, evaluate --> finish
"""

from __future__ import annotations

import asyncio

from dartsim.config.sections.rollout import LimitsConfig
from dartsim.core.errors import EnvStartFailed
from dartsim.core.ports import AttemptSource
from dartsim.core.time_limit import TimeLimit
from dartsim.core.types import Attempt, Ending, Trajectory, Turns
from dartsim.observe import DesktopState, Recorder, Track
from dartsim.rollout.cluster import EnvCluster
from dartsim.rollout.playing import play
from dartsim.rollout.service import Service

WITHDRAWN = "withdrawn"
"""Cause of attempts that curation ended early: their group would be too stale, or the engines' caches are too full."""


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
        """Limits through which running attempts can be ended early, by attempt."""

    async def run(self) -> None:
        """Serve all slots until the source has no more work."""
        async with asyncio.TaskGroup() as actors:
            for slot in range(self._cluster.num_envs):
                actors.create_task(self._serve(slot), name=f"slot-{slot}")

    def withdraw(self, attempt: int) -> None:
        """Cancel a running attempt, which is then handed over as cancelled."""
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
                env = await self._cluster.lease(slot, attempt)
                try:
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
                    scope.lift()  # too late to withdraw it: only the tear-down is left
                    self._source.finish(trajectory)
                finally:
                    await self._cluster.give_back(slot, env)
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


def masked(attempt: Attempt, ending: Ending, cause: str, started: float, now: float) -> Trajectory:
    """Return the trajectory of an attempt that ended before its first turn."""
    return Trajectory(attempt, Turns(), ending, None, cause, started, now)
