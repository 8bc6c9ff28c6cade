"""A life of trajectories that is killed with SIGKILL again and again, and what is checked after each time.

``python crash_life.py FOLDER --kills 100 --seed 1 [--each]`` prints what it found as JSON. One process imports
everything, and forks the ones that are killed at a random line of ``dartsim/store`` or of this file. Each writes down,
in a file of its own, what the store told it was done. The weights of the learner are the list of attempts that it
trained on.
"""

import argparse
import json
import os
import signal
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np

from dartsim.core.types import (
    LIVE,
    Attempt,
    Batch,
    Drop,
    Ending,
    Group,
    Observation,
    Reply,
    Task,
    Trajectory,
    TrajectoryState,
    Turn,
)
from dartsim.store.blobs import BlobStore
from dartsim.store.checkpoints import write_checkpoint
from dartsim.store.database import open_database
from dartsim.store.load import load_trajectories
from dartsim.store.sql import SqlStore
from dartsim.testing.ports import SampleState

TASKS = [Task(f"task-{number}", "Do it.", "chrome", {"id": number}) for number in range(3)]
GROUP = 4
EVERY = 2
"""Updates between two checkpoints."""
LIFE = 400
"""Attempts after which a life that nobody killed ends."""


def trajectory(number, group):
    """What an attempt left behind: the same whenever it is asked."""
    rng = np.random.default_rng(number)
    task = TASKS[group % 3]
    turns = []
    for place in range(2):
        picture = np.full((8, 8, 3), rng.integers(0, 40), dtype=np.uint8)  # many are alike
        tokens = rng.integers(0, 1000, 5)
        logprobs, entropies = (rng.normal(size=5).astype(np.float32) for _ in range(2))
        reply = Reply(f"click {place}", 1, 1, 0, 100, 5, tokens, logprobs, entropies)
        turns.append(Turn(Observation(picture, task.instruction), reply))
    attempt = Attempt(number, task, group, 0, number, 30, 1)
    return Trajectory(attempt, tuple(turns), Ending.DONE, float(rng.integers(0, 2)), None, number, number + 1.0)


class Place:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        self.ledger = options.folder / "ledger"

    def store(self):
        return SqlStore(
            open_database(self.folder / "run.db"),
            blobs=BlobStore(self.folder / "screens", reserve_bytes=0),
            checkpoints=self.folder / "checkpoints",
            max_changes=1 if self.options.each else 7,
        )

    def reported(self):
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [json.loads(line) for line in lines]


def weights_of(place, recovered):
    if recovered.checkpoint is None:
        return []
    return json.loads((recovered.checkpoint / "weights.json").read_text())


# ---- the life


