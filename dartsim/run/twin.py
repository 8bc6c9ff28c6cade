"""The virtual twin of a real run: the same configuration on the cluster that was measured, and how well it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from dartsim.config import Config
from dartsim.config.load import from_tree, lay_profile, merge
from dartsim.run.measuring import Entry, Measured, Tree

COMPARED = (
    "trajectories_per_minute",
    "generated_turns_per_minute",
    "trained_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "staleness_mean",
    "minutes_per_version",
    "sync_share",
)
"""Figures that are compared; ``sync_share`` is the share of the workers' time in which they take new weights."""


@dataclass(frozen=True, slots=True)
class Check:
    """A figure, measured and predicted.

    Attributes:
        figure: Its name.
        measured: In the real run; None if it has none.
        predicted: In the twin.
    """

    figure: str
    measured: float | None
    predicted: float | None

    @property
    def relative_error(self) -> float | None:
        """Predicted over measured, less 1; None if that says nothing."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1.0


def twin(config: Config, measured: Measured, summary: Mapping[str, Any], entries: Sequence[Entry]) -> Config:
    """Return the configuration of a real run, turned virtual.

    It runs as long as the real one did. Tasks of the panel become those of the mock desktop's ``click_button``, which
    has the same screen and the same words; tasks that only real applications have are played by a surrogate policy
    with the run's mean reward and lengths.

    Args:
        config: Of the real run.
        measured: What its timings say.
        summary: Its figures.
        entries: Its timings.
    """
    changes: Tree = {
        "run": {"hours": float(summary["simulated_hours"]), "updates": None, "target_success": None},
        "backend": {"desktops": "sim", "workers": "sim", "learner": "sim", "real_time": False},
    }
    if config.tasks.source == "desktop" and config.tasks.desktop == "panel":
        changes["tasks"] = {"source": "mock", "mock": "click_button", "difficulty": 1, "held_out": 0}
    elif config.tasks.source in ("desktop", "osworld"):
        changes = merge(changes, _surrogate(config, summary, entries))
    return from_tree(lay_profile(merge(config.model_dump(), changes), measured.settings))


def planned(config: Config) -> Config:
    """Return a real configuration, turned virtual before anything was measured.

    Scheduler, curation and hyper-parameters are its own; desktops, engines and trainer are those of its section
    ``cluster``, and a surrogate policy draws outcomes of generated tasks (``surrogate``).
    """
    changes: Tree = {
        "backend": {"desktops": "sim", "workers": "sim", "learner": "sim", "real_time": False},
        "tasks": {"source": "generated", "folder": None, "held_out": 0},
        "policy": {"kind": "surrogate", "grammar": "clicks", "model": None, "instructions": None},
        "curation": {"pool": {"file": None, "collected_per_task": 0}},
        "run": {"target_success": None},
        "trainer": {"promotion": {"enabled": False}},
    }
    return from_tree(merge(config.model_dump(), changes))


def _surrogate(config: Config, summary: Mapping[str, Any], entries: Sequence[Entry]) -> Tree:
    """Return the settings of a policy that draws outcomes like those of the run."""
    mean, sd = lengths(entries)
    sd = max(sd, 0.01)  # drawn as a lognormal, whose spread is not nothing
    surrogate = {
        "mean_success": min(1.0, max(0.0, summary.get("mean_reward") or 0.0)),
        "success_turns_mean": mean,
        "success_turns_sd": sd,
        "failure_turns_mean": mean,
        "failure_turns_sd": sd,
        "task_length_sd": 0.0,
    }
    return {
        "tasks": {"source": "generated", "folder": None, "held_out": 0},
        "policy": {"kind": "surrogate"},
        "surrogate": surrogate,
        "curation": {"pool": {"file": None}},
        "trainer": {"promotion": {"enabled": False}},
    }


def lengths(entries: Sequence[Entry]) -> tuple[float, float]:
    """Return the mean and the standard deviation of the attempts' turns, from how often each turn was generated."""
    reached: dict[int, int] = {}
    for entry in entries:
        if entry["what"] == "worker/generate" and not (entry.get("failed") or entry.get("cancelled")):
            reached[int(entry["turn"])] = reached.get(int(entry["turn"]), 0) + 1
    attempts = reached.get(0, 0)
    if not attempts:
        return 1.0, 0.0
    # The sum over k of P(length > k) is the mean, that of (2k + 1) P(length > k) the mean square.
    mean = sum(reached.values()) / attempts
    square = sum((2 * turn + 1) * count for turn, count in reached.items()) / attempts
    return mean, sqrt(max(0.0, square - mean * mean))


def compare(measured: Mapping[str, Any], predicted: Mapping[str, Any]) -> list[Check]:
    """Return the compared figures of a real run and its twin, given the summaries of both."""
    return [Check(figure, _figure(measured, figure), _figure(predicted, figure)) for figure in COMPARED]


def _figure(summary: Mapping[str, Any], name: str) -> float | None:
    value = summary["worker_shares"]["loading"] if name == "sync_share" else summary.get(name)
    return None if value is None else float(value)


def as_json(checks: Sequence[Check]) -> dict[str, dict[str, float | None]]:
    """Return a comparison as plain values."""
    return {
        "measured": {check.figure: check.measured for check in checks},
        "predicted": {check.figure: check.predicted for check in checks},
        "relative_error": {check.figure: check.relative_error for check in checks},
    }
