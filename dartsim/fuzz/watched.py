"""The ports, watched: each call is checked on its way in and on its way out."""

from __future__ import annotations

from dartsim.core.ports import AsyncEnv, EnvProvider, Learner, PolicyWorker, SyncMode
from dartsim.core.types import Batch, Observation, Reply, Request, StepResult, Task, UpdateResult, Version, Weights
from dartsim.fuzz.watch import Watch


class WatchedEnv:
    """A desktop: one attempt, one call at a time, nothing after its end."""

    def __init__(self, watch: Watch, place: int, inner: AsyncEnv) -> None:
        self._watch = watch
        self._place = place
        self._inner = inner
        self._limits = watch.config.rollout.limits
        self._seed: int | None = None
        self._closed = False

    def _open(self, name: str, limit: float) -> None:
        if self._closed:
            self._watch.fail("I4", f"{name} was called on a desktop of place {self._place} that is closed")
        self._watch.begin(self, f"{name} {self._place}", limit)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Set up, for one attempt alone."""
        self._open("setup", self._limits.setup_seconds)
        try:
            if self._seed is not None:
                self._watch.fail("I4", f"the desktop of place {self._place} was given a second attempt")
            self._seed = seed
            return await self._inner.reset(task, seed=seed)
        finally:
            self._watch.end(self)

    async def step(self, action: str) -> StepResult:
        """Act."""
        self._open("step", self._limits.step_seconds)
        try:
            return await self._inner.step(action)
        finally:
            self._watch.end(self)

    async def evaluate(self) -> float:
        """Score, and remember the score."""
        self._open("evaluate", self._limits.evaluate_seconds)
        try:
            score = await self._inner.evaluate()
            if self._seed is not None:
                self._watch.scores[self._seed] = score
            return score
        finally:
            self._watch.end(self)

    async def close(self) -> None:
        """Tear down; the second time is nothing."""
        if self._closed:
            return
        self._open("close", self._limits.close_seconds)
        self._closed = True
        try:
            await self._inner.close()
        finally:
            self._watch.end(self)
            del self._watch.desktops[self._place]


class WatchedProvider:
    """Starts desktops: one in each place."""

    def __init__(self, watch: Watch, inner: EnvProvider) -> None:
        self._watch = watch
        self._inner = inner

    async def start(self, slot: int) -> AsyncEnv:
        """Start one where none is."""
        watch = self._watch
        key = ("start", slot)
        limits = watch.config.rollout.limits  # one that is given up in the end is torn down before it returns
        watch.begin(key, f"start {slot}", limits.start_seconds + limits.close_seconds)
        try:
            if slot in watch.desktops:
                watch.fail("I9", f"a desktop was started in place {slot}, where there is one that was not closed")
            env = WatchedEnv(watch, slot, await self._inner.start(slot))
            watch.desktops[slot] = env
            return env
        finally:
            watch.end(key)


class WatchedWorker:
    """An engine: loads do not overlap and rise, requests come to an engine that serves."""

    def __init__(self, watch: Watch, index: int, inner: PolicyWorker, version: Version = 0) -> None:
        self.inner = inner
        self.index = index
        self.version = version
        self.usable = True
        self.live = 0
        self._watch = watch
        self._loading = False
        self._told = version
        """Newest version that it was told to load."""
        self._keeps = watch.config.rollout.sync.mode == "keep"
        self._request_seconds = watch.config.rollout.limits.request_seconds

    async def generate(self, request: Request) -> Reply:
        """Answer one turn, which no other worker is asked at the same time."""
        watch, attempt = self._watch, request.attempt.id
        if self._loading or not self.usable:
            what = "loads weights" if self._loading else "has no weights"
            watch.fail("I10", f"worker {self.index} was asked for attempt {attempt} while it {what}")
        if attempt in watch.asking:
            watch.fail("I4", f"attempt {attempt} asks worker {self.index} while worker {watch.asking[attempt]} answers")
        watch.asking[attempt] = self.index
        self.live += 1
        key = (self.index, attempt)
        watch.begin(key, f"generate {attempt} on {self.index}", self._request_seconds)
        asked = self.version
        try:
            reply = await self.inner.generate(request)
        finally:
            watch.end(key)
            self.live -= 1
            del watch.asking[attempt]
        self._check(request, reply, asked)
        return reply

    def _check(self, request: Request, reply: Reply, asked: Version) -> None:
        """Compare a reply with what the worker had.

        Where messages take their time, a reply may arrive after a load that came after it, or before the answer of a
        load that came before it.
        """
        watch = self._watch
        first, last = (asked, self._told) if watch.late else (self.version, self.version)
        if reply.worker != self.index or not first <= reply.version <= last:
            watch.fail(
                "I7", f"worker {self.index} of version {self.version} answered as {reply.worker}: {reply.version}"
            )
        mixes = reply.oldest_version < reply.version and not self._keeps
        if reply.oldest_version > reply.version or (mixes and not watch.late):
            watch.fail("I7", f"a reply mixes versions {reply.oldest_version} and {reply.version}")
        turns = watch.replies.setdefault(request.attempt.id, [])
        if request.turn != len(turns):
            watch.fail("I7", f"attempt {request.attempt.id} asked for turn {request.turn} after {len(turns)} replies")
        turns.append(reply)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Take newer weights that were committed, one load at a time, no live request if they were to be drained."""
        watch, version = self._watch, weights.version
        watch.note("load", worker=self.index, version=version)
        if self._loading:
            watch.fail("I10", f"worker {self.index} was told to load version {version} during another load")
        if version < self.version:
            watch.fail("I6", f"worker {self.index} was told to go from version {self.version} back to {version}")
        if version > watch.updated:
            watch.fail(
                "I6", f"worker {self.index} was told to load version {version}, the learner made {watch.updated}"
            )
        if mode is SyncMode.DRAIN and self.live:
            watch.fail("I10", f"worker {self.index} was to be drained and loads with {self.live} live requests")
        self._loading, self.usable, self._told = True, False, version
        watch.begin(self, f"load {version} on {self.index}", watch.config.rollout.limits.load_seconds)
        try:
            await self.inner.load(weights, mode)
            self.version, self.usable = version, True
        finally:
            self._loading = False
            watch.end(self)
        watch.note("loaded", worker=self.index, version=version)

    @property
    def loading(self) -> bool:
        """Whether weights are being loaded."""
        return self._loading


class WatchedLearner:
    """A trainer: one update at a time, of versions in order."""

    def __init__(self, watch: Watch, inner: Learner) -> None:
        self._watch = watch
        self._inner = inner

    async def update(self, batch: Batch) -> UpdateResult:
        """Train."""
        watch = self._watch
        watch.begin("update", f"update {batch.update}", None)
        try:
            if not batch.trajectories or batch.update != watch.updated + 1:
                watch.fail("I6", f"update {batch.update} of {len(batch.trajectories)} after version {watch.updated}")
            result = await self._inner.update(batch)
            watch.updated = result.weights.version
            return result
        finally:
            watch.end("update")