def live(place, seed):
    """Go on from wherever the last one was killed, until killed."""
    rng = np.random.default_rng(seed)
    ledger = os.open(place.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    store, pending = place.store(), []

    def tell(what, *numbers):
        """Say what the store was told, once that is written; each call ends a step."""
        store.settle(SampleState({}))
        pending.append(json.dumps([what, *numbers]) + "\n")
        if not store.database.in_transaction:
            os.write(ledger, "".join(pending).encode())
            pending.clear()

    recovered = store.recover()
    tell("begin", recovered.update)
    weights, update = weights_of(place, recovered), recovered.update
    newest = store.database.execute('SELECT max(attempt), max("group") FROM trajectories').fetchone()
    number, group_number = (0 if last is None else last + 1 for last in newest)
    found = list(load_trajectories(store.database, blobs=store.blobs, states=LIVE))
    by_group: dict[int, list[Trajectory]] = {}
    for one in found:
        if store.live.get(one.attempt.id) is TrajectoryState.RECORDED:
            store.drop([one], Drop.UNUSED)
            tell("drop", one.attempt.id)
        elif one.attempt.id in store.live:
            by_group.setdefault(one.attempt.group, []).append(one)
    ready = [Group(key, members[0].attempt.task, tuple(members), 1.0) for key, members in by_group.items()]
    for _ in range(LIFE):
        members = []
        for _ in range(GROUP):
            one = trajectory(number, group_number)
            number += 1
            store.record(one)
            tell("record", one.attempt.id)
            members.append(one)
        group = Group(group_number, members[0].attempt.task, tuple(members), 1.0)
        group_number += 1
        if rng.random() < 0.3:
            store.drop(members, Drop.ALL_FAILED)
            tell("drop", *(one.attempt.id for one in members))
            continue
        store.eligible(group)
        ready.append(group)
        if len(ready) < 2:
            continue
        batch = Batch(update + 1, update, tuple(ready[:2]))
        attempts = [one.attempt.id for one in batch.trajectories]
        store.lease(batch)
        tell("lease", *attempts)
        if rng.random() < 0.2:
            store.release(batch)
            tell("release", *attempts)
            continue
        weights = weights + attempts
        update += 1
        checkpoint = None
        if update % EVERY == 0:

            def fill(folder, weights=weights):
                (folder / "weights.json").write_text(json.dumps(weights))

            checkpoint = write_checkpoint(place.folder / "checkpoints", update, fill)
        store.trained(batch, update, checkpoint=checkpoint)
        if checkpoint is not None:
            tell("finished", update)
        ready = ready[2:]
    store.close()


def killed_at_a_line(most, rng):
    """Kill this process at a random line that it comes to."""
    left = int(rng.integers(1, most))
    files = (str(Path("dartsim") / "store"), Path(__file__).name)

    def recorder(frame, event, _argument):
        nonlocal left
        if not any(part in frame.f_code.co_filename for part in files):
            return None
        if event == "line":
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return recorder

    sys.settrace(recorder)


# ---- the check


def check(place):
    """Recover, and return what is wrong, as counts, and what there is."""
    store = place.store()
    recovered = store.recover()
    bad = Counter()
    told = place.reported()
    weights = weights_of(place, recovered)
    rows = dict(store.database.execute("SELECT attempt, state FROM trajectories"))
    (counted,) = store.database.execute("SELECT ifnull(sum(num_trajectories), 0) FROM updates").fetchone()
    trained = [attempt for attempt, state in rows.items() if state == "trained"]
    bad["doubled"] += len(weights) - len(set(weights))
    bad["trained but not in the weights"] += len(set(trained) - set(weights))
    bad["in the weights but not trained"] += len(set(weights) - set(trained))
    bad["counts differ"] += counted != len(trained)
    bad["still leased"] += sum(state == "leased" for state in rows.values())
    finished = [numbers[0] for what, *numbers in told if what in ("finished", "begin")]
    bad["went back"] += any(later < earlier for earlier, later in pairwise([*finished, recovered.update]))

    bad["lost"] += len({number for what, *numbers in told for number in numbers if what == "record"} - rows.keys())
    dropped = {number for what, *numbers in told if what == "drop" for number in numbers}
    bad["dropped came back"] += sum(rows[number] != "dropped" for number in dropped & rows.keys())

    blobs = store.blobs
    torn, names = [], set()
    for one in load_trajectories(store.database, blobs=blobs, attempts=store.live, on_torn=torn.append):
        for turn in one.turns:
            names.add(blobs.put(turn.observation.screenshot))
        original = trajectory(one.attempt.id, one.attempt.group)
        for mine, theirs in zip(one.turns, original.turns, strict=True):
            same = all(np.array_equal(a, b) for a, b in zip(mine.reply, theirs.reply, strict=True))
            same &= np.array_equal(mine.observation.screenshot, theirs.observation.screenshot)
            bad["changed"] += not same or mine.observation[1:] != theirs.observation[1:]
    bad["torn"] += len(torn)
    bad["files differ"] += names != set(blobs.names())
    store.close()
    states = Counter(rows.values())
    facts = {"update": recovered.update, "attempts": len(rows), "returned": len(recovered.returned), **states}
    facts |= {"undone": len(recovered.undone), "removed": len(recovered.removed)}
    return {key: value for key, value in bad.items() if value}, facts


# ---- processes


def forked(work):
    """Do work in a process of its own; return its number."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def checked(place):
    reader, writer = os.pipe()

    def work():
        os.write(writer, json.dumps(check(place)).encode())

    process = forked(work)
    os.close(writer)
    with os.fdopen(reader, "rb") as found:
        text = found.read()
    _, status = os.waitpid(process, 0)
    assert status == 0, f"the check failed with status {status}"
    return json.loads(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", action="store_true", help="write every step at once")
    options = parser.parse_args()
    place = Place(options)
    rng = np.random.default_rng(options.seed)
    totals, sums = Counter(), Counter()
    facts = {}
    done = 0
    for kill in range(options.kills):
        seed = int(rng.integers(2**31))

        def work(seed=seed):
            killed_at_a_line(20_000, np.random.default_rng(seed))
            live(place, seed)

        process = forked(work)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            done += 1
        elif status:
            totals["failed"] += 1
        if rng.random() < 0.3 and kill + 1 < options.kills:
            continue  # the next one recovers what two left
        bad, facts = checked(place)
        totals.update(bad)
        for name in ("returned", "undone", "removed"):
            sums[name] += facts.pop(name)
        if bad or totals["failed"]:
            totals["first bad kill"] = kill
            break
    print(json.dumps({"kills": done, "bad": dict(totals), **facts, "sums": dict(sums)}))


if __name__ == "__main__":
    main()
