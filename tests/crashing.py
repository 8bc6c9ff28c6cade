"""Runs that crash at random instants: simulated ones in virtual time, and processes by SIGKILL; and their database.

A simulated run is abandoned before a random event: nothing that its store had not been asked to write is written, as if
the process had died there. Then the store is opened again and the run resumed, until it ends. Real kills strike a
process that executes or resumes a run, at a random moment of its life: in the middle of a transaction, of a file, of
the recovery from the kill before. After every crash, and at the end, the database is read and compared with what it
held before.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dartsim.config import Config, from_tree, merge, preset
from dartsim.core.ports import Store
from dartsim.observe import Recorder, ticker
from dartsim.observe.rundir import CONFIG, SUMMARY
from dartsim.run.execute import execute, open_store
from dartsim.run.prepare import prepare
from dartsim.run.resume import resume
from dartsim.run.resume_point import LIVES, read_resume_point
from dartsim.run.run_prepared import run_prepared
from dartsim.store.database import reading

SMALL: dict[str, Any] = {
    "tasks": {"count": 6},
    "rollout": {"num_envs": 6, "num_workers": 2, "max_turns": 8},
    "curation": {
        "attempts": {"group_size": 4},
        "groups": {"min_size": 1},
        "batch": {"min_groups": 2, "max_groups": 3},
    },
    "cluster": {"learner": {"fixed_seconds": 60.0}, "engine": {"reload_seconds": 30.0}},
    "surrogate": {"mean_success": 0.5},
    "run": {"hours": 1.5, "max_segments": 0},
}
FAULTS: dict[str, Any] = {
    "cluster": {
        "faults": {
            "kinds": {
                "start_failed": {"share": 0.05},
                "step_failed": {"share": 0.02},
                "score_failed": {"share": 0.05},
                "load_failed": {"share": 0.1},
                "update_failed": {"share": 0.2},
            }
        }
    }
}
LOCK_STEP: dict[str, Any] = {
    "rollout": {"num_envs": 6, "num_workers": 2},
    "curation": {"groups": {"min_size": 1}, "batch": {"min_groups": 2, "max_groups": 2}},
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dart": ("dart", {}),
    "dart, with faults": ("dart", FAULTS),
    "coupled": ("coupled", LOCK_STEP),
}
"""Kinds of runs: presets on a small cluster, with and without faults of the cluster itself."""


class Crashed(BaseException):
    """The simulated end of a process."""


@dataclass
class Ledger:
    """What a run's database held at the last check, and all violations so far."""

    bound: int | None
    bad: Counter[str] = field(default_factory=Counter)
    _known: frozenset[int] = frozenset()
    _trained: frozenset[int] = frozenset()
    _update: int = 0

    def look(self, database: Path) -> None:
        """Read the database and compare."""
        with reading(database) as connection:
            columns = 'attempt, state, "update", oldest_version'
            rows = {attempt: row for attempt, *row in connection.execute(f"SELECT {columns} FROM trajectories")}
            updates = list(connection.execute('SELECT "update", num_trajectories FROM updates ORDER BY 1'))
        used = {attempt: (update, oldest) for attempt, (state, update, oldest) in rows.items() if state == "trained"}
        trained, times = frozenset(used), Counter(update for update, _ in used.values())
        behind = [update - 1 - oldest for update, oldest in used.values()]
        self.bad["lost"] += len(self._known - rows.keys()) + len(self._trained - trained)
        self.bad["doubled, or marked without an update"] += times != dict(updates)
        numbers = [number for number, _ in updates]
        self.bad["step count went back"] += numbers != list(range(1, len(numbers) + 1)) or len(numbers) < self._update
        self.bad["too stale"] += sum(b < 0 or (self.bound is not None and b > self.bound) for b in behind)
        self._known, self._trained, self._update = frozenset(rows), trained, len(updates)

    def end(self, database: Path, attempts: int) -> None:
        """Check the database of a run that has ended."""
        self.look(database)
        with reading(database) as connection:
            rows = connection.execute("SELECT state, reason FROM trajectories WHERE attempt >= 0").fetchall()
        states = Counter(state for state, _ in rows)
        self.bad["dropped without a reason"] += ("dropped", None) in rows
        self.bad["accounts differ"] += states["trained"] + states["dropped"] != attempts
        self.bad["left behind"] += sum(states[state] for state in ("recorded", "eligible", "leased"))

    @property
    def violations(self) -> dict[str, int]:
        return {name: number for name, number in self.bad.items() if number}


