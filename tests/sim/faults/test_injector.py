"""What is injected into one call, of several faults that could be: counted is what acted."""

from collections import Counter
from math import inf

from dartsim.sim.faults.injector import InjectionPoint
from dartsim.sim.faults.kinds import KINDS, Effect


class Counting:
    heal_at = inf

    def __init__(self):
        self.counts = Counter()

    def count(self, kind):
        self.counts[kind.name] += 1


class Always:
    """Affects every call."""

    def __init__(self, kind, seconds):
        self.kind, self._seconds = kind, seconds

    def hit(self, now, target, num_members):
        return self._seconds


def test_of_faults_that_end_a_call_the_first_is_counted_and_those_that_slow_it_all():
    ends = [kind for kind in KINDS.values() if kind.effect not in (Effect.LATER, Effect.SLOWER)][:3]
    slow = [kind for kind in KINDS.values() if kind.effect in (Effect.LATER, Effect.SLOWER)][:2]
    counting = Counting()
    calls = [
        Always(ends[0], 1.0),
        Always(slow[0], 2.0),
        Always(ends[1], 3.0),
        Always(slow[1], 4.0),
        Always(ends[2], 5.0),
    ]
    found = InjectionPoint(counting, calls, [], target=0, num_members=1).injection(0.0)
    assert (found.kind, found.seconds, len(found.extra)) == (ends[0], 1.0, 2)
    assert counting.counts == Counter([ends[0].name, slow[0].name, slow[1].name])
