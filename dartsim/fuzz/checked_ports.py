"""Checked ports of the control plane: every call of a desktop, worker or learner, and its result.

The rules I1 to I15 and R7 are in docs/contributing.md. During a call the task belongs to the node of its component, so
that the perturbed loop may reorder it with tasks of other nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from dartsim.config import Config
from dartsim.core.errors import DartsimError, InvariantViolated
from dartsim.core.ports import AsyncEnv, EnvProvider, Learner, PolicyWorker
from dartsim.core.snapshots import Snapshots, WrappedSnapshots, snapshots_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Batch, Observation, Reply, Request, StepResult, Task, UpdateResult, Version, Weights
from dartsim.sim import Node
from dartsim.sim.tasks import NODE
from dartsim.sim.worker import SimWorker

SLACK_SECONDS = 1e-6
"""Tolerance of a deadline, for rounding errors."""


class RuleViolated(InvariantViolated):
    """A checked rule was broken; ``rule`` is its number."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class PortCall:
    """A call of a component, as a ``with`` block on the component's node; it has one call at a time.

    No generator's context manager: those took a tenth of the fuzzer's time.

    Attributes:
        name: Of the call.
        limit: Its largest duration, seconds; None: any.
        began: Its start.
    """

    __slots__ = ("_key", "_monitor", "_node", "began", "limit", "name")

    def __init__(self, monitor: PortMonitor, key: object, name: str, limit: float | None, node: Node) -> None:
        self._monitor = monitor
        self._key = key
        self._node = node
        self.name = name
        self.limit = limit
        self.began = 0.0

    def __enter__(self) -> None:
        monitor, key = self._monitor, self._key
        if key in monitor.calls:
            monitor.fail("I4", f"{self.name} was called during {monitor.calls[key].name}")
        self.began = monitor.time()
        monitor.calls[key] = self
        monitor.note("call", name=self.name)
        NODE.set(self._node)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        NODE.set(None)
        del self._monitor.calls[self._key]
        self._monitor.note("back", name=self.name)
        if isinstance(error, Exception) and not isinstance(error, (DartsimError, TimeoutError)):
            # The control plane masks it as a fault; of components that are ours it is a bug.
            self._monitor.fail(type(error).__name__, f"{self.name} raised {error!r}")


class PortMonitor:
    """Observations at the ports, and the first broken rule."""

    def __init__(self, config: Config, *, keep_log: bool = False) -> None:
        self.config = config
        self.ending: Callable[[], bool] = lambda: False
        self.dead = self.late = False
        self.violated: RuleViolated | None = None
        self.log: list[tuple[float, str, dict[str, Any]]] | None = [] if keep_log else None
        self.progress = 0.0
        self.scores: dict[int, float] = {}
        self.replies: dict[int, list[Reply]] = {}
        self.calls: dict[object, PortCall] = {}
        self.desktops: dict[int, object] = {}
        """Live desktop of each slot."""
        self.asking: dict[int, int] = {}
        """Worker that computes the current turn of each attempt."""
        self.updated: Version = 0
        """Newest version of the learner."""
        self.time = asyncio.get_running_loop().time

    def fail(self, rule: str, text: str) -> None:
        """Report that a rule was broken.

        Raises:
            RuleViolated: Always.
        """
        error = RuleViolated(rule, text)
        if not self.dead:
            self.violated = self.violated or error
            self.note("violated", rule=rule, text=text)
        raise error

    def note(self, event: str, **facts: Any) -> None:
        if self.log is not None and not self.dead:
            self.log.append((self.time(), event, facts))

    def call(self, key: object, name: str, limit: float | None, node: Node) -> PortCall:
        """Return the call of a component, for a ``with`` block."""
        return PortCall(self, key, name, limit, node)


class CheckedEnv:
    """A desktop: one attempt, one call at a time, no call after its end."""

    def __init__(self, monitor: PortMonitor, slot: int, inner: AsyncEnv, node: Node) -> None:
        self._monitor = monitor
        self._slot = slot
        self._inner = inner
        self._node = node
        self._limits = monitor.config.limits
        self._seed: int | None = None
        self._closed = False

    def _call(self, name: str, limit: float) -> PortCall:
        if self._closed:
            self._monitor.fail("I4", f"{name} was called on a desktop of slot {self._slot} that is closed")
        return self._monitor.call(self, f"{name} {self._slot}", limit, self._node)

    @property
    def snapshots(self) -> Snapshots | None:
        inner = snapshots_of(self._inner)
        return None if inner is None else CheckedSnapshots(inner, self)

    def restored(self) -> None:
        """Allow another attempt: nothing of the last one is left."""
        self._seed = None

    def snapshot_call(self, name: str) -> PortCall:
        return self._call(name, self._limits.setup_seconds)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        with self._call("setup", self._limits.setup_seconds):
            if self._seed is not None:
                self._monitor.fail("I4", f"the desktop of slot {self._slot} was given a second attempt")
            self._seed = seed
            return await self._inner.reset(task, seed=seed)

    async def step(self, action: str) -> StepResult:
        with self._call("step", self._limits.step_seconds):
            return await self._inner.step(action)

    async def evaluate(self) -> float:
        with self._call("evaluate", self._limits.evaluate_seconds):
            score = await self._inner.evaluate()
            if self._seed is not None:
                self._monitor.scores[self._seed] = score
            return score

    async def close(self) -> None:
        if self._closed:
            return
        try:
            with self._call("close", self._limits.close_seconds):
                self._closed = True
                await self._inner.close()
        finally:
            if self._closed:
                del self._monitor.desktops[self._slot]


