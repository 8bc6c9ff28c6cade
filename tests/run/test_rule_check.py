"""``check_rule``: our rules pass, and a broken rule is told what is wrong."""

import pytest
from typing_extensions import override

import dartsim
from dartsim.core.registry import KINDS, names, parameters

RULES = [
    (kind, name)
    for kind in KINDS
    if kind not in ("desktops", "engine", "learner", "policy", "fault")
    for name in names(kind)
    if parameters(kind, name).component.__module__.startswith("dartsim.")  # other tests register their own
]


@pytest.mark.parametrize(("kind", "name"), RULES)
def test_our_rules_keep_the_rules(kind, name):
    dartsim.check_rule(parameters(kind, name).component, num_calls=100)


class NeverBegins(dartsim.AdmissionRule):
    """Broken: waits for a group before the first."""

    @override
    def blocked_by(self, counts):
        return None if counts.open else "nothing runs"


class Bare(dartsim.AdmissionRule):
    """Broken: says that it blocks, and not why."""

    @override
    def blocked_by(self, counts):
        return ""


class TooMany(dartsim.BatchRule):
    """Broken: takes all."""

    @override
    def order(self, eligible, running):
        return eligible

    @override
    def select(self, eligible, running=(), version=0):
        return eligible


class Twice(dartsim.BatchRule):
    """Broken: takes the first group again and again."""

    @override
    def order(self, eligible, running):
        return [eligible[0]] * len(eligible)


class Waits(dartsim.BatchRule):
    """Broken: waits although nothing runs."""

    @override
    def order(self, eligible, running):
        return ()


class KeepsNone(dartsim.TurnSelection):
    """Broken: cuts all turns."""

    @override
    def select(self, group):
        return [[False] * len(trajectory.turns) for trajectory in group.trajectories]


class Flatters(dartsim.AdvantageRule):
    """Broken: equal rewards have advantages."""

    @override
    def advantages(self, group):
        return [[1.0] * len(trajectory.turns) for trajectory in group.trajectories]


class Favorite(dartsim.TaskOrder):
    """Broken: always the first task."""

    Parameters = dartsim.ComponentSection

    def __init__(self, parameters, *, tasks, rng):
        self.tasks = tasks

    @override
    def next(self):
        return self.tasks[0]

    @override
    def state(self):
        return None

    @override
    def restore(self, state):
        pass


class Forgets(dartsim.TurnLimitRule):
    """Broken: its state leaves out what it learned."""

    def __init__(self, parameters, *, max_turns):
        super().__init__(parameters, max_turns=max_turns)
        self.learned = 0

    @override
    def limit(self, task_id):
        return max(1, self.max_turns - self.learned)

    @override
    def learn(self, trajectories):
        self.learned = min(self.learned + 1, 10)


class NoAttempts(dartsim.AttemptsRule):
    """Broken: gives up."""

    @override
    def size_at(self, success_rate):
        return 0


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (NeverBegins, "while no group has begun: none ever would"),
        (Bare, "returned '', wanted a sentence or None"),
        (TooMany, "wanted none, or 6 to 8"),
        (Twice, "a group twice"),
        (Waits, "the trainer would wait forever"),
        (KeepsNone, "keeps no turn"),
        (Flatters, "wanted zeros, for equal rewards teach nothing"),
        (Favorite, "never returned task-1"),
        (Forgets, "a resumed run would go on another way"),
        (NoAttempts, "wanted integers of at least 1"),
    ],
)
def test_a_broken_rule_is_told_what_is_wrong(rule, said):
    with pytest.raises(AssertionError, match=said):
        dartsim.check_rule(rule)


def test_what_is_no_rule_is_refused():
    with pytest.raises(TypeError, match="wanted a subclass of Router, LendingRule"):
        dartsim.check_rule(dict)
