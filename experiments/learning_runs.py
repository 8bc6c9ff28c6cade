"""One run of a study of learning: from a base model that can do some of the tasks, on the simulated cluster.

Needs torch: the processes of a sweep import it, ``experiments.learning`` does not.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from typing_extensions import override

from dartsim.config import Config
from dartsim.core.types import Weights
from dartsim.envs.mock.suites import mock_tasks
from dartsim.lab.sweep import Report
from dartsim.observe import HELD_OUT, Instrument, Recorder, UpdateRecord, ticker
from dartsim.real.evaluate import evaluate
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.learners.warm_start import Demonstration, WarmStart, warm_start
from dartsim.real.scratch import replaced_folder
from dartsim.real.vlm import VlmPolicy, build
from dartsim.real.vlm.model import one_thread
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.content import desktop_maker
from dartsim.run.model import trained_model
from dartsim.run.prepare import prepare
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.run_prepared import run_prepared
from experiments.imperfect_teacher import Mistakes, imperfect_turns
from experiments.learning_suites import KINDS, LearningRun, Teacher

FINAL_ATTEMPTS = 4
"""Attempts at each held-out task with the last weights."""

BASE = "base.json"
"""File beside a base model's checkpoint: what it can do."""


def made_base(run: LearningRun, folder: Path) -> Mapping[str, Any]:
    """Make the base model of a run, unless the folder has it, and return what it can do.

    Returns:
        ``tasks`` and ``held_out``: success rate by task; ``cpu_seconds``: what it took.
    """
    if (folder / BASE).is_file():
        return cast("dict[str, Any]", json.loads((folder / BASE).read_text(encoding="utf-8")))
    began = time.process_time()
    one_thread()
    prepared, seed = prepare(run.base), run.base.run.seed
    vlm = build(vlm_config(run.base), seed=seed)
    teacher = run.teacher
    settings = WarmStart(
        steps=teacher.steps, present_steps=teacher.present_steps, learning_rate=teacher.learning_rate, seed=seed
    )
    warm_start(vlm, lessons_of(run.base, teacher), settings)
    rates = {
        name: _evaluate(VlmPolicy(vlm), prepared, tasks, Weights(0), run.teacher.attempts)
        for name, tasks in (("tasks", prepared.tasks), ("held_out", prepared.held_out))
    }
    made = {**rates, "cpu_seconds": time.process_time() - began}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replaced_folder(folder) as partial:
        TorchLearner(vlm, run.base.trainer, seed=seed).save(partial / "checkpoint")
        (partial / BASE).write_text(json.dumps(made), encoding="utf-8")
    return made


def lessons_of(settings: Config, teacher: Teacher) -> list[Demonstration]:
    """Return what an imperfect teacher shows, at other tasks than those of the run."""
    seed = settings.run.seed
    rng = np.random.default_rng([seed, 7])
    shown = []
    for family, by_chance in teacher.by_chance.items():
        mistakes = Mistakes(by_chance=by_chance, beside=teacher.beside.get(family, 0.0), slips=teacher.slips)
        for difficulty in teacher.difficulties:
            for number, task in enumerate(mock_tasks(family, teacher.tasks, seed + 1_000, difficulty)):
                shown += imperfect_turns(settings, task, number, mistakes, rng)
    return shown


def kind_of(rate: float) -> str:
    """Return ``never``, ``hard`` or ``easy``, by the base model's success rate at a task."""
    return "never" if rate == 0.0 else "hard" if rate < 0.5 else "easy"


