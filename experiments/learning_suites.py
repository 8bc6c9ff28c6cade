"""The suites on which arms are compared: tasks, a model, a cluster, and the teacher that makes the base model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import dartsim
from dartsim.config import Config, from_tree, load, merge
from dartsim.config.load import parse_override, preset

KINDS = ("easy", "hard", "never")
"""Kinds of tasks by the base model's success: at least half of its attempts, fewer, none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """An imperfect teacher, whose demonstrations make the base model.

    Attributes:
        by_chance: Task family -> share of its decisions that are drawn by chance (``Mistakes.by_chance``).
        beside: Task family -> share of the other decisions at which the click is beside the right place.
        slips: Share of other actions that are drawn by chance.
        tasks: Demonstrated tasks of each family and difficulty.
        difficulties: Of these tasks.
        present_steps: Supervised steps on the present screenshot alone.
        steps: Supervised steps after those.
        learning_rate: Of these steps.
        attempts: Attempts of the base model at each task, which decide its kind.
    """

    by_chance: Mapping[str, float]
    beside: Mapping[str, float] = field(default_factory=dict)
    slips: float = 0.0
    tasks: int = 150
    difficulties: tuple[int, ...] = (5,)
    present_steps: int = 0
    steps: int = 120
    learning_rate: float = 1e-3
    attempts: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSuite:
    """Tasks, model and cluster on which arms are compared.

    Attributes:
        hours: Simulated length of a run; ``quick_hours`` of a quick one.
        overrides: Settings over the preset ``tiny``.
        quick_overrides: Further settings of a quick run.
        teacher: Makes the base model; ``quick_teacher`` that of a quick run.
    """

    hours: float
    quick_hours: float
    overrides: tuple[str, ...]
    quick_overrides: tuple[str, ...] = ()
    teacher: Teacher
    quick_teacher: Teacher

    def config(self, seed: int, *, quick: bool, scheduler: str | None = None, overrides: Iterable[str] = ()) -> Config:
        """Return a configuration: the suite's tasks, model and cluster under a scheduler.

        Args:
            seed: Of the run.
            quick: Whether it is a quick run.
            scheduler: Preset whose rollout, curation and objective are used; None: those of the suite.
            overrides: Settings that come last.
        """
        hours = self.quick_hours if quick else self.hours
        length = (f"run.hours={hours}", f"run.seed={seed}", *(self.quick_overrides if quick else ()))
        changes = [*self.overrides, *length, *overrides]
        if scheduler is None:
            return load(preset_name="tiny", overrides=changes)
        tiny: Any = preset("tiny")
        tree: Any = merge({**preset(scheduler), "cluster": tiny["cluster"]}, {"policy": tiny["policy"]})
        for change in changes:
            tree = merge(tree, parse_override(change))
        spares = tree["rollout"].get("warm_envs", 0)  # of the suite's desktops
        tree = merge(tree, {"rollout": {"num_envs": tree["rollout"]["num_envs"] - spares}})
        return from_tree({**tree, "preset": scheduler})

    def run(self, arm: str, config: Config, *, quick: bool, base: Config | None = None) -> LearningRun:
        """Return a run of an arm; the base model is that of the seed, or of the configuration ``base``."""
        base = base or self.config(config.run.seed, quick=quick)
        return LearningRun(arm, config, base, self.quick_teacher if quick else self.teacher)


_COMMON = (
    "run.updates=10000",
    "run.target_success=1.0",
    "policy.family=qwen2_5_vl",
    "policy.grammar=clicks_and_done",
    "policy.screen=96",
    "curation.store=memory",
    "trainer.objective.kl_coefficient=0.0",
    "trainer.objective.entropy_coefficient=0.02",
    "trainer.optimizer.learning_rate=7e-4",
    "trainer.optimizer.minibatches=4",
    "trainer.evaluation.every_updates=5",
    "trainer.evaluation.attempts_per_task=1",
    "recorder.max_segments=0",
    "cluster.learner.fixed_seconds=10.0",
    "cluster.learner.kilotoken_seconds=0.03",
)
"""Model, optimizer and trainer of every suite."""

_LOCKS_TEACHER = {"plain_locks": 0.3, "mixed_locks": 0.5, "odd_locks": 0.25}

_LONG_TEACHER: dict[str, Any] = {
    "by_chance": {"plain_jobs": 0.05, "mixed_jobs": 0.3, "odd_jobs": 0.05, "recall_jobs": 0.05, "missing_jobs": 0.1},
    "beside": {"odd_jobs": 0.9},
    "slips": 0.02,
    "difficulties": (2, 4, 6, 8),
    "learning_rate": 3e-3,
}

SUITES: Mapping[str, LearningSuite] = {
    "locks": LearningSuite(
        hours=0.4,
        quick_hours=0.03,
        overrides=(
            *_COMMON,
            "tasks.source=mock",
            "tasks.mock=locks",
            "tasks.count=48",
            "tasks.held_out=60",
            "policy.max_images=1",
            "policy.images_after_cut=none",
            "policy.max_texts=0",
            "rollout.num_envs=32",
            "rollout.max_turns=6",
            "curation.attempts.group_size=8",
            "curation.batch.min_groups=8",
            "curation.batch.max_groups=8",
        ),
        quick_overrides=("tasks.held_out=30",),
        teacher=Teacher(by_chance=_LOCKS_TEACHER, beside={"odd_locks": 1.0}),
        quick_teacher=Teacher(by_chance=_LOCKS_TEACHER, beside={"odd_locks": 1.0}, tasks=40, steps=60, attempts=2),
    ),
    "long": LearningSuite(
        hours=2.5,
        quick_hours=0.3,
        overrides=(
            *_COMMON,
            "tasks.source=mock",
            "tasks.mock=long",
            "tasks.count=60",
            "tasks.held_out=60",
            "policy.grammar=clicks_done_fail",
            "policy.patch_size=32",
            "policy.merge_size=1",
            "policy.max_images=4",
            "policy.images_after_cut=2",
            "policy.max_texts=35",
            "rollout.num_envs=10",  # as in DART's cluster, four times as many turns are made as can be trained on
            "rollout.max_turns=30",
            "trainer.evaluation.every_updates=2",
            "trainer.objective.entropy_coefficient=0.003",
            "trainer.optimizer.learning_rate=3e-4",
            "cluster.learner.kilotoken_seconds=0.086",  # DART's published update, which limits its cluster
            "curation.attempts.group_size=8",
            "curation.batch.min_groups=8",
            "curation.batch.max_groups=8",
        ),
        quick_overrides=("tasks.held_out=20",),
        teacher=Teacher(**_LONG_TEACHER, tasks=30, present_steps=300, steps=300),
        quick_teacher=Teacher(**_LONG_TEACHER, tasks=5, present_steps=40, steps=10, attempts=2),
    ),
}
"""The suites on which arms are compared."""


@cache
def code_version() -> str:
    """Return a digest of all code that a run depends on: the package and the studies' shared modules."""
    digest = sha256()
    roots = (Path(dartsim.__file__).parent, Path(__file__).parent)
    for root in roots:
        for folder, _, names in sorted(os.walk(root, followlinks=True)):
            for name in sorted(names):
                if name.endswith((".py", ".toml")) and (root == roots[0] or name.startswith("learning_")):
                    digest.update(Path(folder, name).read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class LearningRun:
    """A run to make. Its ``repr`` tells it apart from every other run."""

    arm: str
    config: Config
    base: Config
    teacher: Teacher
    code: str = field(default_factory=code_version)

    @property
    def seed(self) -> int:
        return self.config.run.seed

    def base_folder(self, folder: Path) -> Path:
        """Return where the base model is kept, of all runs that share it."""
        key = repr((self.base, self.teacher, self.code))
        return folder / f"base-seed{self.seed}-{sha256(key.encode()).hexdigest()[:16]}"
