"""``check_rule``: a conformance check of any rule of a scheduler, including those of plug-ins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dartsim.core.types import Group, Task
from dartsim.curation.rules.admission import AdmissionRule, CachePressure, EngineCaches, GroupCounts
from dartsim.curation.rules.attempts import AttemptsRule
from dartsim.curation.rules.batches import BatchRule, RunningGroup
from dartsim.curation.rules.selection import TurnSelection
from dartsim.curation.rules.turn_limit import TurnLimitRule
from dartsim.rollout.lending import Cycle, LendingRule
from dartsim.rollout.routers import Routed, Router
from dartsim.sim.run_virtual import run_virtual
from dartsim.testing.ports import TASK, sample_trajectory
from dartsim.trainer.advantages import AdvantageRule

TASKS = tuple(Task(f"task-{number}", "Save the document.") for number in range(5))
MAX_TURNS = 30
BATCH_GROUPS, GROUP_SIZE = 4, 8
"""Sizes of an admission rule's batches and groups."""
NUM_WORKERS = 4
"""Workers that a router chooses from."""


def check_rule(rule: type, *, seed: int = 0, num_calls: int = 500, **parameters: Any) -> None:
    """Check a rule of a scheduler with random groups, rewards and counts.

    It must keep what the docstring of its base class promises, never stall an idle run, repeat its choices after the
    same calls, and resume from its saved state. Calls are made in virtual time, as in a simulated run:
    ``asyncio.get_running_loop().rng(name)`` draws random numbers.

    Args:
        rule: A registered class: a router, a rule of lending, admission, advantages, attempts, batches, selection, task
            order or turn limits.
        seed: Seed of the calls.
        num_calls: Number of calls.
        parameters: Its parameters that differ from its defaults.

    Raises:
        AssertionError: If it breaks a rule; says what it did, what was expected, and after which call.
        TypeError: If the class is none of these.
        ValueError: If a parameter is wrong.
    """
    kinds: dict[type, Callable[[Any, np.random.Generator, int], Iterator[Any]]] = {
        Router: _router,
        LendingRule: _lending,
        AdmissionRule: _admission,
        AdvantageRule: _advantages,
        AttemptsRule: _attempts,
        BatchRule: _batches,
        TurnSelection: _selection,
        TurnLimitRule: _turn_limits,
    }
    drive = next((drive for base, drive in kinds.items() if issubclass(rule, base)), _task_order)
    if drive is _task_order and not all(hasattr(rule, name) for name in ("next", "learn", "state", "restore")):
        bases = ", ".join(base.__name__ for base in kinds)
        raise TypeError(f"{rule.__name__} is no rule that can be checked: wanted a subclass of {bases} or a TaskOrder")
    section = getattr(rule, "Parameters", None)
    if section is None:
        raise AssertionError(f"{rule.__name__} has no parameters: write @dartsim.register(KIND, NAME) above it")
    make = _RuleFactory(rule, section(**parameters))

    async def choices() -> list[Any]:
        return list(drive(make, np.random.default_rng(seed), num_calls))

    chosen = [run_virtual(choices(), seed=seed) for _ in range(2)]
    for number, (first, second) in enumerate(zip(*chosen, strict=True)):
        _require(
            first == second,
            f"{rule.__name__} chose {first} at call {number}, and {second} after the same calls: a rule is "
            "deterministic; take asyncio.get_running_loop().rng(name) instead of global chance",
        )


