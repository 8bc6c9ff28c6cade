"""What happens at every turn of an attempt: a request to the pool, its reply, an action on the desktop.

Compiled in wheels. mypyc's coroutines lose the exception that they are handling when they wait
(``tests/project/test_compiled.py``), so nothing here waits in an ``except``, a ``finally`` or an ``async with``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from dartsim.core.answers import check_observation
from dartsim.core.errors import EnvBroken, PlugInFailed, WorkerFault
from dartsim.core.types import Attempt, Ending, Reply, Request, Turns, Version, new_request
from dartsim.observe.records import HotCounts, Track
from dartsim.observe.states import DesktopState, EngineState
from dartsim.rollout.deadlines import Deadlines
from dartsim.rollout.routing import Routed, Router

if TYPE_CHECKING:
    import asyncio

    from dartsim.config.sections.rollout import LimitsConfig
    from dartsim.core.ports import AsyncEnv, PolicyWorker
    from dartsim.observe import Recorder

# A global costs a tenth of an attribute lookup in an enumeration; as a compiled Final, next to nothing.
GENERATING: Final = DesktopState.GENERATING
ACTING: Final = DesktopState.ACTING
BUSY: Final = EngineState.BUSY
IDLE: Final = EngineState.IDLE

FAIL_ACTION = "FAIL"


class Session(Protocol):
    """One attempt's access to the pool."""

    async def generate(self, request: Request) -> Reply:
        """Return the reply to the attempt's next turn.

        Raises:
            WorkerFault: If no worker answered within the allowed tries.
        """
        ...

    def close(self) -> None: ...


async def take_turns(
    attempt: Attempt,
    env: AsyncEnv,
    session: Session,
    track: Track,
    limits: LimitsConfig,
    deadlines: Deadlines,
    turns: Turns,
    fail_at_limit: bool,
) -> Ending:
    """Set up the task and append turns to ``turns`` until the episode is over.

    Raises:
        TimeoutError: If a call had expired but answered anyway.
    """
    setup = deadlines.lane("setup", limits.setup_seconds)
    request = deadlines.lane("request", limits.request_seconds)
    step = deadlines.lane("step", limits.step_seconds)
    track.enter(DesktopState.SETUP)
    setup.begin()
    observation = await env.reset(attempt.task, seed=attempt.seed)
    setup.end()
    first = seen = observation
    check_observation(observation, first, attempt.task.instruction)
    deadlines.check()
    for number in range(attempt.turn_limit):
        track.enter(GENERATING)
        request.begin()
        reply = await session.generate(new_request((attempt, number, observation, turns)))
        request.end()
        turns.append(observation, reply)
        track.enter(ACTING)
        step.begin()
        observation, over = await env.step(reply.action)
        step.end()
        if observation is not seen:  # simulated desktops always return the same object
            check_observation(observation, first, attempt.task.instruction)
            seen = observation
        if deadlines.expired is not None:
            deadlines.check()
        if over is True:
            return Ending.FAIL if reply.action == FAIL_ACTION else Ending.DONE
        if over is not False:
            raise EnvBroken(f"whether the episode is over is {over!a:.200}, wanted a bool")
    if fail_at_limit:
        step.begin()
        await env.step(FAIL_ACTION)
        step.end()
    return Ending.TURN_LIMIT


class WorkerSlot(Routed):
    """A worker of the pool.

    It is up (routable), draining (live requests, takes no new one), loading, or down (its last load failed, or its
    engine ended). ``version`` is the version it serves; while loading, it serves nothing.

    Attributes:
        out_of_rotation: Whether it is down and a task of its own brings it back; until then weight syncs skip it.
    """

    __slots__ = ("drained", "engine", "out_of_rotation", "track", "version")

    def __init__(self, index: int, engine: PolicyWorker, track: Track, version: Version) -> None:
        super().__init__(index)
        self.engine = engine
        self.track = track
        self.version = version
        self.drained: asyncio.Future[None] | None = None
        self.out_of_rotation = False


class SessionPool(Protocol):
    """What a session needs from ``RolloutService``."""

    recorder: Recorder
    router: Router
    max_tries: int

    async def wait_until_up(self, track: Track) -> None: ...
    def count_fault(self, fault: WorkerFault) -> None: ...
    def remove_from_rotation(self, worker: WorkerSlot, fault: WorkerFault) -> None: ...
    def note_drained(self, worker: WorkerSlot) -> None: ...


class PoolSession:
    """A session that remembers the worker of its last turn, and retries after a fault."""

    __slots__ = ("_group", "_hot", "_last", "_router", "_service", "_track")

    def __init__(self, service: SessionPool, attempt: Attempt, track: Track) -> None:
        recorder = service.recorder
        self._service = service
        self._router: Router = service.router
        self._hot: HotCounts = recorder.hot
        self._group = attempt.group
        self._track = track
        self._last: Routed | None = None

    async def generate(self, request: Request) -> Reply:
        """Return a worker's reply; after a fault, try another worker that is up.

        Raises:
            PlugInFailed: If the router picks a worker that is not up.
        """
        service, router = self._service, self._router
        faults = 0
        while True:
            if not router.num_routable:
                await service.wait_until_up(self._track)
            worker = router.other_than(self._last) if faults else router.pick(self._last, self._group)
            if not _is_up(worker):
                raise PlugInFailed(
                    f"the router {type(router).__name__} picked {worker!a:.200}, wanted a routable worker"
                )
            assert isinstance(worker, WorkerSlot)
            router.begin(worker)
            if worker.in_flight == 1:
                worker.track.enter(BUSY)
            reply: Reply | None = None
            try:
                reply = await worker.engine.generate(request)
            except WorkerFault as fault:
                service.count_fault(fault)
                service.remove_from_rotation(worker, fault)
                faults += 1
                if faults >= service.max_tries:
                    raise
            finally:
                self._last = worker
                router.end(worker)
                if worker.in_flight == 0:
                    if worker.routable:
                        worker.track.enter(IDLE)
                    else:
                        service.note_drained(worker)
            if reply is None:
                continue
            self._hot.count(reply)
            return reply

    def close(self) -> None:
        """Do nothing: the pool keeps no state of a session."""


def _is_up(worker: object) -> bool:
    return isinstance(worker, WorkerSlot) and worker.routable
