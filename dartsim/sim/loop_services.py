"""The services of an event loop that are unrelated to time: tasks, executors, generators, failures."""

from __future__ import annotations

import asyncio
import functools
import itertools
import weakref
from asyncio import futures
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, NoReturn, TypeVar

from dartsim.core.errors import Forbidden, SimulationError
from dartsim.sim.tasks import TaskCounter, sim_task_factory

T = TypeVar("T")

ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
ExecutorCost = Callable[[Callable[..., Any], tuple[Any, ...]], float]

# The callback of every asyncio.sleep: it reads no context variable, so its timer needs no context of its own.
WAKE_SLEEPER: Any = futures._set_result_unless_cancelled  # type: ignore[attr-defined]


_NETWORK = "put the simulated model behind the port, or run on a real loop with a BridgeEnvironment"
_PROCESS = "use a simulated part in its place, or run the program with asyncio.run"
_SIGNAL = "run_virtual() already turns the first Ctrl-C into a cancellation of the main task"


def _refusal(name: str, advice: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
        raise Forbidden(f"loop.{name}() is real I/O and does not exist in virtual time: {advice}")

    refuse.__name__ = name
    refuse.__doc__ = f"Refuse {name}."
    return refuse


class NoRealIO(asyncio.AbstractEventLoop):
    """An event loop that refuses all real I/O with ``Forbidden``."""

    add_reader = _refusal("add_reader", _NETWORK)  # type: ignore[assignment]
    add_writer = _refusal("add_writer", _NETWORK)  # type: ignore[assignment]
    remove_reader = _refusal("remove_reader", _NETWORK)
    remove_writer = _refusal("remove_writer", _NETWORK)
    connect_accepted_socket = _refusal("connect_accepted_socket", _NETWORK)
    create_connection = _refusal("create_connection", _NETWORK)
    create_datagram_endpoint = _refusal("create_datagram_endpoint", _NETWORK)
    create_server = _refusal("create_server", _NETWORK)
    create_unix_connection = _refusal("create_unix_connection", _NETWORK)
    create_unix_server = _refusal("create_unix_server", _NETWORK)
    getaddrinfo = _refusal("getaddrinfo", _NETWORK)
    getnameinfo = _refusal("getnameinfo", _NETWORK)
    sendfile = _refusal("sendfile", _NETWORK)
    sock_accept = _refusal("sock_accept", _NETWORK)
    sock_connect = _refusal("sock_connect", _NETWORK)
    sock_recv = _refusal("sock_recv", _NETWORK)
    sock_recv_into = _refusal("sock_recv_into", _NETWORK)
    sock_recvfrom = _refusal("sock_recvfrom", _NETWORK)
    sock_recvfrom_into = _refusal("sock_recvfrom_into", _NETWORK)
    sock_sendall = _refusal("sock_sendall", _NETWORK)
    sock_sendfile = _refusal("sock_sendfile", _NETWORK)
    sock_sendto = _refusal("sock_sendto", _NETWORK)
    start_tls = _refusal("start_tls", _NETWORK)
    connect_read_pipe = _refusal("connect_read_pipe", _PROCESS)
    connect_write_pipe = _refusal("connect_write_pipe", _PROCESS)
    subprocess_exec = _refusal("subprocess_exec", _PROCESS)
    subprocess_shell = _refusal("subprocess_shell", _PROCESS)
    add_signal_handler = _refusal("add_signal_handler", _SIGNAL)  # type: ignore[assignment]
    remove_signal_handler = _refusal("remove_signal_handler", _SIGNAL)


class LoopServices(NoRealIO, TaskCounter):
    """What asyncio asks of a loop besides running callbacks.

    Attributes:
        unhandled: Uncaught exceptions, if no exception handler was set.
        strict: Whether an unhandled exception ends the run at once; the standard loop goes on.
    """

    def __init__(self, *, executor_cost: ExecutorCost | None, strict: bool) -> None:
        self.unhandled: list[BaseException] = []
        self.strict = strict
        self._closed = False
        self._executor_cost = executor_cost
        self._task_factory: Any = sim_task_factory
        self._serials = itertools.count()
        self._exception_handler: ExceptionHandler | None = None
        self._asyncgens = weakref.WeakValueDictionary[int, AsyncGenerator[Any, Any]]()
        self._asyncgen_serials = itertools.count()
        self._asyncgens_shut = False

    def is_closed(self) -> bool:
        return self._closed

    def _check_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
        **kwargs: Any,
    ) -> asyncio.Task[T]:
        """Schedule a coroutine; by default as a ``SimTask``."""
        self._check_closed()
        if context is not None:
            kwargs["context"] = context
        task: asyncio.Task[T] = self._task_factory(self, coro, **kwargs)
        if name is not None and hasattr(task, "set_name"):
            task.set_name(name)
        return task

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None and not callable(factory):
            raise TypeError("task factory must be a callable or None")
        self._task_factory = sim_task_factory if factory is None else factory

    def get_task_factory(self) -> Any:
        return None if self._task_factory is sim_task_factory else self._task_factory

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run ``func(*args)`` now, and deliver its result or exception after the modeled cost.

        ``executor`` is not used. ``asyncio.to_thread`` comes here too.
        """
        self._check_closed()
        seconds = 0.0
        if self._executor_cost is not None:
            seconds = self._executor_cost(*_unwrap(func, args))
            if not seconds >= 0:
                raise ValueError(f"executor_cost must be at least 0 seconds, got {seconds} for {func}")
        future: asyncio.Future[Any] = asyncio.Future(loop=self)
        try:
            result = func(*args)
        except Exception as exc:
            self.call_later(seconds, _set_exception_unless_done, future, exc)
        else:
            self.call_later(seconds, WAKE_SLEEPER, future, result)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """Accept an executor, which will not be used."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no thread to wait for."""

    def _asyncgen_started(self, agen: AsyncGenerator[Any, Any]) -> None:
        if self._asyncgens_shut:
            raise SimulationError(f"asynchronous generator {agen!r} was started after shutdown_asyncgens()")
        # Keyed by a counter, because a set would be iterated in order of addresses.
        self._asyncgens[next(self._asyncgen_serials)] = agen

    def _asyncgen_dropped(self, agen: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.create_task(agen.aclose())

    async def shutdown_asyncgens(self) -> None:
        self._asyncgens_shut = True
        # Exhausted ones need no closing, and how many are left depends on the garbage collector.
        agens = [agen for agen in self._asyncgens.values() if getattr(agen, "ag_frame", agen) is not None]
        self._asyncgens.clear()
        results = await asyncio.gather(*(agen.aclose() for agen in agens), return_exceptions=True)
        for agen, result in zip(agens, results, strict=True):
            if isinstance(result, Exception):
                message = f"an error occurred during closing of asynchronous generator {agen!r}"
                self.call_exception_handler({"message": message, "exception": result, "asyncgen": agen})

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        """Let ``handler(loop, context)`` handle uncaught exceptions, which then no longer fail the run."""
        if handler is not None and not callable(handler):
            raise TypeError(f"A callable object or None is expected, got {handler!r}")
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the exception, which fails the simulation."""
        exc = context.get("exception")
        message = str(context.get("message"))
        if exc is None:
            exc = SimulationError(message)
        else:
            exc.add_note(f"nobody caught this: {message}")
        self.unhandled.append(exc)
        if self.strict:
            self.stop()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self.default_exception_handler({"message": "the exception handler failed", "exception": exc})

    def unhandled_error(self) -> BaseException:
        if len(self.unhandled) == 1:
            return self.unhandled[0]
        return BaseExceptionGroup("exceptions that nobody caught in the simulation", self.unhandled)


def _set_exception_unless_done(future: asyncio.Future[Any], exc: Exception) -> None:
    if not future.done():
        future.set_exception(exc)


def _unwrap(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the function and arguments that were given to ``asyncio.to_thread``."""
    if isinstance(func, functools.partial) and isinstance(getattr(func.func, "__self__", None), Context):
        return func.args[0], func.args[1:]
    return func, args
