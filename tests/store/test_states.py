"""The SQL store against the store in memory, over random lives with crashes: the same states after every step."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import select

from dartsim.core.checks import sample_trajectory
from dartsim.core.errors import InvariantViolated
from dartsim.core.types import Batch, Drop, Group, TrajectoryState
from dartsim.store.database import open_sqlite
from dartsim.store.load import load_trajectories
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore
from dartsim.store.tables import TRAJECTORIES, UPDATES

TASK = sample_trajectory(0).attempt.task


def group_of(numbers):
    return Group(min(numbers), TASK, tuple(sample_trajectory(number) for number in numbers), 60.0)


# A list of attempts cannot be drawn while there is none, and a whole life would be given up for it.
some = precondition(lambda lives: lives.number > 0)


class Lives(RuleBasedStateMachine):
    """Any calls, legal or not: both stores answer alike, and the database holds what the one in memory says.

    A crash takes what was not written. The model is then what the database held: a state of its own past.
    """

    durability = "each"
    keep = "all"
    attempts = Bundle("attempts")

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = MemoryStore()
        self.ended: dict[int, str] = {}
        self.number = 0
        self.open()

    def open(self):
        self.store = SqlStore(
            open_sqlite(Path(self.folder.name) / "run.db"),
            durability=self.durability,
            keep=self.keep,
            max_pending=5,
        )

    def teardown(self):
        if hasattr(self, "store"):
            self.store.engine.dispose()
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
        self.store.close()
        self.open()

    @rule()
    def crash(self):
        self.store.engine.dispose()
        self.open()
        self.store.recover()
        if self.durability == "each":
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
        columns = TRAJECTORIES.c
        with self.store.engine.connect() as connection:
            return {row.attempt: row.state for row in connection.execute(select(columns.attempt, columns.state))}

    @invariant()
    def the_database_holds_what_memory_says(self):
        if not hasattr(self, "store"):
            return
        assert self.store.live == self.model.live
        assert self.store.states.update == self.model.update
        if self.durability == "each":
            assert self.rows() == {number: state.value for number, state in self.model.live.items()} | self.ended
            with self.store.engine.connect() as connection:
                trained = sum(connection.scalars(select(UPDATES.c.num_trajectories)))
            assert trained == sum(state == "trained" for state in self.ended.values())
            found = load_trajectories(self.store.engine, attempts=self.model.live)
            assert [trajectory.attempt.id for trajectory in found] == sorted(self.model.live)


class Batched(Lives):
    durability = "batched"


class OnlyLive(Lives):
    keep = "live"


for machine in (Lives, Batched, OnlyLive):
    machine.TestCase.settings = settings(max_examples=8, stateful_step_count=25, deadline=None)

TestEach = Lives.TestCase
TestBatched = Batched.TestCase
TestOnlyLive = OnlyLive.TestCase
