"""``Watch``: what must hold, asked at every call of every port and whenever the loop is at rest.

The numbers I1 to I16 are those of docs/fuzzing.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dartsim.config import Config
from dartsim.curation import MemoryStore
from dartsim.errors import InvariantViolated
from dartsim.types import Batch, Drop, Ending, Reply, Trajectory, Version

MASKED = (Ending.BROKEN, Ending.TIMED_OUT, Ending.WORKER_FAULT, Ending.UNSCORED, Ending.CANCELLED)

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
        self.violated = self.violated or error
        self.note("violated", rule=rule, text=text)
        raise error

    def note(self, event: str, **facts: Any) -> None:
        """Write down what happens, if that is kept."""
        if self.log is not None:
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


class WatchedStore(MemoryStore):
    """A store that looks at everything it is told."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self.seen: Counter[int] = Counter()
        self.consumed: Counter[int] = Counter()
        self.masked = 0
        self.version: Version = 0
        """Newest version that was committed."""

    def record(self, trajectory: Trajectory) -> None:
        """Keep it, and compare it with what its desktop and its workers said."""
        watch, attempt = self._watch, trajectory.attempt
        watch.note("record", attempt=attempt.id, ending=trajectory.ending, reward=trajectory.reward)
        super().record(trajectory)
        self.seen[attempt.id] += 1
        self._check_reward(trajectory)
        self._check_turns(trajectory)
        if self.seen[attempt.id] > 1:
            watch.fail("I1", f"attempt {attempt.id} ended twice")
        if attempt.version > self.version:
            watch.fail("I6", f"attempt {attempt.id} was admitted under version {attempt.version}, {self.version} is")
        if trajectory.masked:
            self.masked += 1
        else:
            watch.progress = watch.time()

    def lease(self, batch: Batch) -> None:
        """Mark as leased; nothing in it may be too old, or be part of half a group."""
        watch = self._watch
        ids = [t.attempt.id for t in batch.trajectories]
        watch.note("lease", update=batch.update, attempts=ids)
        super().lease(batch)
        self._check_staleness(batch)
        sizes = watch.config.curation.batch
        if batch.update != self.version + 1:
            watch.fail("I6", f"update {batch.update} was leased after version {self.version}")
        if len(batch.groups) < 1 or len(batch.groups) > sizes.max_groups:
            watch.fail("I13", f"a batch of {len(batch.groups)} groups; at most {sizes.max_groups} are wanted")
        if len(ids) != len(set(ids)):
            watch.fail("I4", f"a batch names an attempt twice: {ids}")

    def release(self, batch: Batch) -> None:
        """Take a batch back."""
        self._watch.note("release", update=batch.update)
        super().release(batch)

    def trained(self, batch: Batch, version: Version, *args: Any, **options: Any) -> None:
        """Mark as trained; the update must have happened, once, on nothing stale."""
        watch = self._watch
        watch.note("trained", update=batch.update, version=version)
        super().trained(batch, version, *args, **options)
        self._check_staleness(batch)
        if version != self.version + 1 or version != batch.update:
            watch.fail("I6", f"version {version} of update {batch.update} was committed after {self.version}")
        if version > watch.updated:
            watch.fail("I6", f"version {version} was committed, but the learner has made {watch.updated}")
        self.version = version
        self.consumed.update(t.attempt.id for t in batch.trajectories)
        doubled = [number for number, times in self.consumed.items() if times > 1]
        if doubled:
            watch.fail("I4", f"attempts {doubled} were trained twice")
        watch.progress = watch.time()

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        """Mark as dropped."""
        self._watch.note("drop", attempts=[t.attempt.id for t in trajectories], reason=reason)
        super().drop(trajectories, reason)
        if reason is Drop.UNUSED and not self._watch.ending():
            self._watch.fail("I13", f"attempts {[t.attempt.id for t in trajectories]} go unused before the end")
        if (reason is Drop.MASKED) != all(t.masked for t in trajectories):
            self._watch.fail("I2", f"attempts {[t.attempt.id for t in trajectories]} were dropped as {reason}")

    def _check_reward(self, trajectory: Trajectory) -> None:
        watch, attempt = self._watch, trajectory.attempt
        score = watch.scores.pop(attempt.seed, None)
        if trajectory.reward != score:
            watch.fail("R7", f"attempt {attempt.id} has reward {trajectory.reward}; its desktop was scored {score}")
        if not trajectory.masked == (trajectory.ending in MASKED) == (trajectory.cause is not None):
            watch.fail("R7", f"attempt {attempt.id}: {trajectory.ending}, {trajectory.reward}, {trajectory.cause}")

    def _check_turns(self, trajectory: Trajectory) -> None:
        watch, attempt = self._watch, trajectory.attempt
        replies = watch.replies.pop(attempt.id, [])
        turns = [turn.reply for turn in trajectory.turns]
        if trajectory.ending is Ending.CANCELLED:
            return  # its turns are gone
        # A reply that came in the instant in which its attempt was ended is in no turn.
        if turns != replies[: len(turns)] or len(replies) - len(turns) > (1 if trajectory.masked else 0):
            watch.fail("I7", f"attempt {attempt.id} has {len(turns)} turns, not those of its {len(replies)} replies")
        if len(turns) > attempt.turn_limit:
            watch.fail("I2", f"attempt {attempt.id} took {len(turns)} turns, {attempt.turn_limit} were allowed")

    def _check_staleness(self, batch: Batch) -> None:
        rule = self._watch.config.curation.staleness
        if rule.bound is None:
            return
        for group in batch.groups:
            for t in group.trajectories:
                if t.attempt.group != group.id:
                    continue  # a stored success: the pool's rule, not this one
                made = t.oldest_version if rule.measured_by == "oldest" else t.newest_version
                if batch.version - made > rule.bound:
                    self._watch.fail(
                        "I5", f"attempt {t.attempt.id}, made by version {made}, is in a batch of {batch.version}"
                    )
