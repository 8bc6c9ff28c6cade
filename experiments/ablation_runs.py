"""One run of the ablation: a base model that knows half of it, trained on the simulated cluster."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from typing_extensions import override

from dartsim.config import Config
from dartsim.core.types import Batch, Task, UpdateResult, Weights
from dartsim.curation import TurnSelection
from dartsim.envs.mock.suites import mock_tasks
from dartsim.observe import HELD_OUT, Instrument, Recorder, TrainerState, UpdateRecord
from dartsim.real.evaluate import evaluate
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.learners.warm_start import Demonstration, WarmStart, warm_start
from dartsim.real.vlm import build
from dartsim.real.vlm.model import one_thread
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.demonstrations import oracle_turns
from dartsim.run.evaluation import EvaluatedLearner
from dartsim.run.learning import Learning, learning
from dartsim.run.prepare import PreparedRun, prepare
from dartsim.run.sim_cluster import desktop_maker
from dartsim.run.simulation import run_simulation
from dartsim.trainer.promotion import HeldOutRewards

CARELESS = {"plain_locks": 0.3, "mixed_locks": 0.5, "odd_locks": 0.25}
"""Share of a teacher's actions that are drawn by chance: what the base model is unsure of."""

MISLED = "odd_locks"
"""The family that the teacher gets wrong: it presses the button next to the right one."""

LESSON_TASKS, LESSON_DIFFICULTY = 150, 5
STEPS, QUICK_STEPS = 120, 10
"""Supervised steps that make the base model."""

FINAL_ATTEMPTS = 4
"""Attempts at each held-out task with the first and the last weights."""

WANTED = 0.5
"""Success rate whose first time is reported."""


def kind_of(task: Task) -> str:
    """Return ``easy``, ``hard`` or ``never``: how the base model does on a task."""
    return {"plain_locks": "easy", "mixed_locks": "hard", "odd_locks": "never"}[task.domain]


def made_base(settings: Config, folder: Path, *, quick: bool) -> float:
    """Make a base model that knows half of it, and return the CPU seconds that it took."""
    began = time.process_time()
    one_thread()
    seed = settings.run.seed
    vlm = build(vlm_config(settings), seed=seed)
    steps = QUICK_STEPS if quick else STEPS
    warm_start(vlm, lessons(settings, vlm.config.actions), WarmStart(steps=steps, seed=seed))
    folder.mkdir(parents=True, exist_ok=True)
    TorchLearner(vlm, settings.trainer, seed=seed).save(folder / "checkpoint")
    return time.process_time() - began


def lessons(settings: Config, words: Sequence[str]) -> list[Demonstration]:
    """Return what a careless teacher shows: some actions by chance, and one family wrong."""
    seed = settings.run.seed
    rng = np.random.default_rng([seed, 7])
    shown = []
    for family, careless in CARELESS.items():
        tasks = mock_tasks(family, LESSON_TASKS, seed + 1_000, LESSON_DIFFICULTY)
        for number, task in enumerate(tasks):
            for turn in oracle_turns(settings, task, number) or ():
                action = _beside(turn.action) if family == MISLED else turn.action
                if rng.random() < careless:
                    action = words[int(rng.integers(len(words)))]
                shown.append(turn._replace(action=action))
    return shown


def _beside(action: str) -> str:
    """Return a click on the cell to the right of the right one, at the edge the first of the row."""
    word, *cell = action.split()
    if word != "click":
        return action
    return f"click {(int(cell[0]) + 1) % 3} {cell[1]}"


@dataclass
class Curve(Instrument):
    """Success on held-out tasks by update, hour and turn, written during the run."""

    recorder: Recorder | None = None
    points: list[dict[str, float]] = field(default_factory=list)

    @override
    def run_started(self, recorder: Recorder) -> None:
        self.recorder = recorder

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        if HELD_OUT in record.metrics:
            self.note(record.update, record.time, record.metrics[HELD_OUT])

    def note(self, update: int, seconds: float, success: float | None) -> None:
        counts, hot = (self.recorder.counts, self.recorder.hot) if self.recorder is not None else ({}, None)
        self.points.append(
            {
                "update": update,
                "simulated_hours": round(seconds / 3600.0, 5),
                "turns": hot.generated_turns if hot is not None else 0,
                "trained_turns": counts.get("trained_turns", 0),
                "success_rate": round(success or 0.0, 5),
            }
        )

    def first(self, column: str, wanted: float) -> float | None:
        """Return where the success rate first reaches what is wanted, between evaluations linearly; None if never."""
        for before, after in zip([None, *self.points], self.points, strict=False):
            if after["success_rate"] >= wanted:
                if before is None:
                    return after[column]
                share = (wanted - before["success_rate"]) / (after["success_rate"] - before["success_rate"])
                return round(before[column] + share * (after[column] - before[column]), 5)
        return None


