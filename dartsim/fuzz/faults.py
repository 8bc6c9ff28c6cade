"""Faults of a case: what goes wrong at the ports of the control plane, in windows of virtual time.

Every window ends before the run's healed part begins, and a call that hangs in one comes back, as failed, when it ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, NoReturn

from dartsim.core.errors import EnvBroken, EnvStartFailed, LearnerFault, ScoreUnavailable, WorkerFault
from dartsim.core.ports import AsyncEnv, EnvProvider, Learner, PolicyWorker, SyncMode
from dartsim.core.types import Batch, Observation, Reply, Request, StepResult, Task, UpdateResult, Weights
from dartsim.fuzz.cases import Fault
from dartsim.sim import Node
from dartsim.sim.faults.desktops import GIVE_UP_SECONDS
from dartsim.sim.nodes import NODE
from dartsim.sim.worker import SimWorker

REACH = 4
"""Parts of a kind that single faults are aimed at; with fewer parts they are counted around."""


class Kind(NamedTuple):
    """A kind of fault: which part it strikes, at which of its calls, and what it does there."""

    part: str
    point: str
    effect: str


KINDS: Mapping[str, Kind] = {
    "start_fails": Kind("desktop", "start", "fail late"),
    "start_hangs": Kind("desktop", "start", "hang"),
    "setup_breaks": Kind("desktop", "setup", "fail"),
    "setup_hangs": Kind("desktop", "setup", "hang"),
    "step_breaks": Kind("desktop", "step", "fail late"),
    "step_hangs": Kind("desktop", "step", "hang"),
    "step_slow": Kind("desktop", "step", "slow"),
    "score_fails": Kind("desktop", "evaluate", "fail late"),
    "score_hangs": Kind("desktop", "evaluate", "hang"),
    "close_hangs": Kind("desktop", "close", "hang late"),
    "desktop_lost": Kind("desktop", "any", "fail"),
    "request_fails": Kind("worker", "generate", "fail"),
    "request_hangs": Kind("worker", "generate", "hang"),
    "reply_lost": Kind("worker", "generate", "hang late"),
    "worker_slow": Kind("worker", "generate", "slow"),
    "worker_crash": Kind("worker", "any", "crash"),
    "load_fails": Kind("worker", "load", "fail"),
    "load_torn": Kind("worker", "load", "fail between"),
    "load_hangs": Kind("worker", "load", "hang"),
    "load_slow": Kind("worker", "load", "slow"),
    "update_fails": Kind("learner", "update", "fail"),
    "update_fails_late": Kind("learner", "update", "fail between"),
    "trainer_away": Kind("learner", "update", "away"),
    "publication_again": Kind("pool", "publish", "again"),
    "killed": Kind("process", "any", "kill"),
    "killed_before_commit": Kind("process", "commit", "kill before"),
    "killed_after_commit": Kind("process", "commit", "kill after"),
    "store_error": Kind("store", "commit", "fail"),
    "store_full": Kind("store", "commit", "full"),
    "store_stall": Kind("store", "any", "stall"),
}
"""Every kind of fault by name."""

STORED = frozenset(name for name, kind in KINDS.items() if kind.part in ("process", "store"))
"""Kinds with which a case is played over a database, in as many lives as it takes."""

FAIL_SECONDS = 1.0
"""What a failing call takes."""

SLOW_SECONDS = 15.0
"""What a slow call takes longer."""


class Schedule:
    """The faults of a run.

    Attributes:
        struck: How often each kind came to act.
    """

    def __init__(
        self, faults: Sequence[Fault], num_parts: Mapping[str, int], struck: Counter[str] | None = None
    ) -> None:
        self.faults = faults
        self.struck: Counter[str] = Counter() if struck is None else struck
        self._by_part: dict[str, list[tuple[Fault, Kind]]] = {part: [] for part in num_parts}
        self._num_parts = num_parts
        self._loop = asyncio.get_running_loop()
        for fault in faults:
            kind = KINDS[fault.kind]
            if kind.part in self._by_part:  # what strikes the process is the disk's
                self._by_part[kind.part].append((fault, kind))
        self._stalls = [fault for fault in faults if fault.kind == "store_stall"]

    def of(self, part: str, index: int) -> list[tuple[Fault, Kind]]:
        """Return the faults that can strike one part."""
        size = self._num_parts[part]
        return [(f, kind) for f, kind in self._by_part[part] if f.target is None or f.target % size == index]

    def seconds_left(self, fault: Fault) -> float:
        """Return how long a fault still holds; 0 or less when it does not."""
        now = self._loop.time()
        return fault.end - now if fault.start <= now else 0.0

    def is_past(self, fault: Fault) -> bool:
        """Whether it began before the present life did."""
        return fault.start < self._loop.time()

    async def stalled(self) -> None:
        """Wait as long as the control plane waits for its store: nobody hears the answer of a part before that."""
        for fault in self._stalls:
            left = self.seconds_left(fault)
            if left > 0:
                self.struck[fault.kind] += 1
                await asyncio.sleep(left)


class Part:
    """One part of the cluster, as the loop's perturbation and the schedule see it.

    Args:
        schedule: What goes wrong.
        kind: ``desktop``, ``worker`` or ``learner``.
        index: Which of them.
        error: Makes the error of a call that fails, from its point.
    """

    __slots__ = ("_error", "_faults", "_node", "_schedule", "index")

    def __init__(self, schedule: Schedule, kind: str, index: int, error: Callable[[str], Exception]) -> None:
        self.index = index
        self._schedule = schedule
        self._faults = schedule.of(kind, index)
        self._node = Node(f"{kind}-{index}")
        self._error = error

    def enter(self) -> None:
        """Let the running task wait on this part's node: its wake-ups come in no fixed order with others'."""
        NODE.set(self._node)

    def leave(self) -> None:
        """Be the control plane again."""
        NODE.set(None)

    async def before(self, point: str) -> None:
        """Do what goes wrong before a call."""
        for fault, kind in self._faults:
            if kind.point in (point, "any") and (left := self._schedule.seconds_left(fault)) > 0:
                await self._strike(fault, kind.effect, point, left)

    async def _strike(self, fault: Fault, effect: str, point: str, left: float) -> None:
        if effect in ("fail late", "hang late", "fail between"):
            return
        self._schedule.struck[fault.kind] += 1
        if effect == "crash":
            raise self.down(fault, point)
        if effect == "slow":
            await asyncio.sleep(SLOW_SECONDS)
            return
        # What fails at once is asked again at once, and time would not move.
        await asyncio.sleep(left if effect in ("hang", "away") else FAIL_SECONDS)
        if effect in ("hang", "fail"):
            raise self._error(point)

    async def after(self, point: str) -> None:
        """Do what goes wrong with the result of a call."""
        await self._schedule.stalled()
        for fault, kind in self._faults:
            if kind.point != point or not kind.effect.endswith(" late"):
                continue
            left = self._schedule.seconds_left(fault)
            if left > 0:
                self._schedule.struck[fault.kind] += 1
                if kind.effect == "hang late":
                    await asyncio.sleep(left)
                raise self._error(point)

    def between(self, point: str) -> bool:
        """Whether a call fails half-way."""
        for fault, kind in self._faults:
            if kind[1:] == (point, "fail between") and self._schedule.seconds_left(fault) > 0:
                self._schedule.struck[fault.kind] += 1
                return True
        return False

    def down(self, fault: Fault, point: str) -> WorkerFault:
        """Return the fault of a worker that has crashed and comes back when the window ends."""
        error = WorkerFault(f"worker {self.index} is down ({point})")
        error.back = self._back(fault)
        return error

    def _back(self, fault: Fault) -> Callable[[], Awaitable[None]]:
        async def back() -> None:
            left = self._schedule.seconds_left(fault)
            if left > 0:
                await asyncio.sleep(left)

        return back

    def crashes(self) -> list[Fault]:
        """Return the crashes of this part."""
        return [fault for fault, kind in self._faults if kind.effect == "crash"]


def _env_error(point: str) -> Exception:
    if point == "start":
        return EnvStartFailed("the desktop did not become ready (fuzz)")
    if point == "evaluate":
        return ScoreUnavailable("the evaluator failed (fuzz)")
    return EnvBroken(f"the desktop failed in {point} (fuzz)")


class FaultyEnv:
    """A desktop with faults; implements ``dartsim.core.ports.AsyncEnv``."""

    def __init__(self, inner: AsyncEnv, part: Part) -> None:
        self._inner = inner
        self._part = part

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Set up, or fail to."""
        self._part.enter()
        try:
            await self._part.before("setup")
            seen = await self._inner.reset(task, seed=seed)
            await self._part.after("setup")
            return seen
        finally:
            self._part.leave()

    async def step(self, action: str) -> StepResult:
        """Act, or break."""
        self._part.enter()
        try:
            await self._part.before("step")
            result = await self._inner.step(action)
            await self._part.after("step")
            return result
        finally:
            self._part.leave()

    async def evaluate(self) -> float:
        """Score, or fail to."""
        self._part.enter()
        try:
            await self._part.before("evaluate")
            score = await self._inner.evaluate()
            await self._part.after("evaluate")
            return score
        finally:
            self._part.leave()

    async def close(self) -> None:
        """Tear down; the answer may come late."""
        self._part.enter()
        try:
            await self._inner.close()
            try:
                await self._part.after("close")
            except EnvBroken:
                return  # the port never raises here
        finally:
            self._part.leave()


