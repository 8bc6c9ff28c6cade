"""Tasks whose hash is a counter, the nodes they run on, and where each of them waits.

asyncio keeps tasks in sets (``TaskGroup``, ``wait``, ``all_tasks``) and iterates over them; the default hash is a
memory address, so two runs with one seed would differ.

Nodes are simulated machines as the loop sees them, the unit of perturbed scheduling. Code runs on the node whose
``with`` block started it or its task. Everything else belongs to the control plane, an unnamed node.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Generator, Iterable, Iterator
from contextvars import Context, ContextVar, Token
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

MAX_NAMED = 50
"""Maximum number of waiting tasks that an error lists."""


class Node:
    """A simulated machine; ``with node:`` starts tasks and timers on it."""

    __slots__ = ("_tokens", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._tokens: list[Token[Node | None]] = []

    def __enter__(self) -> Node:
        self._tokens.append(NODE.set(self))
        return self

    def __exit__(self, *exc_info: object) -> None:
        NODE.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return f"<Node {self.name}>"


NODE: ContextVar[Node | None] = ContextVar("NODE", default=None)
"""The node of the running code; None is the control plane."""


class TaskCounter(asyncio.AbstractEventLoop):
    """A loop that counts the tasks it makes."""

    _serials: Iterator[int]


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number in the order of creation."""

    serial: int
    node: Node | None

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        loop: TaskCounter,
        context: Context | None = None,
        **kwargs: Any,
    ) -> None:
        # __hash__ and the loop need both before asyncio.Task.__init__ returns.
        self.serial = next(loop._serials)
        self.node = NODE.get() if context is None else context.get(NODE)
        super().__init__(coroutine, loop=loop, context=context, **kwargs)

    def __hash__(self) -> int:
        return self.serial


def sim_task_factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any) -> asyncio.Future[Any]:
    """Create a ``SimTask``; the task factory of every ``SimLoop``."""
    return SimTask(coroutine, loop=loop, **kwargs)  # type: ignore[arg-type]


def pending_tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    """Return the loop's unfinished tasks, in the order of their creation."""
    return sorted(asyncio.all_tasks(loop), key=lambda task: getattr(task, "serial", -1))


def describe_waiting(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Return one line per task: its name, its coroutine, and the innermost line where it waits."""
    listed = list(tasks)
    lines = [f"  {task.get_name()} ({_name_of(task)}) waits at {where(task)}" for task in listed[:MAX_NAMED]]
    if len(listed) > MAX_NAMED:
        lines.append(f"  and {len(listed) - MAX_NAMED} more")
    return "\n".join(lines)


def where(task: asyncio.Task[Any]) -> str:
    """Return the innermost ``file:line`` at which ``task`` waits.

    If that line lies in asyncio itself, the line that called into asyncio follows.
    """
    frames = list(_frames(task.get_coro()))
    if not frames:
        return "an unknown line"
    text = _line(frames[-1])
    caller = next((f for f in reversed(frames) if not _in_asyncio(f)), None)
    return text if caller is None or caller is frames[-1] else f"{text}, called from {_line(caller)}"


def _name_of(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    return str(getattr(coroutine, "__qualname__", coroutine))


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _in_asyncio(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "asyncio"


def _frames(awaitable: Any) -> Iterable[FrameType]:
    """Yield the frames of a chain of awaits, outermost first."""
    while awaitable is not None:
        if isinstance(awaitable, CoroutineType):
            frame, awaitable = awaitable.cr_frame, awaitable.cr_await
        elif isinstance(awaitable, AsyncGeneratorType):
            frame, awaitable = awaitable.ag_frame, awaitable.ag_await
        elif isinstance(awaitable, GeneratorType):
            frame, awaitable = awaitable.gi_frame, awaitable.gi_yieldfrom
        else:
            awaitable = _inside(awaitable)
            continue
        if frame is None:
            return
        yield frame


def _inside(wrapper: Any) -> Any:
    """Return what ``asend()``, ``athrow()`` or a coroutine's ``__await__`` runs, or None.

    Their types have no attribute for it, but the garbage collector knows their referents.
    """
    if isinstance(wrapper, asyncio.Future):
        return None
    for referent in gc.get_referents(wrapper):
        if isinstance(referent, (CoroutineType, AsyncGeneratorType, GeneratorType)):
            return referent
    return None
