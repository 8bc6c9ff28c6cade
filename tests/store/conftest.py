"""Trajectories and places for the tests of the store."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.store.database import DATABASE_FILE, open_database
from dartsim.store.sql import SqlStore

TASK = Task("check", "Save the document.", "libreoffice", {"id": "check", "config": [{"type": "launch", "n": 1.5}]})


@pytest.fixture(scope="session")
def made():
    return sys.modules[__name__]


def attempt(number, *, group=None, task=TASK):
    return Attempt(
        number, task, number if group is None else group, 2, seed=2**63 - 1 - number, turn_limit=30, version=3
    )


def screen(number, height=6, width=8):
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def full_turn(number, *, task=TASK):
    """A turn in which everything is there."""
    rng = np.random.default_rng(number)
    length = int(rng.integers(0, 5))
    tokens = rng.integers(0, 150_000, length)
    logprobs, entropies = (rng.normal(size=length).astype(np.float32) for _ in range(2))
    reply = Reply(f"click {number} – ж", 5, 4, 2, 900 + number, length, tokens, logprobs, entropies)
    return Turn(Observation(screen(number), task.instruction), reply)


def ended(number, *, turns=None, reward=1.0, group=None, task=TASK, finished=None):
    """What an attempt left behind; without a reward it is masked."""
    if turns is None:
        turns = tuple(full_turn(number * 100 + place, task=task) for place in range(3))
    ending, cause = (Ending.BROKEN, "EnvBroken: gone") if reward is None else (Ending.DONE, None)
    at = 60.0 + number if finished is None else finished
    return Trajectory(attempt(number, group=group, task=task), tuple(turns), ending, reward, cause, at - 59.5, at)


def plain(number, **more):
    """What an attempt of a simulated model left behind: turns without tokens and pictures."""
    turn = Turn(Observation(None, TASK.instruction), Reply("WAIT", 3, 3, 0, 100, 10))
    return ended(number, turns=(turn,) * 2, **more)


class State:
    """A scheduler's state, settled with the store's changes."""

    def __init__(self, successes=()):
        self._successes = successes

    def documents(self):
        return {}

    def successes(self):
        return self._successes


def settle(store, successes=()):
    store.settle(State(successes), now=True)


def batch(trajectories, update=1):
    trajectories = tuple(trajectories)
    return Batch(update, update - 1, (Group(trajectories[0].attempt.group, TASK, trajectories, ready=99.0),))


def same(found, wanted):
    """Whether two trajectories are equal in everything, arrays included."""

    def flat(trajectory):
        turns = [(*turn.reply[:6], turn.observation.instruction) for turn in trajectory.turns]
        rest = (trajectory.ending, trajectory.reward, trajectory.cause, trajectory.started, trajectory.finished)
        return trajectory.attempt, trajectory.attempt.task.spec, turns, rest

    def arrays(trajectory):
        for turn in trajectory.turns:
            yield from (turn.observation.screenshot, *turn.reply[6:])

    return flat(found) == flat(wanted) and all(
        (a is None) == (b is None) and (a is None or np.array_equal(a, b))
        for a, b in zip(arrays(found), arrays(wanted), strict=True)
    )


class Place:
    """A folder whose store is opened again and again; every opening may be the successor of one that was killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened = []

    def database(self):
        self.opened.append(open_database(self.folder / DATABASE_FILE))
        return self.opened[-1]

    def store(self, **options):
        """Open the store, after whoever had it open was killed."""
        for database in self.opened:
            database.close()
        return SqlStore(self.database(), **options)


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    for database in place.opened:
        database.close()
