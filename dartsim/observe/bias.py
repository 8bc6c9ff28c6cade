"""Bias of the trained tasks: how much of each class of tasks is trained, relative to what the group filter keeps.

The group filter drops groups without a signal, hence more of the hard and easy tasks: that is its purpose and does not
starve a class. Other losses (stragglers that become stale, are withdrawn or wait forever) show in

    ratio of a class = trained / usable, over the same of all tasks
    usable           = offered x kept / judged

where *judged* are the class's trajectories whose group was checked for a signal, and *kept* those whose group has one.
Both are counted during the run, so they include faults, stored successes and a learning policy; where success rates are
known, the closed form of kept / judged is reported too.

Groups are trained whole. The interval (Wilson's, two-sided 95 %) assumes that usable groups are trained
independently; a class with few groups has a wide interval and is not called starved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dartsim.observe.success import wilson

BAND = 0.8
"""A class is starved if its ratio is significantly below this."""

BY_DOMAIN = "by domain"
"""By OSWorld's applications, or the families of a mock suite."""
BY_DIFFICULTY = "by task difficulty"
"""Success rate: ``hard`` below ``HARD``, ``easy`` above ``EASY``, ``middle`` between."""
BY_LENGTH = "by task length"
"""Which third of the tasks by length: ``short``, ``middle``, ``long``."""

HARD, EASY = 0.3, 0.7

JUDGED = {"length": BY_LENGTH, "difficulty": BY_DIFFICULTY, "domain": BY_DOMAIN}
"""The classifications to judge, by their names in figures."""

ORDERS = (("short", "middle", "long"), ("hard", "middle", "easy"))
"""Natural orders of labels."""

ByClass = Mapping[str, Mapping[str, float]]
"""Counts by label: trajectories ``offered``, ``trained``, ``judged`` and ``kept``, and ``trained_groups``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassShare:
    """The trained share of a class of tasks.

    Attributes:
        offered: Ended attempts.
        kept_share: Share of its trajectories that the group filter keeps, as counted.
        trained_share: Trained share of what the filter keeps.
        groups: Trained groups.
        ratio: Its trained share over that of all tasks.
        low: Lower end of the 95 % interval of the ratio.
        high: Upper end.
    """

    offered: int
    kept_share: float
    trained_share: float
    groups: int
    ratio: float
    low: float
    high: float

    @property
    def starved(self) -> bool:
        """Whether its ratio is significantly below the band."""
        return self.high < BAND

    def __str__(self) -> str:
        verdict = ", starved" if self.starved else ""
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}{verdict})"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "starved": self.starved}


def class_shares(table: ByClass) -> dict[str, ClassShare]:
    """Return the share of every class with usable trajectories, in order.

    A class without judged groups is assumed as usable as the average. Empty if nothing was trained or judged.
    """
    left, trained, groups = usable(table), _sum(table, "trained"), _sum(table, "trained_groups")
    if not (trained and groups and sum(left.values())):
        return {}
    of_all = trained / sum(left.values())
    shares = {}
    for label in ordered(table):
        row = table[label]
        if not left[label]:
            continue
        # After a resume, fewer groups may have been judged than trained.
        share = min(1.0, row["trained"] / left[label])
        size = row["trained"] / row["trained_groups"] if row["trained_groups"] else trained / groups
        low, high = wilson(share, left[label] / size)
        shares[label] = ClassShare(
            offered=round(row["offered"]),
            kept_share=left[label] / row["offered"],
            trained_share=share,
            groups=round(row["trained_groups"]),
            ratio=share / of_all,
            low=low / of_all,
            high=high / of_all,
        )
    return shares


def usable(table: ByClass) -> dict[str, float]:
    """Return the number of usable trajectories of each class; empty if no group was judged."""
    all_judged, all_kept = _sum(table, "judged"), _sum(table, "kept")
    if not all_judged:
        return {}
    return {
        label: row["offered"] * (row["kept"] / row["judged"] if row.get("judged") else all_kept / all_judged)
        for label, row in table.items()
    }


def _sum(table: ByClass, name: str) -> float:
    return sum(row.get(name, 0) for row in table.values())


def judged_shares(bias: Mapping[str, ByClass]) -> dict[str, dict[str, ClassShare]]:
    """Return the class shares of every judged classification, by its name in figures."""
    shares_by_name = {name: class_shares(bias.get(key, {})) for name, key in JUDGED.items()}
    return {name: shares for name, shares in shares_by_name.items() if shares}


def least_trained(shares: Mapping[str, ClassShare]) -> str:
    """Return the label of the class that is trained least."""
    return min(shares, key=lambda label: shares[label].ratio)


def sum_counts(runs: Sequence[Mapping[str, ByClass]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the summed counts of several runs (seeds), for classifications present in all of them."""
    names = [name for name in (runs[0] if runs else {}) if all(name in run for run in runs)]
    totals: dict[str, dict[str, dict[str, float]]] = {name: {} for name in names}
    for run in runs:
        for name in names:
            for label, row in run[name].items():
                sums = totals[name].setdefault(label, {})
                for key, number in row.items():
                    sums[key] = sums.get(key, 0) + number
    return totals


def ordered(labels: Iterable[str]) -> list[str]:
    """Return labels in their natural order, if they have one."""
    given = list(labels)
    order = next((order for order in ORDERS if set(given) <= set(order)), None)
    return given if order is None else sorted(given, key=order.index)
