"""Our own metrics without a sandbox around them, for tests of what lies about scoring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dartsim.real.scoring import FileInput, ScoreFault, ScorerFacts
from dartsim.real.scoring.sandboxed.child import TaskLacks, of_task
from dartsim.real.scoring.sandboxed.own_functions import OwnFunctions


class OwnMetrics:
    """A ``SandboxPool`` and its only sandbox in one."""

    link: Any = None

    def __init__(self) -> None:
        self._functions = OwnFunctions()

    async def facts(self) -> ScorerFacts:
        return ScorerFacts(**self._functions.facts())

    async def run(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        return await call(self)

    async def metric(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> float:
        result, *others = [str(each.path) if isinstance(each, FileInput) else each for each in arguments]
        try:
            return float(self._functions.metric(name)(result, *of_task(others), **options))
        except ModuleNotFoundError as error:
            raise ScoreFault(str(error), cause="metric_unavailable") from error
        except Exception as error:
            task = isinstance(error, (TaskLacks, TypeError))
            kind = "KeyError" if isinstance(error, TaskLacks) else type(error).__name__
            raise ScoreFault(f"metric {name}: {kind}: {error}", cause="metric_failed", of_task=task) from error

    async def getter(self, name: str, *_: object) -> Any:
        raise ScoreFault(f"the getter {name} is desktop-env's", cause="getter_unavailable")
