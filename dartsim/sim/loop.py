"""SimLoop: an asyncio event loop whose clock and timers are a SimPy environment.

Its heap, its ready queue and its main loop are in ``dartsim.sim.event_heap``.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from dartsim.core.errors import Forbidden, SimulationError, Stalled
from dartsim.core.rng import Streams
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.event_heap import ReadyQueue, SoonHandle
from dartsim.sim.limits import SimLimits
from dartsim.sim.loop_services import ExecutorCost, LoopServices
from dartsim.sim.tasks import describe_waiting, pending_tasks

if TYPE_CHECKING:
    import numpy as np

CLEANUP_EVENTS = 300_000
"""Maximum number of events in which cancelled tasks clean up after a simulation ends."""


class SimLoop(ReadyQueue, LoopServices):  # type: ignore[misc]
    """An asyncio event loop in virtual time.

    States: idle, running, closed. ``run_virtual`` makes one, runs it and closes it.
    """

    env: SimEnvironment

    def __init__(
        self,
        *,
        seed: int = 0,
        limits: SimLimits | None = None,
        executor_cost: ExecutorCost | None = None,
        strict: bool = False,
        env: SimEnvironment | None = None,
    ) -> None:
        LoopServices.__init__(self, executor_cost=executor_cost, strict=strict)
        env = env or SimEnvironment()
        ReadyQueue.__init__(self, env)
        env.loop = self
        env.wake_in = self.call_later
        env.on_failure = self._world_failed
        self.seed = seed
        self._limits = limits or SimLimits()
        self._streams = Streams(seed)
        self._notes = 0
        self._running = False
        self._closing = False
        self.explain: Callable[[], str] | None = None
        """Returns what the system's components wait for, for error messages; set by its builder."""

    def call_soon_threadsafe(self, *call: Any, context: Context | None = None) -> SoonHandle:  # type: ignore[override]
        """Do the same as ``call_soon``.

        Raises:
            Forbidden: If another thread than the loop's calls it.
        """
        if self._running and events._get_running_loop() is not self:
            raise Forbidden(
                "call_soon_threadsafe() was called from another thread, whose timing no seed can repeat: "
                "use asyncio.to_thread, which virtual time runs inline, or run the program with asyncio.run"
            )
        return self.call_soon(*call, context=context)

    def _waiting(self) -> str:
        return describe_waiting(pending_tasks(self)) + self.components_wait()

    def _too_many_events(self) -> SimulationError:
        return self._limits.too_many_events(self.env._now, self._waiting())

    def _stalled(self) -> SimulationError:
        tasks = pending_tasks(self)
        text = f"nothing is left to happen at t={self.env._now:g} s"
        if tasks:
            text += f" and {len(tasks)} task{'s wait' if len(tasks) > 1 else ' waits'}:\n"
            text += describe_waiting(tasks)
        return Stalled(text + self.components_wait())

    def components_wait(self) -> str:
        """Return what the system's components wait for, for error messages; empty if unknown."""
        return f"\nits components:\n{self.explain()}" if self.explain is not None else ""

    def _world_failed(self, event: Any) -> None:
        """Raise the failure of a SimPy event that nobody waits for."""
        if self._closing:
            return
        failure = event._value
        if isinstance(failure, Exception):
            raise failure
        raise SimulationError(f"{event} failed with {failure!r} and nothing waits for it") from failure

    def _callback_failed(self, exc: BaseException, handle: Any) -> None:
        context = {"message": f"Exception in callback {handle!r}", "exception": exc, "handle": handle}
        self.call_exception_handler(context)

    def run_forever(self) -> None:
        """Run until ``stop`` is called.

        Raises:
            Stalled: If nothing is left to happen.
        """
        self._check_closed()
        if self._running:
            raise RuntimeError("This event loop is already running")
        if events._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._asyncgen_started, finalizer=self._asyncgen_dropped)
        events._set_running_loop(self)
        self._running = True
        try:
            self._spin()
        finally:
            self._running = self._stopping = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        if self.strict and self.unhandled and not self._closing:
            raise self.unhandled_error()

    def run_until_complete(self, future: Any) -> Any:
        self._check_closed()
        if self._running:
            raise RuntimeError("This event loop is already running")
        is_new = not asyncio.isfuture(future)
        future = asyncio.ensure_future(future, loop=self)
        if is_new:
            future._log_destroy_pending = False
        future.add_done_callback(_stop_loop_of)
        try:
            self.run_forever()
        except BaseException:
            if is_new and future.done() and not future.cancelled():
                future.exception()  # marks it as retrieved: the propagating exception is the relevant one
            raise
        finally:
            future.remove_done_callback(_stop_loop_of)
        if not future.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return future.result()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def close(self) -> None:
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self.env.clear()
        self.call_soon = self.call_later = self.call_at = self._refuse_closed  # type: ignore[method-assign]

    def _refuse_closed(self, *args: Any, **kwargs: Any) -> Any:
        self._check_closed()

    @property
    def num_events(self) -> int:
        """Callbacks and SimPy events so far; while the loop runs, as of the last ``on_advance``."""
        return self._num_events

    @property
    def event_hash(self) -> str:
        """16 hexadecimal digits of what happened and when; read it after the loop has stopped.

        It covers every instant, its number of events, and everything passed to ``note``.
        """
        return f"{hash((self._digest, self._notes, self.env._now, self._num_events)) & (2**64 - 1):016x}"

    def note(self, *facts: float) -> None:
        """Add facts of the domain (numbers only) to the event hash, with the current time."""
        self._notes = hash((self._notes, self.env._now, *facts))

    def progress(self) -> None:
        """Report useful work, which resets the ``stall_seconds`` watchdog."""
        self._limits.last_progress = self.env._now

    def rng(self, name: str) -> np.random.Generator:
        """Return the random stream of that name; see ``dartsim.core.rng``."""
        return self._streams.rng(name)

    def begin_cleanup(self) -> None:
        """Lift the limits, so that cancelled tasks can finish; failures of the world no longer count."""
        self._closing = True
        self._stopping = False
        self._limits = SimLimits(max_events=self._num_events + CLEANUP_EVENTS)


def _stop_loop_of(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and isinstance(future.exception(), (SystemExit, KeyboardInterrupt)):
        return  # the loop is already stopping
    future.get_loop().stop()
