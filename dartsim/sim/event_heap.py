"""The heap of a simulated world and the ready queue of its loop, through which every event passes.

All future events are timers on one heap, ordered by (time, priority, number): calls of the world, which include SimPy's
events, and calls of the asyncio loop that drives it. Wheels contain the same in C (``event_heap.c``), which Python then
imports in place of this module; this is the reference that the C code is compared with. Neither depends on SimPy's or
asyncio's base classes.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from simpy.core import Infinity
from simpy.events import NORMAL

from dartsim.sim.loop_services import WAKE_SLEEPER

COMPACT_ABOVE = 64
"""Number of cancelled entries up to which compacting the heap is not worthwhile."""


class SoonHandle:
    """A callback in the ready queue.

    Not an ``asyncio.Handle``, because nothing here needs its eight slots.
    """

    __slots__ = ("_call", "_context")

    def __init__(self, call: tuple[Any, ...] | None, context: Context) -> None:
        self._call = call
        self._context = context

    def cancel(self) -> None:
        self._call = None

    def cancelled(self) -> bool:
        return self._call is None

    def get_context(self) -> Context:
        return self._context

    def __repr__(self) -> str:
        return f"<SoonHandle {self._call or 'cancelled'}>"


class Timer(SoonHandle):
    """A call on the heap: of the world if its context is None, else of the loop, to whose ready queue it moves."""

    __slots__ = ("_env", "_when")
    _context: Context | None  # type: ignore[assignment]

    def __init__(self, call: tuple[Any, ...] | None, context: Context | None, when: float, env: EventHeap) -> None:
        self._call = call
        self._context = context
        self._when = when
        self._env = env

    def cancel(self) -> None:
        if self._call is not None:
            self._call = None
            env = self._env
            if self._when > env._now:
                env._entry_died()

    def when(self) -> float:
        return self._when

    def __repr__(self) -> str:
        return f"<Timer at {self._when} {self._call or 'cancelled'}>"


class EventHeap:
    """The clock of a ``simpy.Environment`` and its heap.

    Attributes:
        _now: The clock, seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._heap: list[tuple[float, int, int, Timer]] = []
        self._numbers = count()
        self._num_dead = 0

    @property
    def now(self) -> float:
        """The world's time, seconds."""
        return self._now

    @property
    def num_entries(self) -> int:
        """Length of the heap, including cancelled entries still on it."""
        return len(self._heap)

    def call_with_priority(self, when: float, priority: int, *call: Any) -> Timer:
        """Call ``fn(*args)`` at time ``when``, before calls with a higher number at that time."""
        timer = Timer(call, None, when, self)
        heappush(self._heap, (when, priority, next(self._numbers), timer))
        return timer

    def call_at(self, when: float, *call: Any) -> Timer:
        """Call ``fn(*args)`` at time ``when``, before any coroutine runs at that time; ``call`` is (fn, *args).

        An exception of ``fn`` ends the simulation.
        """
        when = when + 0.0
        if not when >= self._now:
            raise ValueError(f"call_at({when}) lies in the past: now is {self._now}")
        return self.call_with_priority(when, NORMAL, *call)

    def call_in(self, delay: float, *call: Any) -> Timer:
        """Call ``fn(*args)`` after ``delay`` seconds, before any coroutine runs at that time; as ``call_at``."""
        if not delay >= 0:
            raise ValueError(f"call_in wants a delay of at least 0 seconds, got {delay}")
        return self.call_with_priority(self._now + delay, NORMAL, *call)

    def delay(self, seconds: float) -> float:
        """Return the latency to use where a model would use ``seconds``.

        Models of messages and machines pass their latencies through here, so that a perturbed simulation can stretch
        some of them. Without perturbation, it is ``seconds``.
        """
        return seconds

    def peek(self) -> float:
        """Return the time of the next event; infinity if there is none."""
        return Infinity if self.head() is None else self._heap[0][0]

    def head(self) -> Timer | None:
        """Return the next timer; None if there is none."""
        heap = self._heap
        while heap:
            timer = heap[0][3]
            if timer._call is not None:
                return timer
            heappop(heap)
            self._num_dead -= 1
        return None

    def pop(self) -> Timer:
        """Remove the head of the heap without moving the clock."""
        return heappop(self._heap)[3]

    def timers(self) -> list[Timer]:
        """Return the pending timers, in no particular order."""
        return [entry[3] for entry in self._heap]

    def clear(self) -> None:
        """Remove all timers."""
        self._heap.clear()

    def _entry_died(self) -> None:
        """Count a cancelled entry, and remove all of them once they are the majority.

        The count may be too high (entries that left the heap when due are not subtracted) but never too low; a
        compaction costs O(heap), at most once per heap/2 cancellations.
        """
        self._num_dead += 1
        heap = self._heap
        if self._num_dead > COMPACT_ABOVE and self._num_dead * 2 > len(heap):
            heap[:] = [entry for entry in heap if entry[3]._call is not None]
            heapify(heap)
            self._num_dead = 0


