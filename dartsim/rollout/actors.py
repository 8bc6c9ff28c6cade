"""``Rollout``: one actor per desktop slot, each asking for work, playing it and handing it over."""

from __future__ import annotations

import asyncio

from dartsim.errors import EnvStartFailed
from dartsim.ports import AttemptSource
from dartsim.rollout.cluster import EnvCluster
from dartsim.rollout.play import Limits, masked, play
from dartsim.rollout.service import Service
from dartsim.trace import DesktopState, Trace, Track
from dartsim.types import Attempt, Ending, Trajectory


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
        limits: Limits,
        trace: Trace,
    ) -> None:
        self._cluster = cluster
        self._service = service
        self._source = source
        self._limits = limits
        self._trace = trace

    async def run(self) -> None:
        """Serve all slots until the source has no more work."""
        async with asyncio.TaskGroup() as actors:
            for slot in range(self._cluster.num_envs):
                actors.create_task(self._serve(slot), name=f"slot-{slot}")

    async def _serve(self, slot: int) -> None:
        track = self._trace.desktops.tracks[slot]
        while (attempt := await self._source.admit(slot)) is not None:
            await self._attempt(slot, attempt, track)
        track.enter(DesktopState.OFF)

    async def _attempt(self, slot: int, attempt: Attempt, track: Track) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        trajectory: Trajectory | None = None
        session = self._service.session(attempt, track)
        try:
            async with self._cluster.lease(slot, attempt) as env:
                trajectory = await play(attempt, env, session, track, self._limits, started=started)
                self._source.finish(trajectory)
        except EnvStartFailed:
            trajectory = masked(attempt, Ending.BROKEN, "EnvStartFailed", started, loop.time())
            self._source.finish(trajectory)
        finally:
            session.close()
            if trajectory is None:
                self._source.finish(masked(attempt, Ending.CANCELLED, "run ended", started, loop.time()))
