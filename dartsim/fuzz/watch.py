"""``Watch``: what must hold, asked at every call of every port and whenever the loop is at rest.

The numbers I1 to I16 are those of docs/fuzzing.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from dartsim.config import Config
from dartsim.core.errors import InvariantViolated
from dartsim.core.types import Reply, Version

SLACK_SECONDS = 1e-6
"""Of a deadline: what sums of floats may miss it by."""


class Violated(InvariantViolated):
    """A rule that the search watches did not hold.

    Attributes:
        rule: Its number.
    """

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Call(NamedTuple):
    """A call of a port that is under way: what it is, when it began, and how long it may take (None: any time)."""

    name: str
    began: float
    limit: float | None


class Watch:
    """What was seen so far, and the first violation of it.

    Args:
        config: Of the run.
        keep_log: Whether to write down what happens.

    Attributes:
        ending: Whether the run is being ended, so that nothing new begins.
        late: Whether answers may take their time on the way.
        dead: Whether the process was killed: what its remains do is nobody's fault.
        violated: The first one: production code may swallow the error that was raised.
        log: What happened, in order, as (time, event, facts); None if it is not kept.
        progress: When an attempt was scored, or an update done, last.
        scores: What evaluations returned, by the attempt's seed.
        replies: What workers returned, by attempt.
        calls: Calls under way.
    """

    def __init__(self, config: Config, *, keep_log: bool = False) -> None:
        self.config = config
        self.ending: Callable[[], bool] = lambda: False
        self.dead = self.late = False
        self.violated: Violated | None = None
        self.log: list[tuple[float, str, dict[str, Any]]] | None = [] if keep_log else None
        self.progress = 0.0
        self.scores: dict[int, float] = {}
        self.replies: dict[int, list[Reply]] = {}
        self.calls: dict[object, Call] = {}
        self.desktops: dict[int, object] = {}
        """Live desktop of each place."""
        self.asking: dict[int, int] = {}
        """Worker that computes each attempt's present turn."""
        self.updated: Version = 0
        """Newest version that the learner has returned."""
        self.time = asyncio.get_running_loop().time

    def fail(self, rule: str, text: str) -> None:
        """Say that a rule was broken.

        Raises:
            Violated: Always.
        """
        error = Violated(rule, text)
        if not self.dead:
            self.violated = self.violated or error
            self.note("violated", rule=rule, text=text)
        raise error

    def note(self, event: str, **facts: Any) -> None:
        """Write down what happens, if that is kept."""
        if self.log is not None and not self.dead:
            self.log.append((self.time(), event, facts))

    def begin(self, key: object, name: str, limit: float | None) -> None:
        """A call of a part begins; it takes one at a time."""
        if key in self.calls:
            self.fail("I4", f"{name} was called during {self.calls[key].name}")
        self.calls[key] = Call(name, self.time(), limit)
        self.note("call", name=name)

    def end(self, key: object) -> None:
        """A call came back, one way or another."""
        call = self.calls.pop(key)
        self.note("back", name=call.name)
