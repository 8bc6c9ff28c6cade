"""What strikes one call, of several that could: counted is what acted."""

from collections import Counter

from dartsim.sim.faults.kinds import Effect
from dartsim.sim.faults.striking import Hazards
from dartsim.sim.faults.table import KINDS


class Told:
    def __init__(self):
        self.counts = Counter()

    def count(self, kind):
        self.counts[kind.name] += 1


class Always:
    """Strikes every call."""

    def __init__(self, kind, seconds):
        self.kind, self._seconds = kind, seconds

    def look(self, now, target, members):
        return self._seconds


def test_of_faults_that_end_a_call_the_first_is_counted_and_those_that_slow_it_all():
    ends = [kind for kind in KINDS.values() if kind.effect not in (Effect.LATER, Effect.SLOWER)][:3]
    slow = [kind for kind in KINDS.values() if kind.effect in (Effect.LATER, Effect.SLOWER)][:2]
    told = Told()
    calls = [
        Always(ends[0], 1.0),
        Always(slow[0], 2.0),
        Always(ends[1], 3.0),
        Always(slow[1], 4.0),
        Always(ends[2], 5.0),
    ]
    blow = Hazards(told, calls, [], target=0, members=1).look(0.0)
    assert (blow.kind, blow.seconds, len(blow.later) + len(blow.slower)) == (ends[0], 1.0, 2)
    assert told.counts == Counter([ends[0].name, slow[0].name, slow[1].name])
