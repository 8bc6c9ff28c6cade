"""Seeded perturbation: a random order between nodes, and occasional long latencies.

asyncio guarantees first come, first served, and code may rely on it within one machine. Nothing guarantees an order
between machines, or that a message takes as long as the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass
from math import inf
from typing import Any

from dartsim.core.rng import Streams
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.event_heap import SoonHandle, Timer
from dartsim.sim.loop import SimLoop
from dartsim.sim.loop_services import WAKE_SLEEPER
from dartsim.sim.tasks import NODE, Node

DRAWS = 1024
"""Uniform numbers drawn at once: one at a time would cost more than the decisions they are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """What a perturbed simulation varies, depending on its seed, besides which node with something ready runs next.

    Attributes:
        latency_share: Share of latencies that are stretched, in [0, 1]: those that pass through
            ``SimEnvironment.delay``, and every ``asyncio.sleep`` on a simulated node.
        latency_seconds: Range of the uniformly drawn extra time of a stretched latency.
    """

    latency_share: float = 0.02
    latency_seconds: tuple[float, float] = (1.0, 60.0)

    def __post_init__(self) -> None:
        low, high = self.latency_seconds
        if not 0 <= self.latency_share <= 1:
            raise ValueError(f"latency_share must lie in [0, 1], got {self.latency_share}")
        if not 0 <= low <= high:
            raise ValueError(f"latency_seconds must be a range (low, high) from 0 up, got {self.latency_seconds}")


class _PerturbedEnvironment(SimEnvironment):
    """A world with occasional long latencies."""

    def __init__(self, perturbation: Perturbation, uniforms: Iterator[float]) -> None:
        super().__init__()
        self._share = perturbation.latency_share
        self._low, high = perturbation.latency_seconds
        self._width = high - self._low
        self._uniforms = uniforms

    def delay(self, seconds: float) -> float:
        if next(self._uniforms) < self._share:
            return seconds + self._low + self._width * next(self._uniforms)
        return seconds

    def calm(self) -> None:
        self._share = 0.0


class _NodeQueue:
    """The ready queue of one node, as on an asyncio loop of its own.

    Attributes:
        ready: Callbacks of this generation and the next.
        due: Due timers, which also run in the next generation.
        left: Number of remaining calls in this generation.
        active: Whether it has anything to call and so is in the loop's list.
    """

    __slots__ = ("active", "due", "left", "ready")

    def __init__(self) -> None:
        self.ready: deque[Any] = deque()
        self.due: list[Any] = []
        self.left = 0
        self.active = False


class PerturbedLoop(SimLoop):
    """A ``SimLoop`` that picks nodes at random, and keeps asyncio's order on each."""

    env: _PerturbedEnvironment

    def __init__(self, perturbation: Perturbation, *, seed: int = 0, **options: Any) -> None:
        streams = Streams(seed)
        environment = _PerturbedEnvironment(perturbation, _uniforms(streams, "perturb/latency"))
        super().__init__(seed=seed, env=environment, **options)
        self._choices = _uniforms(streams, "perturb/order")
        self._queues: dict[Node | None, _NodeQueue] = {}
        self._active: list[_NodeQueue] = []

    def call_soon(self, *call: Any, context: Context | None = None) -> SoonHandle:  # type: ignore[override]
        """Call ``callback(*args)`` in the next generation of its node."""
        context = copy_context() if context is None else context
        handle = SoonHandle(call, context)
        node = context.get(NODE)
        queue = self._queues.get(node)
        if queue is None or not queue.active:
            queue = self._activated(node)
        queue.ready.append(handle)
        return handle

    def call_later(self, delay: float, *call: Any, context: Context | None = None) -> Timer:  # type: ignore[override]
        """Call ``callback(*args)`` after ``delay`` seconds; a sleep on a node may take longer."""
        context = copy_context() if context is None else context
        if call[0] is WAKE_SLEEPER and context.get(NODE) is not None:
            delay = self.env.delay(delay)
        return self.call_at(self.env._now + delay, *call, context=context)

    def calm(self) -> None:
        """Stop stretching latencies; the order between nodes remains random."""
        self.env.calm()

    def close(self) -> None:
        super().close()
        self._queues.clear()
        self._active.clear()

    def _activated(self, node: Node | None) -> _NodeQueue:
        """Return a node's queue, which now has something to call."""
        queue = self._queues.get(node)
        if queue is None:
            queue = self._queues[node] = _NodeQueue()
        if not queue.active:
            queue.active = True
            self._active.append(queue)
        return queue

    def _spin(self) -> None:
        """Run until ``stop`` is called, one callback at a time. The hot path: inlined, with everything in locals."""
        env, limits, active = self.env, self._limits, self._active
        choose, peek, pop = self._choices.__next__, self.env.peek, self.env.pop
        max_events = limits.max_events
        alarm = limits.alarm  # it only ever moves later, when ring() returns a new one
        while True:
            # Due timers join the queues of their nodes, and due events of the world happen; peek drops canceled ones.
            while (when := peek()) <= env._now:
                timer = pop()
                call: Any = timer._call
                if timer._context is not None:
                    self._activated(timer._context.get(NODE)).due.append(timer)
                    continue
                self._num_events += 1
                if self._num_events > max_events:
                    raise self._too_many_events()
                timer._call = None
                call[0](*call[1:])
            if active:
                index = int(choose() * len(active)) if len(active) > 1 else 0
                queue = active[index]
                ready, due = queue.ready, queue.due
                if queue.left == 0:
                    ready.extend(due)
                    due.clear()
                    queue.left = len(ready)
                queue.left -= 1
                handle = ready.popleft()
                self._num_events += 1
                self._digest = hash((self._digest, index))
                if not ready and not due:
                    queue.active = False
                    active[index] = active[-1]
                    active.pop()
                call = handle._call
                if call is not None:
                    try:
                        handle._context.run(*call)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as exc:
                        self._callback_failed(exc, handle)
                if self._num_events > max_events:
                    raise self._too_many_events()
            elif not self._stopping:
                while alarm < when < inf:
                    alarm = limits.ring(env, when, self._waiting)
                if when == inf:
                    raise self._stalled()
                self._digest = hash((self._digest, env._now, self._num_events))
                env._now = when
            if self._stopping:
                return


def _uniforms(streams: Streams, name: str) -> Iterator[float]:
    rng = streams.rng(name)
    while True:
        yield from rng.random(DRAWS).tolist()