class FaultyProvider:
    """Starts desktops, or fails to; implements ``dartsim.core.ports.EnvProvider``."""

    def __init__(self, inner: EnvProvider, schedule: Schedule, num_desktops: int) -> None:
        self._inner = inner
        self._parts = [Part(schedule, "desktop", index, _env_error) for index in range(num_desktops)]

    async def start(self, slot: int) -> AsyncEnv:
        """Start one; nothing is left of one that fails."""
        part = self._parts[slot]
        part.enter()
        try:
            try:
                await part.before("start")
            except EnvBroken as error:
                raise EnvStartFailed(str(error)) from None
            env = await self._inner.start(slot)
            try:
                await part.after("start")
            except BaseException:
                with suppress(TimeoutError):  # what is cancelled gives everything back at once
                    async with asyncio.timeout(GIVE_UP_SECONDS):
                        await env.close()
                raise
            return FaultyEnv(env, part)
        finally:
            part.leave()


class FaultyWorker:
    """An engine with faults; implements ``dartsim.core.ports.PolicyWorker``.

    Args:
        inner: The engine, behind whatever else goes wrong with it.
        engine: The engine itself.
        schedule: What goes wrong.
    """

    def __init__(self, inner: PolicyWorker, engine: SimWorker, schedule: Schedule) -> None:
        self.inner = inner
        self.engine = engine
        self._part = Part(schedule, "worker", engine.index, self._error)
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        engine._load_fails = partial(self._part.between, "load")  # after the time of a load; its engine stays stopped
        for fault in self._part.crashes():
            if not schedule.is_past(fault):
                self._loop.call_at(fault.start, self._crash, fault)

    async def generate(self, request: Request) -> Reply:
        """Answer, or fail to."""
        self._part.enter()
        try:
            await self._part.before("generate")
            reply = await self.inner.generate(request)
            await self._part.after("generate")
            return reply
        finally:
            self._part.leave()

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Take new weights, or fail to."""
        self._part.enter()
        try:
            await self._part.before("load")
            began = self._loop.time()
            await self.inner.load(weights, mode)
            for fault in self._part.crashes():
                if began < fault.start <= self._loop.time():
                    raise self._part.down(fault, "load")
            await self._part.after("load")
        finally:
            self._part.leave()

    def _error(self, point: str) -> Exception:
        return WorkerFault(f"worker {self.engine.index} failed in {point} (fuzz)")

    def _crash(self, fault: Fault) -> None:
        """Take down what is live on it."""
        self._schedule.struck[fault.kind] += 1
        for job in self.engine.engine.abort_all():
            if not job.payload.done():
                job.payload.set_exception(self._part.down(fault, "generate"))


class FaultyLearner:
    """A trainer with faults; implements ``dartsim.core.ports.Learner``."""

    def __init__(self, inner: Learner, schedule: Schedule, update_seconds: float) -> None:
        self._inner = inner
        self._part = Part(schedule, "learner", 0, self._error)
        self._half = update_seconds / 2

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, or fail to: then nothing has changed."""
        self._part.enter()
        try:
            await self._part.before("update")
            if self._part.between("update"):
                await asyncio.sleep(self._half)
                self._fail()
            result = await self._inner.update(batch)
            await self._part.after("update")
            return result
        finally:
            self._part.leave()

    def _fail(self) -> NoReturn:
        raise self._error("update")

    def _error(self, point: str) -> Exception:
        return LearnerFault(f"the {point} failed (fuzz)")
