"""Attempts at held-out tasks among those of a run: measured, never trained on; and which tasks are held out."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config import from_tree, load, merge, preset
from dartsim.core.errors import ConfigError, LearnerFault
from dartsim.core.types import Batch, Ending, Task, Trajectory, Turns, UpdateResult, Weights
from dartsim.observe import HELD_OUT
from dartsim.observe.recorder import Listener
from dartsim.run.held_out_attempts import HeldOutAttempts
from dartsim.run.prepare import held_out_ids, prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.store.memory import MemoryStore

SMALL: dict[str, Any] = {
    "tasks": {"count": 12},
    "rollout": {"num_envs": 6, "num_workers": 2, "max_turns": 6},
    "curation": {
        "attempts": {"group_size": 2, "min_group_size": 1},
        "groups": {"min_size": 1},
        "batch": {"min_groups": 1, "max_groups": 2},
        "store": "memory",
    },
    "cluster": {"learner": {"fixed_seconds": 60.0}},
    "trainer": {"evaluation": {"every_updates": 4, "attempts_per_task": 2}},
    "run": {"hours": 4.0},
}


class TasksSeen(MemoryStore):
    """A store that counts the tasks of what it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: Counter[str] = Counter()

    def record(self, trajectory: Trajectory) -> None:
        super().record(trajectory)
        self.tasks[trajectory.attempt.task.id] += 1


def split_run(**tables: Any) -> tuple[TasksSeen, set[str], list[Any]]:
    prepared = prepare(from_tree(merge(merge(preset("dart"), SMALL), tables)))
    train, held_out = prepared.tasks[:8], prepared.tasks[8:]
    store, records = TasksSeen(), []
    run_prepared(
        replace(prepared, tasks=train, held_out=held_out),
        store=store,
        instruments=[Listener(update_finished=records.append)],
    )
    return store, {task.id for task in held_out}, records


@pytest.mark.parametrize("every", [1, 4])
def test_held_out_tasks_are_measured_every_few_updates_and_trained_on_never(every: int):
    store, held_out, records = split_run(trainer={"evaluation": {"every_updates": every, "attempts_per_task": 2}})
    assert store.tasks
    assert not held_out & set(store.tasks)
    measured = [record.metrics for record in records if HELD_OUT in record.metrics]
    assert len(measured) >= 2
    for metrics in measured:
        assert 0.0 <= metrics[HELD_OUT] <= 1.0
        assert metrics["held_out/masked"] == 0.0
        assert metrics["held_out/version"] <= metrics["held_out/newest_version"]
    assert [metrics["held_out/version"] for metrics in measured] == sorted(m["held_out/version"] for m in measured)


def test_a_masked_attempt_is_no_failure_of_the_model():
    _, _, records = split_run(rollout={**SMALL["rollout"], "limits": {"evaluate_seconds": 0.001}})
    assert not any(HELD_OUT in record.metrics for record in records)


class FailsOnce:
    """A learner whose second update fails once."""

    def __init__(self) -> None:
        self.faults = [LearnerFault("scripted")]

    async def update(self, batch: Batch) -> UpdateResult:
        if batch.update == 2 and self.faults:
            raise self.faults.pop()
        return UpdateResult(Weights(batch.update))


class DryUp:
    """A source without attempts."""

    async def admit(self, slot: int) -> None:
        return None

    def finish(self, trajectory: Trajectory) -> None:
        raise AssertionError("no attempt came from here")


async def test_a_result_is_reported_although_the_update_after_it_failed_once():
    prepared = prepare(from_tree(merge(preset("dart"), SMALL)))
    held_out = HeldOutAttempts(prepared.config, prepared.tasks[:2], FailsOnce(), every_updates=4)
    held_out.source = DryUp()
    assert HELD_OUT not in (await held_out.update(Batch(1, 0, ()))).metrics
    for slot in range(4):
        attempt = await held_out.admit(slot)
        assert attempt is not None
        held_out.finish(Trajectory(attempt, Turns(), Ending.DONE, float(slot % 2), None, 0.0, 1.0))
    with pytest.raises(LearnerFault):
        await held_out.update(Batch(2, 1, ()))
    assert (await held_out.update(Batch(2, 1, ()))).metrics[HELD_OUT] == 0.5
    assert HELD_OUT not in (await held_out.update(Batch(3, 2, ()))).metrics


def test_it_ends_a_run_that_reaches_its_target():
    prepared = prepare(from_tree(merge(preset("dart"), SMALL)))
    config = prepared.config
    config = config.model_copy(update={"run": config.run.model_copy(update={"target_success": 0.01})})
    split = replace(prepared, config=config, tasks=prepared.tasks[:8], held_out=prepared.tasks[8:])
    records: list[Any] = []
    run_prepared(split, instruments=[Listener(update_finished=records.append)])
    assert records[-1].metrics[HELD_OUT] >= 0.01
    assert not any(HELD_OUT in record.metrics for record in records[:-1])


# ---- which tasks


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 200))
def test_a_split_takes_from_each_domain_in_proportion(sizes: list[int], count: int):
    tasks = [
        Task(f"{domain}-{number}", "", f"d{domain}") for domain, size in enumerate(sizes) for number in range(size)
    ]
    chosen = held_out_ids(tasks, count)
    assert len(chosen) == min(count, len(tasks))
    assert chosen == held_out_ids(tasks[::-1], count)
    for domain, size in enumerate(sizes):
        mine = sum(name.startswith(f"{domain}-") for name in chosen)
        if count <= len(tasks):
            assert abs(mine - count * size / len(tasks)) < 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    listed = {"os": [f"os{n}" for n in range(6)], "vlc": [f"vlc{n}" for n in range(3)]}
    for domain, names in listed.items():
        (tmp_path / "examples" / domain).mkdir(parents=True)
        for name in names:
            spec = {"id": name, "instruction": "do it", "evaluator": {"func": "exact_match"}}
            (tmp_path / "examples" / domain / f"{name}.json").write_text(json.dumps(spec))
    (tmp_path / "list.json").write_text(json.dumps(listed))
    return tmp_path


def split(folder: Path, *overrides: str) -> tuple[list[str], list[str]]:
    source = ("tasks.source=osworld", f"tasks.folder={folder}", "tasks.list_name=list")
    found = prepare(load("dart", overrides=[*source, *overrides]))
    return [task.id for task in found.tasks], [task.id for task in found.held_out]


def test_a_list_is_split_by_number(folder: Path):
    train, held_out = split(folder, "tasks.held_out=3")
    assert sorted(task[:2] for task in held_out) == ["os", "os", "vl"]
    assert len(train) == 6
    assert not set(train) & set(held_out)
    assert split(folder, "tasks.held_out=3", "run.seed=7") == (train, held_out)
    assert split(folder)[1] == []


def test_splits_that_leave_nothing_are_refused(folder: Path):
    with pytest.raises(ConfigError, match="9 of 9 tasks would be held out"):
        split(folder, "tasks.held_out=9")


def test_generated_tasks_are_not_held_out():
    with pytest.raises(ConfigError, match="they have no content"):
        load("dart", overrides=["tasks.held_out=40"])
