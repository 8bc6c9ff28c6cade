"""The SQL store against the store in memory, over random lives with crashes: the same states after every step."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from dartsim.core.errors import InvariantViolated
from dartsim.core.types import Batch, Drop, Group, TrajectoryState
from dartsim.store.load import load_trajectories
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore
from dartsim.testing.ports import SampleState, sample_trajectory

TASK = sample_trajectory(0).attempt.task


def group_of(numbers):
    return Group(min(numbers), TASK, tuple(sample_trajectory(number) for number in numbers), 60.0)


# A list of attempts cannot be drawn while there is none, and a whole life would be given up for it.
some = precondition(lambda lives: lives.number > 0)


class Lives(RuleBasedStateMachine):
    """Any calls, legal or not: both stores answer alike, and the database holds what the one in memory says.

    A crash takes what was not written. The model is then what the database held: a state of its own past.
    """

    each = True
    """Whether every call is written at once."""
    attempts = Bundle("attempts")

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = MemoryStore()
        self.ended: dict[int, str] = {}
        self.number = 0
        self.open()

    def open(self):
        self.store = SqlStore.open(Path(self.folder.name), durable=self.each)

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()

    def both(self, call):
        """Do the same to both; return whether they did it."""
        answers = []
        for store in (self.model, self.store):
            try:
                call(store)
                answers.append(None)
            except InvariantViolated as refused:
                answers.append(str(refused))
        self.store.settle(SampleState({}))
        assert answers[0] == answers[1]
        return answers[0] is None

    @rule(target=attempts)
    def record(self):
        self.number += 1
        number = self.number
        assert self.both(lambda store: store.record(sample_trajectory(number)))
        return number

    @rule(number=attempts)
    def record_again(self, number):
        if number in self.model.live:
            assert not self.both(lambda store: store.record(sample_trajectory(number)))

    @rule(number=attempts)
    def judge(self, number):
        self.both(lambda store: store.eligible(group_of([number])))

    @some
    @rule(numbers=st.lists(attempts, min_size=1, max_size=3), update=st.integers(0, 1))
    def lease(self, numbers, update):
        batch = Batch(self.model.update + update, 0, (group_of(numbers),))
        self.both(lambda store: store.lease(batch))

    @some
    @rule(numbers=st.lists(attempts, min_size=1, max_size=3))
    def release(self, numbers):
        self.both(lambda store: store.release(Batch(self.model.update + 1, 0, (group_of(numbers),))))

    @some
    @rule(numbers=st.lists(attempts, min_size=1, max_size=3), update=st.integers(0, 1))
    def train(self, numbers, update):
        batch = Batch(self.model.update + update, 0, (group_of(numbers),))
        if self.both(lambda store: store.trained(batch, batch.update)):
            self.ended |= dict.fromkeys(numbers, "trained")

    @some
    @rule(numbers=st.lists(attempts, max_size=3))
    def drop(self, numbers):
        trajectories = [sample_trajectory(number) for number in numbers]
        if self.both(lambda store: store.drop(trajectories, Drop.STALE)):
            self.ended |= dict.fromkeys(numbers, "dropped")

    @rule()
    def recover(self):
        self.store.recover()
        self.model.recover()

    @rule()
    def stop_and_open_again(self):
        self.store.settle(SampleState({}), now=True)
        self.store.close()
        self.open()

    @rule()
    def crash(self):
        self.store.close()
        self.open()
        self.store.recover()
        if self.each:
            self.model.recover()
        else:
            self.compare_with_the_past()

    def compare_with_the_past(self):
        """What a batched store kept: perhaps less, but nothing that was trained is open again."""
        rows = self.rows()
        for number, state in self.ended.items():
            assert state != "trained" or rows[number] == "trained"
        self.ended = {n: state for n, state in rows.items() if state in ("trained", "dropped")}
        live = {n: TrajectoryState(state) for n, state in rows.items() if n not in self.ended}
        judged = frozenset(n for n, state in live.items() if state is TrajectoryState.ELIGIBLE)
        self.model = MemoryStore(live, judged=judged, update=self.model.update)
        self.number = max([self.number, *rows])

    def rows(self):
        return dict(self.store.database.execute("SELECT attempt, state FROM trajectories"))

    @invariant()
    def the_database_holds_what_memory_says(self):
        if not hasattr(self, "store"):
            return
        assert self.store.live == self.model.live
        assert self.store.states.update == self.model.update
        if not self.each:
            return
        assert self.rows() == {number: state.value for number, state in self.model.live.items()} | self.ended
        (trained,) = self.store.database.execute("SELECT ifnull(sum(num_trajectories), 0) FROM updates").fetchone()
        assert trained == sum(state == "trained" for state in self.ended.values())
        found = load_trajectories(self.store.database, on_torn=lambda torn: None)
        assert [trajectory.attempt.id for trajectory in found] == sorted(self.model.live), "only live turns are kept"


class Batched(Lives):
    each = False


for machine in (Lives, Batched):
    machine.TestCase.settings = settings(max_examples=8, stateful_step_count=25, deadline=None)

TestEach = Lives.TestCase
TestBatched = Batched.TestCase
