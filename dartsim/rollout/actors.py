"""``Rollout``: one actor per desktop slot, each asking for work, playing it and handing it over."""

from __future__ import annotations

import asyncio

from dartsim.config.sections.rollout import LimitsConfig
from dartsim.core.errors import EnvStartFailed
from dartsim.core.ports import AttemptSource
from dartsim.core.types import Attempt, Ending, Trajectory
from dartsim.observe import DesktopState, Recorder, Track
from dartsim.rollout.cluster import EnvCluster
from dartsim.rollout.play import masked, play
from dartsim.rollout.service import Service

WITHDRAWN = "withdrawn"
"""Cause of attempts that curation ended, because they would be too old to be trained on."""


class Rollout:
    """The actors of a cluster.

    Every attempt that was admitted is handed over exactly once, also when its desktop never started or the
    run is cancelled under it.
    """

    def __init__(
        self,
        cluster: EnvCluster,
        service: Service,
        source: AttemptSource,
        *,
        limits: LimitsConfig,
        recorder: Recorder,
    ) -> None:
        self._cluster = cluster
        self._service = service
        self._source = source
        self._limits = limits
        self._recorder = recorder
        self._playing: dict[int, asyncio.Timeout] = {}
        """Scopes of the attempts that are played, by attempt."""

    async def run(self) -> None:
        """Serve all slots until the source has no more work."""
        async with asyncio.TaskGroup() as actors:
            for slot in range(self._cluster.num_envs):
                actors.create_task(self._serve(slot), name=f"slot-{slot}")

    def withdraw(self, attempt: int) -> None:
        """End an attempt now, wherever it is; it is handed over as cancelled. One that has ended stays as it is."""
        scope = self._playing.get(attempt)
        if scope is not None:
            scope.reschedule(asyncio.get_running_loop().time())

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
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._playing[attempt.id] = scope
                async with self._cluster.lease(slot, attempt) as env:
                    trajectory = await play(attempt, env, session, track, self._limits, started=started)
                    del self._playing[attempt.id]
                    if not scope.expired():  # withdrawn in this very instant: the tear-down goes on
                        scope.reschedule(None)
                    self._source.finish(trajectory)
        except TimeoutError:
            if not scope.expired():
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