class _RuleFactory:
    """Creates rules of one class with the same parameters; errors name the class."""

    def __init__(self, rule: Any, parameters: Any) -> None:
        self._rule = rule
        self._parameters = parameters
        self.name = rule.__name__

    def __call__(self, **context: Any) -> Any:
        return self._rule(self._parameters, **context)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _admission(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    pressure = [CachePressure(0.0)]
    caches = EngineCaches(4 * GROUP_SIZE, lambda: pressure[0])
    rule = make(batch_groups=BATCH_GROUPS, group_size=GROUP_SIZE, caches=caches)
    for number in range(num_calls):
        counts = GroupCounts(*(int(count) for count in rng.integers(0, 3 * BATCH_GROUPS, 4) * rng.integers(0, 2, 4)))
        pressure[0] = CachePressure(float(rng.random()), int(rng.integers(5)), int(rng.integers(1, 20)))
        running = counts.open * GROUP_SIZE
        withdraws = rule.adjust(float(number), running)
        where = f"{make.name}.blocked_by({counts}), call {number},"
        blocked, most = rule.blocked_by(counts), rule.max_running
        known = blocked is None or (isinstance(blocked, str) and blocked)
        _require(bool(known), f"{where} returned {blocked!r}, wanted a sentence or None")
        stuck = blocked and sum(counts) == 0
        _require(not stuck, f"{where} says {blocked!r} while no group has begun: none ever would")
        adjusted = f"{make.name}.adjust, call {number},"
        _require(isinstance(withdraws, bool), f"{adjusted} returned {withdraws!r}, wanted a bool")
        _require(most is None or most >= 1, f"{adjusted} left max_running at {most}, wanted at least 1, or None")
        if rng.random() < 0.5:
            rule.attempt_ended()
        yield blocked, withdraws, most


def _router(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    """Yield the workers that a router chose while workers go down and come back."""
    router = make()
    workers = [Routed(number) for number in range(NUM_WORKERS)]
    for worker in workers:
        router.add(worker)
    last: dict[int, Routed] = {}
    running: list[Routed] = []
    for number in range(num_calls):
        kind = rng.choice(["request", "request", "end", "down or up"])
        if kind == "request":
            session = int(rng.integers(3 * NUM_WORKERS))
            before = [(worker.in_flight, worker.routable) for worker in workers]
            worker = router.pick(last.get(session), session // 3)
            where = f"{make.name}.pick({last.get(session) and last[session].index}), call {number},"
            known = any(worker is each for each in workers)
            _require(known, f"{where} returned {worker!r}, which is none of the workers that were added")
            _require(worker.routable, f"{where} returned worker {worker.index}, which is down; see Routed.routable")
            unchanged = before == [(worker.in_flight, worker.routable) for worker in workers]
            _require(unchanged, f"{where} changed in_flight or routable of a worker; begin() and end() count")
            yield worker.index
            last[session] = worker
            router.begin(worker)
            running.append(worker)
        elif kind == "end" and running:
            router.end(running.pop(int(rng.integers(len(running)))))
        else:
            worker = workers[int(rng.integers(NUM_WORKERS))]
            if not worker.routable:
                router.add(worker)
            elif router.num_routable > 1:
                router.remove(worker)


def _lending(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    rule = make()
    for number in range(num_calls):
        ready, waited = (int(count) for count in rng.integers(0, 2 * BATCH_GROUPS, 2) * rng.integers(0, 2, 2))
        seconds = waited * float(rng.random())
        cycle = Cycle(number, ready, 2 * BATCH_GROUPS, waited, seconds, switch_seconds=float(rng.integers(20)))
        found = rule.recall_at(cycle)
        wanted = isinstance(found, int) and found >= 0
        _require(wanted, f"{make.name}.recall_at({cycle}) returned {found!r}, wanted a number of groups of at least 0")
        yield found


def _batches(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    rule = make()
    smallest, largest = rule.parameters.min_groups, rule.parameters.max_groups
    for number in range(num_calls):
        ids = [int(each) for each in rng.permutation(3 * largest)]
        eligible = [_group(rng, each) for each in ids[: int(rng.integers(2 * largest + 1))]]
        running = [RunningGroup(each, int(rng.integers(4))) for each in sorted(ids[2 * largest :])]
        running = running[: int(rng.integers(len(running) + 1))]
        before = list(eligible)
        taken = list(rule.select(eligible, running, 4))
        found = [group.id for group in taken]
        where = f"{make.name}.select of groups {[group.id for group in before]}, call {number}, returned {found}"
        _require(eligible == before, f"{make.name}.select, call {number}, changed the list of eligible groups")
        _require(all(group in before for group in taken), f"{where}: not all of them are eligible")
        _require(len(set(found)) == len(found), f"{where}: a group twice")
        _require(not taken or smallest <= len(taken) <= largest, f"{where}: wanted none, or {smallest} to {largest}")
        stuck = not taken and len(before) >= largest and not running
        _require(not stuck, f"{where} while nothing runs: the trainer would wait forever")
        yield found


def _selection(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    rule = make()
    for number in range(num_calls):
        group = _group(rng, number)
        selected = rule.select(group)
        lengths = [len(trajectory.turns) for trajectory in group.trajectories]
        where = f"{make.name}.select of trajectories with {lengths} turns, call {number},"
        found = [len(kept) for kept in selected]
        _require(found == lengths, f"{where} says of {found} turns whether they are kept")
        _require(any(map(any, selected)), f"{where} keeps no turn: nothing would be trained on")
        yield selected


def _advantages(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    rule = make()
    for number in range(num_calls):
        group = _group(rng, number)
        found = [np.asarray(values_T).tolist() for values_T in rule.advantages(group)]
        rewards = [trajectory.reward for trajectory in group.trajectories]
        where = f"{make.name}.advantages of a group with rewards {rewards}, call {number}, returned {found}:"
        lengths = [len(trajectory.turns) for trajectory in group.trajectories]
        _require(
            [len(values) for values in found] == lengths, f"{where} wanted one a turn, of which there are {lengths}"
        )
        every = [value for values in found for value in values]
        _require(bool(np.isfinite(every).all()), f"{where} not all are finite")
        _require(len(set(rewards)) > 1 or not any(every), f"{where} wanted zeros, for equal rewards teach nothing")
        yield found


def _attempts(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    rule = make()
    for number in range(num_calls):
        task, rate = TASKS[int(rng.integers(len(TASKS)))].id, float(rng.random())
        sizes = (rule.attempts(task), rule.size_at(rate))
        wanted = all(isinstance(size, int) and size >= 1 for size in sizes)
        _require(wanted, f"{make.name}, call {number}: attempts and size_at are {sizes}, wanted integers of at least 1")
        rewards = [float(reward) for reward in rng.random(sizes[0]) < rate]
        rule.learn(task, rewards)
        yield sizes
    again = _resume(make, rule, make())
    _same(make, "attempts", [(rule.attempts(task.id), again.attempts(task.id)) for task in TASKS])


def _turn_limits(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    rule = make(max_turns=MAX_TURNS)
    for number in range(num_calls):
        limit = rule.limit(TASK.id)
        wanted = isinstance(limit, int) and 1 <= limit <= MAX_TURNS
        _require(wanted, f"{make.name}.limit, call {number}, is {limit!r}, wanted 1 to max_turns = {MAX_TURNS}")
        rule.learn(_group(rng, number, most_turns=limit).trajectories)
        yield limit
    again = _resume(make, rule, make(max_turns=MAX_TURNS))
    _same(make, "limit", [(rule.limit(TASK.id), again.limit(TASK.id))])


def _task_order(make: _RuleFactory, rng: np.random.Generator, num_calls: int) -> Iterator[Any]:
    order = make(tasks=TASKS, rng=np.random.default_rng(0))
    seen = set()
    for number in range(max(num_calls, 100 * len(TASKS))):
        task = order.next()
        _require(task in TASKS, f"{make.name}.next, call {number}, returned {task!r}, which is none of the tasks")
        seen.add(task.id)
        order.learn(task.id, [float(reward) for reward in rng.integers(2, size=GROUP_SIZE)])
        yield task.id
    never = [task.id for task in TASKS if task.id not in seen]
    _require(not never, f"{make.name}.next never returned {', '.join(never)} in {number + 1} calls")
    again = _resume(make, order, make(tasks=TASKS, rng=np.random.default_rng(1)))
    _same(make, "next", [(order.next().id, again.next().id) for _ in range(20)])


def _group(rng: np.random.Generator, number: int, most_turns: int = 4) -> Group:
    """Return a group whose attempts have random rewards and lengths."""
    trajectories = tuple(
        sample_trajectory(
            number * GROUP_SIZE + place,
            reward=float(rng.integers(2)),
            num_turns=int(rng.integers(1, most_turns + 1)),
        )
        for place in range(int(rng.integers(2, GROUP_SIZE)))
    )
    return Group(number, TASK, trajectories, ready=float(number))


def _resume(make: _RuleFactory, rule: Any, fresh: Any) -> Any:
    """Return a rule that continues from the saved state of another."""
    try:
        state = json.loads(json.dumps(rule.state()))
    except TypeError as error:
        raise AssertionError(f"{make.name}.state() is not JSON-serializable: {error}") from None
    fresh.restore(state)
    return fresh


def _same(make: _RuleFactory, what: str, pairs: list[tuple[Any, Any]]) -> None:
    for before, after in pairs:
        _require(
            before == after,
            f"{make.name}.{what} is {after} after it was restored from its state, and {before} without: a resumed run "
            "would go on another way",
        )
