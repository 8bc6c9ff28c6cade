"""Which tasks are trained on: classes of them, trained against what the group filter leaves of what was offered.

A group filter drops groups without a signal, and so hard and easy tasks more than others: that is its purpose, and no
class is starved by it. What happens beyond it (stragglers that get stale, are withdrawn, wait forever) shows in

    ratio of a class = trained / usable, over the same of all tasks
    usable           = offered x kept / judged

where *judged* are the trajectories of the class whose group was looked at for a signal, and *kept* those whose group
has one. Both are counted in the run, so that faults, stored successes and a policy that learns are in them; where
success rates are known, the closed form of kept / judged stands beside it.

Groups are trained whole. The interval is what chance leaves open if each usable group of the class is trained or not,
independently (Wilson's, two-sided 95 %); a class of few groups has a wide one, and is called starved by none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

BAND = 0.8
"""A class is starved if its trained share is below so much of that of all tasks, beyond chance."""

BY_DOMAIN = "by domain"
"""OSWorld's applications, or the families of a mock suite."""
BY_RATE = "by task success rate"
"""In tenths; too fine to be judged."""
BY_DIFFICULTY = "by task difficulty"
"""Success rate: ``hard`` below ``HARD``, ``easy`` above ``EASY``, ``middle`` between."""
BY_LENGTH = "by task length"
"""Which third of the tasks by length: ``short``, ``middle``, ``long``."""

HARD, EASY = 0.3, 0.7

JUDGED = {"length": BY_LENGTH, "difficulty": BY_DIFFICULTY, "domain": BY_DOMAIN}
"""The classifications that are judged, by their names in figures."""

ORDERS = (("short", "middle", "long"), ("hard", "middle", "easy"))
"""Of labels that have one."""

ByClass = Mapping[str, Mapping[str, float]]
"""By label: ``offered`` and ``trained`` trajectories; ``judged`` and ``kept`` ones and ``trained_groups``, which older
runs lack; ``expected``, those that the filter would keep by closed form, where success rates are known."""

_Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassShare:
    """How much of a class of tasks was trained.

    Attributes:
        offered: Attempts that ended.
        kept_share: Share of its trajectories that the group filter keeps, as counted.
        expected_kept_share: The same by closed form; None where there is none.
        trained_share: Share of what the filter leaves that was trained.
        groups: That were trained.
        ratio: Its trained share over that of all tasks.
        low: Lower end of the 95 % interval of the ratio.
        high: Upper end.
    """

    offered: int
    kept_share: float
    expected_kept_share: float | None
    trained_share: float
    groups: int
    ratio: float
    low: float
    high: float

    @property
    def starved(self) -> bool:
        """Whether it is trained less than the band allows, beyond chance."""
        return self.high < BAND

    def __str__(self) -> str:
        verdict = ", starved" if self.starved else ""
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}{verdict})"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "starved": self.starved}


def class_shares(table: ByClass) -> dict[str, ClassShare]:
    """Return every class of which the filter leaves anything, in its order.

    A class of which no group was judged counts as usable like all others. Empty if nothing was trained, and for tables
    of runs that did not count what the filter did.
    """
    left, trained, groups = usable(table), _sum(table, "trained"), _sum(table, "trained_groups")
    if not (trained and groups and sum(left.values())):
        return {}
    of_all = trained / sum(left.values())
    found = {}
    for label in ordered(table):
        row = table[label]
        if not left[label]:
            continue
        # A resumed run may know less of what was judged before than of what was trained.
        share = min(1.0, row["trained"] / left[label])
        size = row["trained"] / row["trained_groups"] if row["trained_groups"] else trained / groups
        low, high = wilson(share, left[label] / size)
        found[label] = ClassShare(
            offered=round(row["offered"]),
            kept_share=left[label] / row["offered"],
            expected_kept_share=row["expected"] / row["offered"] if "expected" in row else None,
            trained_share=share,
            groups=round(row["trained_groups"]),
            ratio=share / of_all,
            low=low / of_all,
            high=high / of_all,
        )
    return found


def usable(table: ByClass) -> dict[str, float]:
    """Return how many of the offered trajectories of each class the group filter leaves; empty if nobody counted."""
    all_judged, all_kept = _sum(table, "judged"), _sum(table, "kept")
    if not all_judged:
        return {}
    return {
        label: row["offered"] * (row["kept"] / row["judged"] if row.get("judged") else all_kept / all_judged)
        for label, row in table.items()
    }


def _sum(table: ByClass, name: str) -> float:
    return sum(row.get(name, 0) for row in table.values())


def wilson(share: float, draws: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share that was seen in so many draws."""
    spread = _Z95**2 / draws
    middle = (share + spread / 2.0) / (1.0 + spread)
    width = _Z95 * sqrt(share * (1.0 - share) / draws + spread / (4.0 * draws)) / (1.0 + spread)
    return max(0.0, middle - width), min(1.0, middle + width)


def judged(bias: Mapping[str, ByClass]) -> dict[str, dict[str, ClassShare]]:
    """Return the classes of every classification that is judged and known, by its name in figures.

    Args:
        bias: Counts by label, by classification, as in ``summary.json``.
    """
    found = {name: class_shares(bias.get(key, {})) for name, key in JUDGED.items()}
    return {name: shares for name, shares in found.items() if shares}


def least(shares: Mapping[str, ClassShare]) -> str:
    """Return the label of the class that is trained least."""
    return min(shares, key=lambda label: shares[label].ratio)


def pooled(runs: Sequence[Mapping[str, ByClass]]) -> dict[str, dict[str, dict[str, float]]]:
    """Add the counts of several runs (seeds) up; classifications that some run lacks are left out."""
    names = [name for name in (runs[0] if runs else {}) if all(name in run for run in runs)]
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in names}
    for run in runs:
        for name in names:
            for label, row in run[name].items():
                sums = found[name].setdefault(label, {})
                for key, number in row.items():
                    sums[key] = sums.get(key, 0) + number
    return found


def ordered(labels: Iterable[str]) -> list[str]:
    """Return labels in their order, if they have one, or as they are."""
    given = list(labels)
    order = next((order for order in ORDERS if set(given) <= set(order)), None)
    return given if order is None else sorted(given, key=order.index)
