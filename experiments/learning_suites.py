"""Suites of tasks on which learning is compared, and the runs of their arms."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import dartsim
from dartsim.config import Config, from_tree, load, merge
from dartsim.config.load import parse_override
from dartsim.config.packaged import preset
from experiments.arms import declared

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
    difficulties: Sequence[int] = (5,)
    present_steps: int = 0
    steps: int = 120
    learning_rate: float = 1e-3
    attempts: int = 8


@dataclass(frozen=True, slots=True)
class LearningSuite:
    """Tasks, model, cluster and teacher on which arms are compared: a table of ``suites``."""

    table: Mapping[str, Any]

    def hours(self, *, quick: bool) -> float:
        """Return the simulated hours of a run."""
        return float(self.table["quick_hours" if quick else "hours"])

    def teacher(self, *, quick: bool) -> Teacher:
        """Return what makes the base model."""
        return Teacher(**{**self.table["teacher"], **(self.table["quick_teacher"] if quick else {})})

    def config(self, seed: int, *, quick: bool, scheduler: str | None = None, overrides: Iterable[str] = ()) -> Config:
        """Return a configuration: the suite's tasks, model and cluster under a scheduler.

        Args:
            seed: Of the run.
            quick: Whether it is a quick run.
            scheduler: Preset whose rollout, curation and objective are used; None: those of the suite.
            overrides: Settings that come last.
        """
        length = (f"run.hours={self.hours(quick=quick)}", f"run.seed={seed}")
        shorter = self.table["quick_changes"] if quick else ()
        changes = [*declared()["suites"]["changes"], *self.table["changes"], *length, *shorter, *overrides]
        if scheduler is None:
            return load("tiny", overrides=changes)
        tiny: Any = preset("tiny")
        tree: Any = merge({**preset(scheduler), "cluster": tiny["cluster"]}, {"policy": tiny["policy"]})
        for change in changes:
            tree = merge(tree, parse_override(change))
        spares = tree["rollout"].get("warm_envs", 0)  # of the suite's desktops
        tree = merge(tree, {"rollout": {"num_envs": tree["rollout"]["num_envs"] - spares}})
        return from_tree({**tree, "preset": scheduler})

    def run(self, arm: str, config: Config, *, quick: bool, base: Config | None = None) -> LearningRun:
        """Return a run of an arm; the base model is that of the seed, or of the configuration ``base``."""
        return LearningRun(arm, config, base or self.config(config.run.seed, quick=quick), self.teacher(quick=quick))


SUITES = {name: LearningSuite(table) for name, table in declared()["suites"].items() if name != "changes"}
"""The suites on which arms are compared."""


@cache
def code_version() -> str:
    """Return a digest of all code that a run depends on: the package and the studies' shared modules."""
    digest = sha256()
    roots = (Path(dartsim.__file__).parent, Path(__file__).parent)
    for root in roots:
        for folder, _, names in sorted(os.walk(root, followlinks=True)):
            for name in sorted(names):
                if name.endswith((".py", ".toml")) and (root == roots[0] or name.startswith(("learning", "studies"))):
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
