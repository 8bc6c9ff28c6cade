"""What schedulers are compared by: the figures of one run, and means with confidence intervals over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from dartsim.lab.jobs import Outcome
from dartsim.lab.study_spec import StudyObjective
from dartsim.observe.bias import BY_LENGTH, JUDGED, ByClass, ClassShare, judged, least, pooled

FIGURES = (
    "trained_turns_per_minute",
    "signal_turns_per_minute",
    "admitted_turns_per_minute",
    "generated_turns_per_minute",
    "bound_trained_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "prefix_hit_share",
    "staleness_mean",
    "staleness_max",
    "wasted_share",
    "minutes_per_version",
    "hours_to_updates",
    "desktop_hours_per_1000_turns",
    "gpu_hours_per_1000_turns",
    "long_tasks_ratio",
)
"""One number each, for which there is a mean over seeds."""

_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t, two-sided 95 %, for 1 to 10 degrees of freedom."""


def compared(
    summary: Mapping[str, Any], update_hours: Sequence[float] = (), *, updates: int | None = None
) -> dict[str, Any]:
    """Return the figures of one run that schedulers are compared by.

    ``hours_to_updates`` is when update number ``updates`` was finished; ``desktop_hours_per_1000_turns`` and
    ``gpu_hours_per_1000_turns`` what was provisioned (desktops, rollout GPUs) for a thousand trained turns;
    ``long_tasks_ratio`` the share of the longest third of tasks among trained trajectories, over their share among
    attempts. Of each class of tasks (``classes``) and of the one that is trained least by length, difficulty and domain
    (``least_ratio_by_…``) the share is over that of what the group filter leaves (``dartsim.observe.bias``).

    Args:
        summary: As written to ``summary.json``, with ``config``.
        update_hours: When each update was finished, in order.
        updates: Of which update the time is wanted; None: none.
    """
    rollout = summary["config"]["rollout"]
    per_minute = summary["trained_turns_per_minute"]
    hours_per_1000 = 1000.0 / per_minute / 60.0 if per_minute else None
    bias = summary.get("bias", {})
    ratios, classes = class_ratios(bias.get(BY_LENGTH, {})), judged(bias)
    reached = updates is not None and 1 <= updates <= len(update_hours)
    desktops = rollout["num_envs"] + rollout["warm_envs"]
    found = {
        **summary,
        "hours_to_updates": update_hours[updates - 1] if reached and updates is not None else None,
        "desktop_hours_per_1000_turns": None if hours_per_1000 is None else desktops * hours_per_1000,
        "gpu_hours_per_1000_turns": None if hours_per_1000 is None else rollout["num_workers"] * hours_per_1000,
        "long_tasks_ratio": ratios.get("long"),
    }
    return {
        **{name: found.get(name) for name in FIGURES},
        **{f"least_ratio_by_{name}": least_ratio(classes.get(name, {})) for name in JUDGED},
        "staleness_histogram": summary.get("staleness_histogram", {}),
        "staleness_definitions": summary.get("staleness_definitions", {}),
        "bias": bias,
        "classes": {by: {label: share.as_json() for label, share in own.items()} for by, own in classes.items()},
    }


def least_ratio(shares: Mapping[str, ClassShare]) -> float | None:
    """Return the ratio of the class that is trained least; None if there is none."""
    return shares[least(shares)].ratio if shares else None


def classes_over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return who is trained least, and who is starved, by the counts of all runs together.

    A least ratio has no useful mean over runs: of classes that are all treated alike one is least by chance, and more
    so the fewer groups a run has.

    Args:
        runs: What ``compared`` returned.

    Returns:
        ``least_classes``: by name of the classification, its class with all that is known of it. ``starved_classes``:
        a list of the same, with ``by``, the name; None if nobody counted what the group filter did.
    """
    found = judged(pooled([run["bias"] for run in runs]))
    every = [
        {"by": name, "class": label, **share.as_json()} for name, own in found.items() for label, share in own.items()
    ]
    return {
        "least_classes": {name: {"class": least(own), **own[least(own)].as_json()} for name, own in found.items()},
        "starved_classes": [share for share in every if share["starved"]] if found else None,
    }


def class_ratios(table: ByClass) -> dict[str, float]:
    """Return, for each label, its share of trained trajectories over its share of attempts."""
    offered = sum(row["offered"] for row in table.values())
    trained = sum(row["trained"] for row in table.values())
    if not trained:
        return {}
    return {
        label: (row["trained"] / trained) / (row["offered"] / offered) for label, row in table.items() if row["offered"]
    }


def over_seeds(runs: Sequence[Mapping[str, Any]], names: Iterable[str] = FIGURES) -> dict[str, dict[str, float | None]]:
    """Return mean and 95 % half-width of figures over runs; a figure that some run lacks is left out.

    Of ``staleness_max`` the largest is meant, without a half-width; one run has no half-widths.

    Args:
        runs: What ``compared`` returned.
        names: Which figures.
    """
    found: dict[str, dict[str, float | None]] = {}
    for name in names:
        values = [run[name] for run in runs]
        if any(value is None for value in values):
            continue
        if name == "staleness_max":
            found[name] = {"mean": max(values), "half_width": None}
        else:
            found[name] = {"mean": fmean(values), "half_width": half_width(values)}
    return found


class Change(NamedTuple):
    """How much more or less of a figure there is."""

    share: float | None
    """Against the other one, as a share of it; None if one of them has none, or the other has 0."""
    half_width: float | None
    """Half of its 95 % interval, over the seeds that both were simulated with; None with fewer than two."""

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out that there is no difference."""
        return self.share is not None and self.half_width is not None and abs(self.share) > self.half_width


def change(objective: StudyObjective, base: Outcome, other: Outcome) -> Change:
    """Hold ``other`` against ``base``, over the seeds that come first in both.

    The change is that of the means; its interval is of the single seeds' changes.
    """
    values = [(objective.of(one), objective.of(two)) for one, two in zip(base.by_seed, other.by_seed, strict=False)]
    known = [(one, two) for one, two in values if one is not None and two is not None]
    reference = sum(one for one, _ in known)
    if not reference:
        return Change(None, None)
    width = half_width([two / one - 1.0 for one, two in known if one])
    return Change(sum(two for _, two in known) / reference - 1.0, width)


def half_width(values: Sequence[float]) -> float | None:
    """Return half the 95 % confidence interval of the mean, by Student's t; None of fewer than two values."""
    number = len(values)
    if number < 2:
        return None
    return _t95(number - 1) * stdev(values) / sqrt(number)


def _t95(freedom: int) -> float:
    """Return Student's t, two-sided 95 %: from the table, else by its series in 1 / freedom (off by less than 1e-4)."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    return 1.96 + 2.3723 / freedom + 2.8225 / freedom**2 + 2.5556 / freedom**3