class CheckedSnapshots(WrappedSnapshots):
    """Saved states of a desktop: only they allow it a second attempt."""

    def __init__(self, inner: Snapshots, env: CheckedEnv) -> None:
        super().__init__(inner)
        self._env = env

    @override
    async def save(self, key: str) -> int:
        with self._env.snapshot_call("save"):
            return await self._inner.save(key)

    @override
    async def restore(self, key: str) -> None:
        with self._env.snapshot_call("restore"):
            await self._inner.restore(key)
            self._env.restored()

    @override
    async def delete(self, key: str) -> None:
        with self._env.snapshot_call("delete"):
            await self._inner.delete(key)


class CheckedProvider:
    """Starts one desktop in each slot."""

    def __init__(self, monitor: PortMonitor, inner: EnvProvider) -> None:
        self._monitor = monitor
        self._inner = inner
        self._nodes: dict[int, Node] = {}

    async def start(self, slot: int) -> AsyncEnv:
        monitor = self._monitor
        node = self._nodes.setdefault(slot, Node(f"desktop-{slot}"))
        limits = monitor.config.rollout.limits  # a failed start tears down before it returns
        with monitor.call(("start", slot), f"start {slot}", limits.start_seconds + limits.close_seconds, node):
            if slot in monitor.desktops:
                monitor.fail("I9", f"a desktop was started in slot {slot}, where there is one that was not closed")
            env = CheckedEnv(monitor, slot, await self._inner.start(slot), node)
            monitor.desktops[slot] = env
            return env


class CheckedWorker:
    """An engine: loads do not overlap and versions rise; requests only reach a serving engine."""

    def __init__(self, monitor: PortMonitor, inner: PolicyWorker, engine: SimWorker, version: Version = 0) -> None:
        self.engine = engine
        self.index = engine.index
        self.version = version
        self.usable = True
        self.live = 0
        self._inner = inner
        self._node = Node(f"worker-{engine.index}")
        self._monitor = monitor
        self._loading = False
        self._newest = version
        """Newest version of any load."""
        self._keeps = monitor.config.rollout.sync.sync_mode.keeps_requests
        self._request_seconds = monitor.config.rollout.limits.request_seconds

    async def generate(self, request: Request) -> Reply:
        """Answer one turn, which no other worker computes at the same time."""
        monitor, attempt = self._monitor, request.attempt.id
        if self._loading or not self.usable:
            what = "loads weights" if self._loading else "has no weights"
            monitor.fail("I10", f"worker {self.index} was asked for attempt {attempt} while it {what}")
        if attempt in monitor.asking:
            other = monitor.asking[attempt]
            monitor.fail("I4", f"attempt {attempt} asks worker {self.index} while worker {other} answers")
        monitor.asking[attempt] = self.index
        self.live += 1
        asked = self.version
        name = f"generate {attempt} on {self.index}"
        try:
            with monitor.call((self.index, attempt), name, self._request_seconds, self._node):
                reply = await self._inner.generate(request)
        finally:
            self.live -= 1
            del monitor.asking[attempt]
        self._check(request, reply, asked)
        return reply

    def _check(self, request: Request, reply: Reply, asked: Version) -> None:
        """Compare a reply with the worker's versions; delayed messages may cross a load.

        An engine may serve new weights before the call that loads them has returned.
        """
        monitor = self._monitor
        first = asked if monitor.late else self.version
        last = self._newest if monitor.late or self._loading else self.version
        if reply.worker != self.index or not first <= reply.version <= last:
            monitor.fail(
                "I7", f"worker {self.index} of version {self.version} answered as {reply.worker}: {reply.version}"
            )
        mixes = reply.oldest_version < reply.version and not self._keeps
        if reply.oldest_version > reply.version or (mixes and not monitor.late):
            monitor.fail("I7", f"a reply mixes versions {reply.oldest_version} and {reply.version}")
        turns = monitor.replies.setdefault(request.attempt.id, [])
        if request.turn != len(turns):
            monitor.fail("I7", f"attempt {request.attempt.id} asked for turn {request.turn} after {len(turns)} replies")
        turns.append(reply)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Load newer, committed weights, one load at a time, without live requests if drained."""
        monitor, version = self._monitor, weights.version
        monitor.note("load", worker=self.index, version=version)
        if self._loading:
            monitor.fail("I10", f"worker {self.index} was told to load version {version} during another load")
        if version < self.version:
            monitor.fail("I6", f"worker {self.index} was told to go from version {self.version} back to {version}")
        if version > monitor.updated:
            monitor.fail(
                "I6", f"worker {self.index} was told to load version {version}, the learner made {monitor.updated}"
            )
        if mode.drains and self.live:
            monitor.fail("I10", f"worker {self.index} was to be drained and loads with {self.live} live requests")
        self._loading, self.usable, self._newest = True, False, version
        limit = monitor.config.rollout.limits.load_seconds
        try:
            with monitor.call(self, f"load {version} on {self.index}", limit, self._node):
                await self._inner.load(weights, mode)
            self.version, self.usable = version, True
        finally:
            self._loading = False
        monitor.note("loaded", worker=self.index, version=version)


class CheckedLearner:
    """A learner: one update at a time, with versions in order."""

    def __init__(self, monitor: PortMonitor, inner: Learner) -> None:
        self._monitor = monitor
        self._inner = inner
        self._node = Node("learner-0")

    async def update(self, batch: Batch) -> UpdateResult:
        monitor = self._monitor
        with monitor.call("update", f"update {batch.update}", None, self._node):
            if not batch.trajectories or batch.update != monitor.updated + 1:
                text = f"update {batch.update} of {len(batch.trajectories)} after version {monitor.updated}"
                monitor.fail("I6", text)
            result = await self._inner.update(batch)
            monitor.updated = result.weights.version
            return result