def configured(kind: str, seed: int, **tables: Any) -> Config:
    """Return the configuration of a kind of run, on a small cluster."""
    name, changes = KINDS[kind]
    tree = merge(merge(merge(preset(name), SMALL), changes), {"run": {"seed": seed}})
    return from_tree(merge(tree, tables))


def crashing_run(config: Config, folder: Path, instants: list[float], ledger: Ledger) -> Recorder:
    """Run a configuration, crashing it at each of these times of the run, seconds, and resume it until it ends."""
    prepared = prepare(config)
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        store = open_store(config, folder)
        resume_point = read_resume_point(store, folder)
        if resume_point is not None:
            store.save({LIVES: [*resume_point.lives, resume_point.as_json()]})
        due = instants.pop(0) if instants else float("inf")

        def strike(now: float, store: Store = store, due: float = due) -> None:
            if now >= due:
                store.suspend()
                raise Crashed

        try:
            result = run_prepared(prepared, store=store, resume_point=resume_point, instruments=[ticker(strike, 0.001)])
        except Crashed:
            ledger.look(folder / "run.db")
            continue
        finally:
            store.close()
        ledger.end(folder / "run.db", int(result.recorder.counts["attempts"]))
        return result.recorder


def trained_set(database: Path) -> set[tuple[Any, ...]]:
    """Return what was trained, by task, group, place in it, seed, outcome and length: not by number of attempt."""
    columns = 'task, "group", "index", seed, reward, num_turns'
    with reading(database) as connection:
        return set(connection.execute(f"SELECT {columns} FROM trajectories WHERE state = 'trained'"))


def forked(work: Callable[[], None]) -> int:
    """Fork a process that does the work; return its id."""
    process = os.fork()
    if process:
        return process
    _work(work)


def _work(work: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()  # _exit says nothing
        raise
    finally:
        os._exit(code)


def start_or_resume(config: Config, folder: Path) -> None:
    """Start or resume a run, unless its end was already written."""
    if (folder / SUMMARY).exists():
        return
    if (folder / CONFIG).exists():
        resume(folder)
    else:
        execute(config, folder)


def killed(kind: str, seed: int, kills: int, folder: Path, *, mean_seconds: float = 1.5) -> tuple[int, Ledger]:
    """Kill processes of runs, one run after the other, and return how many runs ended."""
    rng = np.random.default_rng(seed)
    ledger = Ledger(configured(kind, seed).curation.staleness.max_staleness)
    done = ended = 0
    while done < kills:
        config = configured(kind, seed + ended, run={"hours": 6.0})
        run = folder / f"run-{ended}"
        ledger = Ledger(config.curation.staleness.max_staleness, ledger.bad)
        while True:
            process = forked(lambda config=config, run=run: start_or_resume(config, run))  # type: ignore[misc]
            if done < kills:
                time.sleep(float(rng.exponential(mean_seconds)))
                os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            if os.WIFSIGNALED(status):
                done += 1
                if (run / "run.db").exists() and (run / "run.db").stat().st_size:
                    look_if_made(ledger, run / "run.db")
                continue
            ledger.bad["failed"] += status != 0
            ended += 1
            ledger.look(run / "run.db")
            break
    return ended, ledger


def look_if_made(ledger: Ledger, database: Path) -> None:
    """Check a database, unless its process was killed before it had tables."""
    with reading(database) as connection:
        made = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if made != (0,):
        ledger.look(database)
