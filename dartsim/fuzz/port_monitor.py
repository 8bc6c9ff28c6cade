"""State shared by the checks of all ports: running calls, observations, and the first broken rule."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import DartsimError, InvariantViolated
from dartsim.core.rewards import SUCCESS
from dartsim.core.types import Attempt, Batch, Reply, Trajectory, Version
from dartsim.run.held_out_attempts import FIRST_ID
from dartsim.sim import Node
from dartsim.sim.tasks import NODE

SLACK_SECONDS = 1e-6
"""Tolerance of a deadline, for rounding errors."""


class RuleViolated(InvariantViolated):
    """A checked rule was broken; ``rule`` is its number."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class PortCall:
    """A call of a component, as a ``with`` block on the component's node; it has one call at a time.

    It is a class because generator-based context managers took a tenth of the fuzzer's time.

    Attributes:
        name: Name of the call.
        limit: Longest allowed duration, seconds; None: any.
        began: Time of its start.
    """

    __slots__ = ("_key", "_monitor", "_node", "began", "limit", "name")

    def __init__(self, monitor: PortMonitor, key: object, name: str, limit: float | None, node: Node) -> None:
        self._monitor = monitor
        self._key = key
        self._node = node
        self.name = name
        self.limit = limit
        self.began = 0.0

    def __enter__(self) -> None:
        monitor, key = self._monitor, self._key
        if key in monitor.calls:
            monitor.fail("I4", f"{self.name} was called during {monitor.calls[key].name}")
        self.began = monitor.time()
        monitor.calls[key] = self
        if monitor.log is not None:
            monitor.note("call", name=self.name)
        NODE.set(self._node)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        monitor = self._monitor
        NODE.set(None)
        if kind is not None:
            monitor.strike(self._key, self.name, kind)
        del monitor.calls[self._key]
        if monitor.log is not None:
            monitor.note("back", name=self.name)
        if isinstance(error, Exception) and not isinstance(error, (DartsimError, TimeoutError)):
            # The control plane would mask it as a fault, but in our own components it is a bug.
            monitor.fail(type(error).__name__, f"{self.name} raised {error!r}")


@dataclass
class StoreFacts:
    """Everything that a store has received in all lives of a run."""

    known: dict[int, tuple[float | None, int, Version, Version]] = field(default_factory=dict)
    """Reward, number of turns, oldest and newest version of every recorded attempt."""
    ended: dict[int, str] = field(default_factory=dict)
    """Final states, by attempt."""
    seeds: set[int] = field(default_factory=set)
    groups: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Unmasked and masked attempts of groups that are not eligible yet, without canceled ones."""
    uses: Counter[int] = field(default_factory=Counter)
    """Number of groups that each stored success was added to."""
    tally: Counter[str] = field(default_factory=Counter)
    """Counts that must equal the recorder's counts of the same names."""
    leased: Batch | None = None
    version: Version = 0
    """Newest version that was committed."""

    def copy(self) -> StoreFacts:
        known, ended, seeds, groups = dict(self.known), dict(self.ended), set(self.seeds), dict(self.groups)
        return StoreFacts(
            known, ended, seeds, groups, Counter(self.uses), Counter(self.tally), self.leased, self.version
        )

    def after_crash(self) -> StoreFacts:
        """Return the facts with which the next life begins: a leased batch is given back."""
        facts = self.copy()
        if facts.leased is not None:
            facts.give_back(facts.leased)
        return facts

    def give_back(self, batch: Batch) -> None:
        self.leased = None
        self.tally["failed_updates"] += 1
        self.tally["admitted_turns"] -= batch.num_turns


class PortMonitor:
    """Observations at the ports, and the first broken rule."""

    def __init__(self, config: Config, *, keep_log: bool = False) -> None:
        self.config = config
        self.limits = config.limits
        self.ending: Callable[[], bool] = lambda: False
        self.failed: Callable[[], bool] = lambda: False
        self.raised = False
        """Whether an error of the system is ending the run."""
        self.admitted: Callable[[], int] = lambda: 0
        self.running_of: Callable[[int], Sequence[int]] = lambda group: ()
        """Running attempts of each group, without those that are being canceled."""
        self.tasks: frozenset[str] = frozenset()
        """Tasks to train on."""
        self.store: StoreFacts | None = None
        self.dead = self.late = False
        self.violated: RuleViolated | None = None
        self.log: list[tuple[float, str, dict[str, Any]]] | None = [] if keep_log else None
        self.progress = 0.0
        self.scores: dict[int, float] = {}
        self.replies: dict[int, list[Reply]] = {}
        self.calls: dict[object, PortCall] = {}
        self.desktops: dict[int, object] = {}
        """Live desktop of each slot."""
        self.asking: dict[int, int] = {}
        """Worker that computes the current turn of each attempt."""
        self.updated: Version = 0
        """Newest version of the learner."""
        self.pooled = 0
        """Stored successes in its last update."""
        self.struck: dict[object, list[str]] = {}
        """Types of the errors raised by calls: by attempt for workers, by task for others."""
        self.sessions: dict[int, Any] = {}
        """Open ``CheckedSession`` of lockstep attempts."""
        rollout, group_size = config.rollout, config.curation.attempts.group_size
        self._unit_size = {"rollout": 1, "task": group_size, "batch": rollout.num_envs}[rollout.unit]
        self._units: dict[int, dict[int, int | None]] = {}
        """Slots of each sampling unit that began together, and the number of admitted attempts when they came back."""
        self.time = asyncio.get_running_loop().time

    def fail(self, rule: str, text: str) -> None:
        """Report a broken rule, unless the process is about to end.

        Raises:
            RuleViolated: Unless the process is about to end.
        """
        if self.dead:
            return
        error = RuleViolated(rule, text)
        self.violated = self.violated or error
        self.note("violated", rule=rule, text=text)
        raise error

    def note(self, event: str, **facts: Any) -> None:
        if self.log is not None and not self.dead:
            self.log.append((self.time(), event, facts))

    def is_success(self, trajectory: Trajectory) -> bool:
        """Return whether the success pool may store a trajectory."""
        reward = trajectory.reward
        return reward is not None and reward >= SUCCESS and bool(trajectory.turns)

    def strike(self, key: object, name: str, kind: type[BaseException]) -> None:
        """Note an error of a call; an interrupted start counts as failed."""
        task = asyncio.current_task()
        of = key[1] if isinstance(key, tuple) and name.startswith("generate") else task.get_name() if task else ""
        names = [base.__name__ for base in kind.__mro__]
        self.struck.setdefault(of, []).extend([*names, "EnvFault"] if name.startswith("start") else names)

    def slot_began(self, slot: int, attempt: Attempt) -> None:
        """Check that no attempt of a sampling unit begins after its first slot has returned and before its last has."""
        if self._unit_size == 1 or attempt.id >= FIRST_ID:
            return
        members = self._units.setdefault(slot // self._unit_size, {})
        busy = [number for number, end in members.items() if end is None]
        if not busy:
            members.clear()
        elif any(end is not None and attempt.id >= end for end in members.values()):
            self.fail("I13", f"attempt {attempt.id} begins in the sampling unit of slots {busy}, which are still busy")
        members[slot] = None

    def slot_back(self, slot: int) -> None:
        members = self._units.get(slot // self._unit_size, {})
        if slot in members:
            members[slot] = self.admitted()

    def call(self, key: object, name: str, limit: float | None, node: Node) -> PortCall:
        """Return a component's call as a ``with`` block."""
        return PortCall(self, key, name, limit, node)
