"""Fakes of what rollout meets: desktops, workers, sessions and a source of attempts that do as they are told.

Tests reach them through the fixture ``fakes``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from types import ModuleType

import pytest

from dartsim.config.sections.rollout import LimitsConfig, RolloutConfig, SyncConfig
from dartsim.core.errors import WorkerFault, WorkerRestarted
from dartsim.core.types import Attempt, Observation, Reply, Request, StepResult, Task, Trajectory, Turn, Weights
from dartsim.observe import Recorder

TASK = Task("task", "Do it.")
SEEN = Observation(None, "Do it.")


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    return sys.modules[__name__]


def now():
    return asyncio.get_running_loop().time()


def attempt(number=0, *, turn_limit=3):
    return Attempt(number, TASK, group=0, index=number, seed=number, turn_limit=turn_limit, version=0)


def recorder(num_envs=1, num_workers=1):
    return Recorder(asyncio.get_running_loop().time, num_envs=num_envs, num_engines=num_workers, max_segments=1000)


def spent(population):
    """The seconds of each state that any time was spent in, by its name."""
    seconds = population.seconds()
    return {state.name: seconds[state] for state in population.states if seconds[state]}


def reply(action="act", version=0, worker=0):
    return Reply(action, version, version, worker, prompt_tokens=100, response_tokens=10)


def trajectory_of(attempt, ending, reward=None, cause=None, turns=0):
    return Trajectory(attempt, (Turn(SEEN, reply()),) * turns, ending, reward, cause, 0.0, now())


def sync_config(*, load_seconds=1200.0, max_tries=10, mode="drain", **sync):
    """The section of a pool: how it syncs weights, and on how many workers it tries a request."""
    return RolloutConfig(
        request_tries=max_tries,
        sync=SyncConfig(mode=str(mode), **sync),
        limits=LimitsConfig(load_seconds=load_seconds),
    )


class Desktop:
    """A desktop whose calls take set times; ``faults`` says which call raises what when its time is over."""

    def __init__(self, *, reset=4.0, step=1.0, evaluate=2.0, close=1.0, score=1.0, faults=None, cleanup=0.0):
        self.seconds = {"reset": reset, "step": step, "evaluate": evaluate}
        self.close_seconds = close
        self.score = score
        self.faults = faults or {}
        self.cleanup = cleanup
        self.actions = []
        self.seeds = []
        self.closed_at = None
        self.in_use = False

    async def reset(self, task, *, seed):
        self.seeds.append(seed)
        await self._take("reset")
        return SEEN

    async def step(self, action):
        await self._take("step")
        self.actions.append(action)
        return StepResult(SEEN, action in ("DONE", "FAIL"))

    async def evaluate(self):
        await self._take("evaluate")
        return self.score

    async def close(self):
        try:
            await asyncio.sleep(self.close_seconds)
        finally:
            self.closed_at = now()

    async def _take(self, call):
        assert not self.in_use, "a desktop serves one call at a time"
        assert self.closed_at is None, "a closed desktop was used"
        self.in_use = True
        try:
            await asyncio.sleep(self.seconds[call])
        except asyncio.CancelledError:
            await asyncio.sleep(self.cleanup)
            raise
        finally:
            self.in_use = False
        if call in self.faults:
            raise self.faults[call]


class Provider:
    """Starts desktops; ``starts`` says of each start, in order, how long it takes and whether it fails."""

    def __init__(self, starts: Iterable = (), *, seconds=2.0, **desktop):
        self.starts = iter(starts)
        self.seconds = seconds
        self.desktop = desktop
        self.desktops = []
        self.starting = 0
        self.num_starts = 0

    @property
    def live(self):
        """Desktops that exist, half-started ones included."""
        return self.starting + sum(desktop.closed_at is None for desktop in self.desktops)

    async def start(self, slot):
        seconds, fault = next(self.starts, (self.seconds, None))
        self.num_starts += 1
        self.starting += 1
        try:
            await asyncio.sleep(seconds)
            if fault is not None:
                raise fault
            self.desktops.append(Desktop(**self.desktop))
            return self.desktops[-1]
        finally:
            self.starting -= 1


class Session:
    """A session that takes ``seconds`` for each of a list of actions; an exception in it is raised."""

    def __init__(self, actions=("act", "DONE"), *, seconds=3.0):
        self.actions = iter(actions)
        self.seconds = seconds
        self.requests = []
        self.closed_at = None

    async def generate(self, request: Request):
        self.requests.append((request.turn, request.observation, list(request.history)))
        await asyncio.sleep(self.seconds)
        action = next(self.actions, "act")
        if isinstance(action, Exception):
            raise action
        return reply(action)

    def close(self):
        if self.closed_at is None:
            self.closed_at = now()


class Sessions:
    """A service that gives every attempt a session of its own."""

    def __init__(self, **session):
        self.session_options = session
        self.sessions = []

    def session(self, attempt, track):
        self.sessions.append(Session(**self.session_options))
        return self.sessions[-1]


class Source:
    """Hands out attempts in order, then None; keeps what comes back."""

    def __init__(self, num_attempts, *, turn_limit=3):
        self.left = [attempt(number, turn_limit=turn_limit) for number in range(num_attempts)]
        self.admitted = []
        self.finished: list[Trajectory] = []

    async def admit(self, slot):
        if not self.left:
            return None
        self.admitted.append(self.left.pop(0))
        return self.admitted[-1]

    def finish(self, trajectory):
        self.finished.append(trajectory)


class Engine:
    """A worker whose requests take set times, and that refuses what a real engine could not do.

    Args:
        index: Its number.
        seconds: Of a request.
        load_seconds: Of a load.
        load_faults: Of each load, in order, whether it fails; then none does.
        faults: Of each request, in order, whether it fails at once; then none does.
    """

    def __init__(self, index=0, *, seconds=3.0, load_seconds=10.0, load_faults=(), faults=()):
        self.index = index
        self.seconds = seconds
        self.load_seconds = load_seconds
        self.release_seconds = 2.0
        self.load_faults = iter(load_faults)
        self.faults = iter(faults)
        self.version = 0
        self.state = "up"
        self.loads = []
        self.killed = 0
        self.answered = 0
        self.live: dict[asyncio.Future, list] = {}  # [time left when frozen, or None; timer]

    async def generate(self, request):
        assert self.state == "up", f"worker {self.index} got a request while it was {self.state}"
        if next(self.faults, False):
            raise WorkerFault("the engine is broken")
        oldest = self.version
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.live[future] = [loop.time() + self.seconds, loop.call_later(self.seconds, self._answer, future)]
        try:
            await future
        finally:
            _, timer = self.live.pop(future, (None, None))
            if timer is not None:
                timer.cancel()
        self.answered += 1
        return Reply("act", self.version, oldest, self.index, 100, 10)

    async def load(self, weights: Weights, mode):
        assert self.state in ("up", "failed", "released"), f"worker {self.index} was given two loads at once"
        assert weights.version > self.version - (self.state != "up")
        if mode.drains:
            assert not self.live, "a drained worker has live requests"
        elif mode.kills_requests:
            self.killed += len(self.live)
            for future in list(self.live):
                future.set_exception(WorkerRestarted("restarted"))
        elif self.state == "up":
            for entry in self.live.values():
                entry[1].cancel()
                entry[0] -= now()
        self.state = "loading"
        began = now()
        await asyncio.sleep(self.load_seconds)
        self.loads.append((began, now(), weights.version))
        if next(self.load_faults, False):
            self.state = "failed"
            raise WorkerFault(f"worker {self.index} could not load version {weights.version}")
        self.version = weights.version
        self.state = "up"
        if mode.keeps_requests:
            for future, entry in self.live.items():
                entry[1] = asyncio.get_running_loop().call_later(entry[0], self._answer, future)
                entry[0] += now()

    async def release(self):
        self.state = "releasing"
        self.killed += len(self.live)
        for future in list(self.live):
            future.set_exception(WorkerRestarted("its GPU was given back"))
        await asyncio.sleep(self.release_seconds)
        self.state = "released"

    def _answer(self, future):
        if not future.done():
            future.set_result(None)


def engines(count, **options):
    return [Engine(index, **options) for index in range(count)]
