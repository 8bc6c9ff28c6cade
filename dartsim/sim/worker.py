"""Inference in virtual time: workers whose replies take modeled time, and the network latency in front of them.

Compiled in wheels; ``dartsim.sim.model_worker`` has the worker whose replies come from a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from dartsim.core.compiled import mypyc_attr
from dartsim.core.errors import WorkerFault, WorkerRestarted
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Reply, Request, Version, Weights, new_reply
from dartsim.observe import Track
from dartsim.rollout import Service, Session
from dartsim.sim.control_loop import ControlLoop
from dartsim.sim.engine import EngineJob, FluidEngine
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.measured_engines import BatchEngine, SharedEngine
from dartsim.sim.pause import Pause
from dartsim.sim.prompts import PromptModel
from dartsim.sim.surrogate import ReplyPolicy

PartialReply = tuple[int, Version, int, int]
"""Turn, first version, tokens, and those that are left to generate."""


class PrefixCache:
    """The sessions whose last prompts an engine still has cached: the newest ones, as many as fit.

    Invariant: at most ``max_sessions`` are remembered.
    """

    __slots__ = ("_max_sessions", "_turns")

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._turns: dict[int, int] = {}

    def use(self, session: int, turn: int) -> bool:
        """Record that the engine computes a session's turn; return whether it has the turn before cached."""
        turns = self._turns
        warm = turns.pop(session, -2) == turn - 1
        turns[session] = turn
        if len(turns) > self._max_sessions:
            del turns[next(iter(turns))]
        return warm

    def clear(self) -> None:
        self._turns.clear()


