"""Checked ports of the control plane: they check every call of a desktop, worker or learner, and its result.

The rules I1 to I15 and R7 are in docs/contributing.md. During a call its task belongs to the node of the component, so
that the perturbed loop may reorder it with tasks of other nodes.
"""

from __future__ import annotations

from typing import cast

from typing_extensions import override

from dartsim.core.errors import LearnerFault, UpdateUncertain
from dartsim.core.ports import AsyncEnv, EnvProvider, Learner, LentWorker, PolicyWorker
from dartsim.core.snapshots import Snapshots, WrappedSnapshots, snapshot_key, snapshots_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import (
    Attempt,
    Batch,
    Observation,
    Reply,
    Request,
    StepResult,
    Task,
    UpdateResult,
    Version,
    Weights,
)
from dartsim.fuzz.checked_store import CheckedStore
from dartsim.fuzz.port_monitor import PortCall, PortMonitor
from dartsim.observe import Track
from dartsim.rollout import Service, Session
from dartsim.rollout.snapshot_library import BOOTED
from dartsim.sim import Node
from dartsim.sim.worker import SimWorker


class CheckedEnv:
    """A desktop: serves one attempt, with one call at a time, and none after its end."""

    def __init__(self, monitor: PortMonitor, slot: int, inner: AsyncEnv, node: Node) -> None:
        self._monitor = monitor
        self._slot = slot
        self._inner = inner
        self._node = node
        self._limits = monitor.limits
        self._seed: int | None = None
        self._state: str | None = None
        """The saved state that the desktop is in."""
        self._closed = False

    def _call(self, name: str, limit: float) -> PortCall:
        if self._closed:
            self._monitor.fail("I4", f"{name} was called on a desktop of slot {self._slot} that is closed")
        return self._monitor.call(self, f"{name} {self._slot}", limit, self._node)

    @property
    def snapshots(self) -> Snapshots | None:
        inner = snapshots_of(self._inner)
        return None if inner is None else CheckedSnapshots(inner, self)

    def note_restored(self, name: str) -> None:
        """Note that a state was restored, which allows another attempt."""
        self._seed, self._state = None, name.rpartition("-")[0]

    def snapshot_call(self, name: str) -> PortCall:
        return self._call(name, self._limits.setup_seconds)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        with self._call("setup", self._limits.setup_seconds):
            if self._seed is not None:
                self._monitor.fail("I4", f"the desktop of slot {self._slot} was given a second attempt")
            if self._state not in (None, BOOTED) and self._state != snapshot_key(task):
                self._monitor.fail("I4", f"task {task.id} is set up in slot {self._slot} in the state of another task")
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
    """Saved states of a desktop; only a restored state allows a second attempt."""

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
            self._env.note_restored(key)

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
    """An engine: loads do not overlap, versions increase, and requests only reach a serving engine."""

    def __init__(self, monitor: PortMonitor, inner: PolicyWorker, engine: SimWorker, version: Version = 0) -> None:
        self.engine = engine
        self.index = engine.index
        self.version = version
        self.usable = self.holds_gpu = engine.index < monitor.config.rollout.num_workers  # the others are not lent yet
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
        """Answer one turn, which no other worker may compute at the same time."""
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
        if reply.oldest_version != asked and not (monitor.late or self.engine.engine.atomic):
            monitor.fail("I7", f"a reply of version {asked} on says that its oldest one is {reply.oldest_version}")
        turns = monitor.replies.setdefault(request.attempt.id, [])
        if request.turn != len(turns):
            monitor.fail("I7", f"attempt {request.attempt.id} asked for turn {request.turn} after {len(turns)} replies")
        turns.append(reply)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Load newer, committed weights: one load at a time, without live requests in mode drain."""
        monitor, version = self._monitor, weights.version
        monitor.note("load", worker=self.index, version=version)
        if self._loading:
            monitor.fail("I10", f"worker {self.index} was told to load version {version} during another load")
        if version < self.version:
            monitor.fail("I6", f"worker {self.index} was told to go from version {self.version} back to {version}")
        stored = 0 if monitor.store is None else monitor.store.version
        if version > stored:
            monitor.fail("I6", f"worker {self.index} was told to load version {version}, {stored} is committed")
        if mode.drains and self.live:
            monitor.fail("I10", f"worker {self.index} was to be drained and loads with {self.live} live requests")
        self._loading, self.usable, self._newest = True, False, version
        self.holds_gpu = True
        limit = monitor.config.rollout.limits.load_seconds
        try:
            with monitor.call(self, f"load {version} on {self.index}", limit, self._node):
                await self._inner.load(weights, mode)
            self.version, self.usable = version, True
        finally:
            self._loading = False
        monitor.note("loaded", worker=self.index, version=version)

    async def release(self) -> None:
        """Give a lent GPU back; then it serves nothing until a load."""
        monitor = self._monitor
        monitor.note("release", worker=self.index)
        if self._loading:
            monitor.fail("I10", f"worker {self.index} was told to give its GPU back during a load")
        self.usable = False
        limit = monitor.config.rollout.limits.load_seconds
        with monitor.call(self, f"release of {self.index}", limit, self._node):
            await cast(LentWorker, self._inner).release()
        self.holds_gpu = False


class CheckedLearner:
    """A learner: one update at a time, with versions in order."""

    def __init__(self, monitor: PortMonitor, inner: Learner, store: CheckedStore) -> None:
        self._monitor = monitor
        self._inner = inner
        self._store = store
        self._uncertain: list[int] | None = None
        """Attempts of an update whose outcome is unknown."""
        self._node = Node("learner-0")

    async def update(self, batch: Batch) -> UpdateResult:
        monitor = self._monitor
        with monitor.call("update", f"update {batch.update}", None, self._node):
            if not batch.trajectories or batch.update != monitor.updated + 1:
                text = f"update {batch.update} of {len(batch.trajectories)} after version {monitor.updated}"
                monitor.fail("I6", text)
            self._store.check_update(batch)
            ids = [t.attempt.id for t in batch.trajectories]
            if self._uncertain not in (None, ids):
                monitor.fail("I4", f"update {batch.update} may have trained {self._uncertain}; now it has {ids}")
            try:
                result = await self._inner.update(batch)
            except LearnerFault as fault:
                self._uncertain = ids if isinstance(fault, UpdateUncertain) else None
                raise
            self._uncertain = None
            monitor.updated = result.weights.version
            monitor.pooled = len(batch.trajectories) - len(batch.own.trajectories)
            return result


class CheckedSession:
    """A session of a lockstep attempt, as the turns see it.

    Attributes:
        track: Its desktop.
        opened: Time of its opening.
        asked: Start of its last request; None: no request yet.
        replied: Time of the reply to that request; None: no reply yet.
    """

    def __init__(self, monitor: PortMonitor, inner: Session, attempt: int, track: Track) -> None:
        self._monitor = monitor
        self._inner = inner
        self._attempt = attempt
        self.track = track
        self.opened = monitor.time()
        self.asked: float | None = None
        self.replied: float | None = None
        self.asking = False

    async def generate(self, request: Request) -> Reply:
        self.asked, self.replied, self.asking = self._monitor.time(), None, True
        try:
            reply = await self._inner.generate(request)
        finally:
            self.asking = False
        self.replied = self._monitor.time()
        return reply

    def close(self) -> None:
        self._monitor.sessions.pop(self._attempt, None)
        self._inner.close()


class CheckedService:
    """The service below the lockstep turns, where attempts begin."""

    def __init__(self, monitor: PortMonitor, inner: Service) -> None:
        self._monitor = monitor
        self._inner = inner

    def session(self, attempt: Attempt, track: Track) -> Session:
        monitor = self._monitor
        monitor.slot_began(track.index, attempt)
        if attempt.turn_limit > monitor.config.rollout.max_turns:
            monitor.fail("I2", f"attempt {attempt.id} may take {attempt.turn_limit} turns")
        inner = self._inner.session(attempt, track)
        if not monitor.config.rollout.lockstep:
            return inner
        session = monitor.sessions[attempt.id] = CheckedSession(monitor, inner, attempt.id, track)
        return session