class Cuts:
    """A learner that counts the turns that high-entropy selection drops, of stored successes and of all others."""

    def __init__(self, inner: EvaluatedLearner, settings: Config) -> None:
        self._inner = inner
        self._rule: TurnSelection = settings.curation.selection.build()
        self.counts: Counter[str] = Counter()

    @property
    def newest(self) -> Weights:
        return self._inner.newest

    async def update(self, batch: Batch) -> UpdateResult:
        for group in batch.groups:
            kept = self._rule.select(group).kept
            for trajectory, flags in zip(group.trajectories, kept, strict=True):
                name = "own" if trajectory.attempt.group == group.id else "stored"
                self.counts[name] += len(flags)
                self.counts[f"{name}_cut"] += flags.count(False)
        return await self._inner.update(batch)


def run_from(settings: Config, folder: Path) -> dict[str, Any]:
    """Run a configuration from the base model in a folder and return its figures."""
    began = time.process_time()
    prepared = prepare(settings)
    trained = learning(prepared, resume=folder)
    first = _evaluate(trained, prepared, Weights(0))
    curve = Curve()
    curve.note(0, 0.0, first.mean)
    learner = trained.learner
    cuts = Cuts(learner, prepared.config)
    trained.learner = cast("EvaluatedLearner", cuts)
    result = run_simulation(prepared, learning=trained, instruments=[curve])
    newest = learner.newest
    last = _evaluate(trained, prepared, newest)
    recorder, figures = result.recorder, result.figures
    curve.note(newest.version, recorder.snapshots[-1].time, last.mean)
    return {
        "bound": prepared.config.curation.staleness.max_staleness,
        "success_rate_initial": first.mean,
        "success_rate_final": last.mean,
        "turns_to_50_percent": curve.first("turns", WANTED),
        "trained_turns_to_50_percent": curve.first("trained_turns", WANTED),
        "simulated_hours_to_50_percent": curve.first("simulated_hours", WANTED),
        "by_kind_initial": by_kind(prepared.held_out, first),
        "by_kind_final": by_kind(prepared.held_out, last),
        "curve": {name: [round(point[name], 5) for point in curve.points] for name in curve.points[0]},
        "num_updates": newest.version,
        "turns": recorder.hot.generated_turns,
        "trained_turns": int(recorder.counts["trained_turns"]),
        "turns_per_trajectory": figures["turns_per_trajectory"],
        "staleness_mean": figures["staleness_mean"],
        "staleness_max": recorder.staleness_max,
        "env_utilization": figures["env_utilization"],
        "trainer_busy": 1.0 - _share_waiting(recorder),
        "importance": _importance(recorder),
        "dropped": {name.removeprefix("dropped/"): int(n) for name, n in recorder.counts.items() if "dropped/" in name},
        "cut_turns": dict(cuts.counts),
        "pool": dict(trained.successes.counts) if trained.successes is not None else {},
        "cpu_seconds": time.process_time() - began,
    }


def by_kind(tasks: Sequence[Task], evaluation: HeldOutRewards) -> dict[str, float]:
    """Return the success rate on easy, hard and never-solved tasks."""
    scores: dict[str, list[float]] = defaultdict(list)
    for task in tasks:
        scores[kind_of(task)].extend(evaluation.rewards[task.id])
    return {kind: float(np.mean(values)) for kind, values in sorted(scores.items())}


def _evaluate(trained: Learning, prepared: PreparedRun, weights: Weights) -> HeldOutRewards:
    """Evaluate weights more thoroughly than during the run."""
    trained.model.add(weights)
    maker = desktop_maker(prepared.config)
    return evaluate(
        trained.model,
        [maker() for _ in range(60)],
        prepared.held_out,
        version=weights.version,
        turn_limit=prepared.config.rollout.max_turns,
        attempts=FINAL_ATTEMPTS,
        seed=1,
    )


def _share_waiting(recorder: Recorder) -> float:
    seconds = recorder.snapshots[-1].trainer
    return seconds[TrainerState.WAIT_DATA] / max(sum(seconds), 1e-9)


def _importance(recorder: Recorder) -> dict[str, float]:
    """Return what truncated importance sampling did, means over updates."""
    names = ("mean_weight", "capped_share", "raw_effective_sample_share", "mismatch_mean")
    found = {}
    for name in names:
        values = [r.metrics[f"importance/{name}"] for r in recorder.updates if f"importance/{name}" in r.metrics]
        if values:
            found[name] = float(np.mean(values))
    return found