class ReadyQueue:
    """What an event loop does for every callback.

    Order within one instant: first all due calls of the world; then asyncio's callbacks, in generations as on the
    standard loop: all due timers join the ready queue before any callback of the generation runs. Only when nothing is
    ready does time jump to the head of the heap.
    """

    def __init__(self, env: EventHeap) -> None:
        self.env = env
        self._ready: deque[Any] = deque()
        self._context = copy_context()
        self._num_events = 0
        self._digest = 0
        self._stopping = False

    def create_future(self) -> Future[Any]:
        return Future(loop=self)  # type: ignore[arg-type]

    # Every new future asks for it, so it must not cost a Python call.
    get_debug: Callable[[], bool] = staticmethod(partial(bool, False))

    def set_debug(self, enabled: bool) -> None:
        self.get_debug = partial(bool, enabled)

    def time(self) -> float:
        return self.env._now

    def call_soon(self, *call: Any, context: Context | None = None) -> SoonHandle:
        """Call ``callback(*args)`` in the next generation of this instant."""
        handle = SoonHandle(call, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, *call: Any, context: Context | None = None) -> Timer:
        env = self.env
        when = env._now + delay
        if context is None:
            context = self._context if call[0] is WAKE_SLEEPER else copy_context()
        handle = Timer(call, context, when, env)
        heappush(env._heap, (when, NORMAL, next(env._numbers), handle))
        return handle

    def call_at(self, when: float, *call: Any, context: Context | None = None) -> Timer:
        env = self.env
        when = when + 0.0
        handle = Timer(call, copy_context() if context is None else context, when, env)
        heappush(env._heap, (when, NORMAL, next(env._numbers), handle))
        return handle

    def _spin(self) -> None:
        """Run until ``stop`` is called. The hot path: everything is inlined and held in locals."""
        env, ready = self.env, self._ready
        loop: Any = self  # attributes that only the complete loop has
        limits: Any = loop._limits
        heap = env._heap
        popleft, push = ready.popleft, ready.append
        now = env._now
        alarm: float = limits.alarm
        max_events: float = limits.max_events
        num_events, digest = self._num_events, self._digest
        when: float
        item: Any = None
        call: Any = None
        try:
            while True:
                while heap:
                    when, _, _, item = heap[0]
                    if when > now:
                        if ready or self._stopping:
                            break
                        if item._call is None:
                            heappop(heap)
                            env._num_dead -= 1
                            continue
                        if when > alarm:
                            self._num_events, self._digest = num_events, digest
                            alarm = limits.ring(env, when, loop._waiting)
                            continue
                        digest = hash((digest, now, num_events))
                        env._now = now = when
                    heappop(heap)
                    if item._context is not None:
                        push(item)
                        continue
                    num_events += 1
                    call = item._call
                    if call is not None:
                        item._call = None
                        call[0](*call[1:])
                    if num_events > max_events:
                        raise loop._too_many_events()

                num_ready = len(ready)
                if not num_ready and not self._stopping:
                    raise loop._stalled()
                num_events += num_ready
                while num_ready:
                    try:
                        while num_ready:
                            num_ready -= 1
                            item = popleft()
                            call = item._call
                            if call is not None:
                                item._context.run(*call)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as exc:
                        loop._callback_failed(exc, item)
                item = call = None  # drop references now, not at the next event
                if self._stopping:
                    break
                if num_events > max_events:
                    raise loop._too_many_events()
        finally:
            self._num_events, self._digest = num_events, digest