@mypyc_attr(allow_interpreted_subclasses=True)
class SimWorker:
    """An engine model behind the port ``PolicyWorker``.

    Args:
        index: Its number in the pool.
        engine: The model of a GPU, or of an engine measured from outside.
        prompts: Prompt sizes by turn.
        policy: Decides the replies.
        reply_tokens: Draws the length of a reply.
        reload_seconds: Draws the time of a weight sync.
        prefix_cache: Whether prompts reuse the session's last prompt on this engine; only the model of a GPU has such
            a cache.
        transfer_seconds: Draws the time of a weight sync without a restart; by default ``reload_seconds``.
        forgets: Whether requests kept over a weight sync lose their keys and values: they are aborted and resubmitted
            with the tokens generated so far (model of a GPU only).
        retry_seconds: Time until they are resubmitted.
        control: The event loop that handles replies and loads, if it is so busy that they queue for it.
        prepare_seconds: Time of a weight sync before it affects the engine, such as writing the weights to disk.
        release_seconds: Time of giving its GPU back to the trainer.
        begun: Replies that clients have in part, shared by all workers.
    """

    def __init__(
        self,
        index: int,
        engine: FluidEngine | BatchEngine | SharedEngine,
        *,
        prompts: PromptModel,
        policy: ReplyPolicy,
        reply_tokens: Callable[[], int],
        reload_seconds: Callable[[], float],
        prefix_cache: bool = True,
        transfer_seconds: Callable[[], float] | None = None,
        forgets: bool = False,
        retry_seconds: float = 0.0,
        control: ControlLoop | None = None,
        prepare_seconds: float = 0.0,
        release_seconds: float = 0.0,
        begun: dict[int, PartialReply] | None = None,
    ) -> None:
        self.index: Any = index  # a number; see _reply
        self.engine = engine
        self.version: Version = 0
        self._loop = asyncio.get_running_loop()
        self._cold, self._warm = prompts.cold, prompts.warm
        self._last = prompts.num_turns - 1
        self._policy = policy
        self._reply_tokens = reply_tokens
        self._reload_seconds = reload_seconds
        self._transfer_seconds = transfer_seconds or reload_seconds
        self._forgets = forgets
        self._retry_seconds = retry_seconds
        self._control = control
        self._prepare_seconds = prepare_seconds
        self._release_seconds = release_seconds
        self._begun: dict[int, PartialReply] = {} if begun is None else begun
        self._done: Callable[[EngineJob], None] = _answer if control is None else partial(control.reply, _answer)
        self._again: dict[asyncio.Future[None], EngineJob] = {}
        """Jobs that replace those aborted by a weight change, by the future that waits for them."""
        self._kept: dict[asyncio.Future[None], int] = {}
        """Tokens of replies that ended as the GPU was given back, which clients keep, by the future that fails."""
        self._restarting = False
        """Whether a restart or a release has begun and no weights were loaded since; requests are refused meanwhile."""
        self.load_fails: Callable[[], bool] = lambda: False
        """Called at the end of a load; returns whether it failed."""
        self._has_prefixes = isinstance(engine, FluidEngine)
        """Whether the engine reports prefix cache hits; one measured from outside does not."""
        self._cache: PrefixCache | None = None
        if prefix_cache and isinstance(engine, FluidEngine):
            mean_context = prompts.cold[min(prompts.max_images, self._last)].tokens
            self._cache = PrefixCache(max_sessions=max(1, engine.profile.kv_capacity_tokens // mean_context))

    async def generate(self, request: Request) -> Reply:
        if self._restarting:  # it was in transit when the restart began
            raise WorkerRestarted(f"worker {self.index} is being restarted for other weights")
        turn = request.turn
        warm = self._cache is not None and self._cache.use(request.attempt.id, turn)
        table = self._warm if warm else self._cold
        size: tuple[Any, Any, Any] = table[turn if turn < self._last else self._last]  # see _reply
        prompt_tokens, found, images = size
        version = self.version
        tokens = left = self._reply_tokens()
        if self._begun:
            version, tokens, left = self._continued(request, version, tokens)
            found = found if left == tokens else 0
        future = self._loop.create_future()
        job = first = self.engine.submit(prompt_tokens + tokens - left, found, images, left, self._done, future)
        try:
            await future
        except BaseException:
            job = self._again.pop(future, job)
            if future in self._kept:
                self._begun[request.attempt.id] = turn, version, tokens, job.output_tokens - self._kept.pop(future)
            self.engine.abort(job)
            del future, job, first  # the error's traceback leads here: a cycle, which only the collector would free
            raise
        if self._again:
            job = self._again.pop(future, job)
        if self.engine.atomic:
            version = self.version
        cached: Any = None
        if self._has_prefixes:
            cached = found if job is first else job.cached_tokens
        return self._reply(request, version, prompt_tokens, tokens, cached)

    def _reply(self, request: Request, version: Version, prompt: Any, tokens: int, cached: Any) -> Reply:
        """Return the reply once the latency has passed; ``version`` is that at the start of the request.

        Numbers shared by replies are ``Any``, because mypyc would create a new object for an ``int`` in each reply.
        """
        action = self._policy.act(request)
        return new_reply((action, self.version, version, self.index, prompt, tokens, None, None, None, cached))

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Load new weights after the modeled time; the mode decides what happens to running requests."""
        if self._prepare_seconds:
            await asyncio.sleep(self._prepare_seconds)
        if mode.kills_requests:
            self._restarting = True
            self.kill(lambda: WorkerRestarted(f"worker {self.index} was restarted for version {weights.version}"))
        elif mode.keeps_requests:
            self.engine.pause()
        draw = self._reload_seconds if mode.restarts_engine else self._transfer_seconds
        if self._control is None:
            await asyncio.sleep(self.engine.seconds_until_still + draw())
        else:
            await self._wait_for_load(self._control, draw())
        if self.load_fails():
            # Kept requests stay frozen: an engine without weights serves nothing.
            raise WorkerFault(f"worker {self.index} could not load version {weights.version}")
        self.version = weights.version
        self._restarting = False
        if self._cache is not None:
            self._cache.clear()
        if mode.keeps_requests and self._forgets and isinstance(self.engine, FluidEngine):
            self._resubmit_kept(self.engine)
        self.engine.resume()

    async def _wait_for_load(self, control: ControlLoop, seconds: float) -> None:
        """Wait for a load, and for a busy event loop to notice that the engine is idle and later that it is loaded."""
        if isinstance(self.engine, BatchEngine):
            await self.engine.wait_until_still()
        await control.turn()  # a thread loads the weights
        await asyncio.sleep(self.engine.seconds_until_still + seconds)
        await control.turn()

    def kill(self, fault: Callable[[], WorkerFault]) -> None:
        """Fail all live requests, and free their resources in the engine."""
        for job in self.engine.abort_all():
            _fail(job, fault())
        if self._cache is not None:
            self._cache.clear()

    async def release(self) -> None:
        """Give the GPU back after the modeled time; clients whose requests would be kept keep their tokens."""
        self._restarting = True
        fault = f"worker {self.index} gave its GPU back"
        if self._forgets and isinstance(self.engine, FluidEngine):
            for job, generated in self.engine.forget():
                self._kept[job.payload] = generated
                _fail(job, WorkerRestarted(fault))
        self.kill(lambda: WorkerRestarted(fault))
        self.engine.resume()  # a load that was canceled left it paused
        await asyncio.sleep(self._release_seconds)

    def _continued(self, request: Request, version: Version, tokens: int) -> tuple[Version, int, int]:
        """Return a reply's first version, its tokens and those that are left, if its client has a part of it."""
        turn, first, whole, left = self._begun.pop(request.attempt.id, (-1, version, tokens, tokens))
        return (first, whole, left) if turn == request.turn else (version, tokens, tokens)

    def _resubmit_kept(self, engine: FluidEngine) -> None:
        """Abort the kept requests, and resubmit them with their tokens so far after ``retry_seconds``."""
        for job, generated in engine.forget():
            self._loop.call_later(self._retry_seconds, self._resubmit, engine, job, generated)

    def _resubmit(self, engine: FluidEngine, job: EngineJob, generated: int) -> None:
        future = job.payload
        if not future.done():
            prompt, left = job.prompt_tokens + generated, job.output_tokens - generated
            self._again[future] = engine.submit(prompt, 0, job.images, left, self._done, future)


def _answer(job: EngineJob) -> None:
    future = job.payload
    if not future.done():
        future.set_result(None)


def _fail(job: EngineJob, fault: WorkerFault) -> None:
    future = job.payload
    if not future.done():
        future.set_exception(fault)


class DelayedSession:
    """A session whose requests reach the pool after a latency."""

    __slots__ = ("_env", "_inner", "_seconds")

    def __init__(self, inner: Session, env: SimEnvironment, seconds: float) -> None:
        self._inner = inner
        self._env = env
        self._seconds = seconds

    async def generate(self, request: Request) -> Reply:
        env = self._env
        await Pause(env, env.delay(self._seconds))  # a perturbed world may stretch it
        return await self._inner.generate(request)

    def close(self) -> None:
        self._inner.close()


class DelayedService:
    """A service behind a constant latency of ``seconds`` per request, both directions together."""

    def __init__(self, inner: Service, env: SimEnvironment, seconds: float) -> None:
        self._inner = inner
        self._env = env
        self._seconds = seconds

    def session(self, attempt: Attempt, track: Track) -> Session:
        return DelayedSession(self._inner.session(attempt, track), self._env, self._seconds)