@dataclass
class Curve(Instrument):
    """Success on held-out tasks by update, hour and turn, written during the run."""

    kinds: Mapping[str, str]
    """Kind of each held-out task."""
    recorder: Recorder | None = None
    points: list[dict[str, float]] = field(default_factory=list)

    @override
    def run_started(self, recorder: Recorder) -> None:
        self.recorder = recorder

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        if HELD_OUT in record.metrics:
            self.note(record.update, record.time)

    def note(self, update: int, seconds: float) -> None:
        """Add where the run is; ``rates`` adds the success later."""
        counts, hot = (self.recorder.counts, self.recorder.hot) if self.recorder is not None else ({}, None)
        self.points.append(
            {
                "update": update,
                "simulated_hours": round(seconds / 3600.0, 5),
                "turns": hot.generated_turns if hot is not None else 0,
                "trained_turns": counts.get("trained_turns", 0),
            }
        )

    def with_rates(self, rates: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
        """Return the curve by columns, with the success over all tasks and by kind.

        Args:
            rates: Success by held-out task, one mapping for each point.
        """
        rows = [
            {**point, "success_rate": float(np.mean(list(own.values()))), **by_kind(own, self.kinds)}
            for point, own in zip(self.points, rates, strict=True)
        ]
        return {name: [round(row[name], 5) for row in rows] for name in rows[0]}


def by_kind(rates: Mapping[str, float], kinds: Mapping[str, str]) -> dict[str, float]:
    """Return the mean success rate of each kind of task that there is."""
    found: dict[str, list[float]] = defaultdict(list)
    for task, rate in rates.items():
        found[kinds[task]].append(rate)
    return {kind: float(np.mean(found[kind])) for kind in KINDS if found[kind]}


def run_from(run: LearningRun, folder: Path, report: Report = lambda share: None) -> dict[str, Any]:
    """Make a run from the base model in a folder, which is made if it is not there, and return its figures."""
    base = made_base(run, folder)
    began = time.process_time()
    prepared = prepare(run.config)
    trained = trained_model(prepared, restore=folder)
    kinds = {task: kind_of(rate) for name in ("tasks", "held_out") for task, rate in base[name].items()}
    curve = Curve(kinds)
    curve.note(0, 0.0)
    progress = ticker(lambda now: report(now / 3600.0 / run.config.run.hours))
    result = run_prepared(prepared, learning=trained, instruments=[curve, progress])
    newest = trained.weights
    last = _evaluate(trained.model, prepared, prepared.held_out, newest, FINAL_ATTEMPTS)
    recorder = result.recorder
    curve.note(newest.version, recorder.snapshots[-1].time)
    during = trained.held_out.evaluations
    points = curve.with_rates([base["held_out"], *during[: len(curve.points) - 2], last])
    return {
        "bound": prepared.config.curation.staleness.max_staleness,
        "success_rate_initial": points["success_rate"][0],
        "success_rate_final": points["success_rate"][-1],
        "by_kind_initial": by_kind(base["held_out"], kinds),
        "by_kind_final": by_kind(last, kinds),
        "kinds": dict(Counter(kinds[task.id] for task in prepared.held_out)),
        "curve": points,
        "num_updates": newest.version,
        "turns": recorder.hot.generated_turns,
        "trained_turns": int(recorder.counts["trained_turns"]),
        "importance": importance(recorder),
        "pool": dict(trained.successes.counts) if trained.successes is not None else {},
        "cpu_seconds": time.process_time() - began,
    }


def _evaluate(
    model: VlmPolicy, prepared: PreparedRun, tasks: Sequence[Any], weights: Weights, attempts: int
) -> dict[str, float]:
    """Return the mean reward of weights in several attempts at each task."""
    model.add(weights)
    maker = desktop_maker(prepared.config)
    return evaluate(
        model,
        [maker() for _ in range(64)],
        tasks,
        version=weights.version,
        turn_limit=prepared.config.rollout.max_turns,
        attempts=attempts,
        seed=1,
    )


def importance(recorder: Recorder) -> dict[str, float]:
    """Return the mean effective sample size over the updates that have one, as a share of the samples."""
    name = "raw_effective_sample_share"
    every = [update.metrics.get(f"importance/{name}") for update in recorder.updates]
    known = [share for share in every if share is not None]
    return {name: float(np.mean(known))} if known else {}
