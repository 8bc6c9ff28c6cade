"""The ablation's figures as tables: means over seeds with confidence intervals, beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dartsim.lab.comparison import half_width
from experiments.ablation_arms import ARMS
from experiments.markdown import Rows, from_record, short_commit, table_from_record

PUBLISHED = {
    "baseline": 0.2867,
    "+ dynamic rollouts": 0.5090,
    "+ dynamic length": 0.6611,
    "+ high entropy": 0.6833,
    "+ distribution alignment": 0.7055,
    "all": 0.7228,
    "never-solved tasks, with the pool": 0.46,
    "distribution alignment, plateau with": 0.70,
    "distribution alignment, plateau without": 0.55,
}
"""DART's ablation on 45 tasks, pass@1 (arXiv 2509.23866 and its project page). Whether rows add up is not stated."""

TURNS = 5_000
"""Generated turns that runs of every staleness bound get to."""

AFTER = f"after {TURNS:,} turns"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95 % confidence interval; 0 of a single value."""
    return float(np.mean(values)), half_width(values) or 0.0


def arms_table(figures: dict[str, Any]) -> Rows:
    """Success of each arm, and what 50 % cost it."""
    base = [run["success_rate_final"] for run in figures["arms"] if run["arm"] == "decoupled"]
    head = ["arm", "success", "less decoupled", "easy", "hard", "never", "50 % after turns", "after hours"]
    rows = []
    for arm in ARMS:
        runs = [run for run in figures["arms"] if run["arm"] == arm]
        final = [run["success_rate_final"] for run in runs]
        paired = [a - b for a, b in zip(final, base, strict=True)]
        kinds = [_percent(run["by_kind_final"][kind] for run in runs) for kind in ("easy", "hard", "never")]
        row = [arm, _percent(final), "–" if arm == "decoupled" else _points(paired), *kinds]
        turns = _reached([run["turns_to_50_percent"] for run in runs], ",.0f")
        rows.append([*row, turns, _reached([run["simulated_hours_to_50_percent"] for run in runs], ".2f")])
    return head, rows


KINDS = {
    "easy": "1 or 2 pages of red, green, blue",
    "hard": "2 or 3 pages of yellow, orange, purple",
    "never": "2 pages of cyan, pink, brown",
}
"""Kind of a task -> what its tasks are."""


def base_table(figures: dict[str, Any]) -> Rows:
    """What the base models can do."""
    runs = [run for run in figures["arms"] if run["arm"] == "decoupled"]
    rows = [[kind, about, _percent(run["by_kind_initial"][kind] for run in runs)] for kind, about in KINDS.items()]
    return ["kind", "tasks", "base model"], rows


def cut_table(figures: dict[str, Any]) -> Rows:
    """What high-entropy selection left out of the groups of the arms that have it."""
    rows = []
    for arm in ARMS:
        runs = [run["cut_turns"] for run in figures["arms"] if run["arm"] == arm]
        cut = {name: sum(run.get(f"{name}_cut", 0) for run in runs) for name in ("own", "stored")}
        all_turns = {name: sum(run.get(name, 0) for run in runs) for name in ("own", "stored")}
        if cut["own"]:
            shares = [f"{cut[name] / all_turns[name]:.0%}" if all_turns[name] else "–" for name in ("own", "stored")]
            rows.append([arm, *shares])
    return ["arm", "own turns cut", "stored turns cut"], rows


def curve_table(figures: dict[str, Any], column: str, points: Sequence[float]) -> Rows:
    """Success of each arm after so many simulated hours or generated turns, between evaluations linearly.

    A dash where not all runs of an arm got that far.
    """
    rows = []
    for arm in ARMS:
        curves = [run["curve"] for run in figures["arms"] if run["arm"] == arm]
        row = [arm]
        for point in points:
            far = all(curve[column][-1] >= point for curve in curves)
            row.append(_percent(_at(curve, column, point) for curve in curves) if far else "–")
        rows.append(row)
    return ["arm", *(f"{point:,g}" for point in points)], rows


PUBLISHED_ROWS = {
    "attempts": ("baseline", "+ dynamic rollouts"),
    "length": ("+ dynamic rollouts", "+ dynamic length"),
    "entropy": ("+ dynamic length", "+ high entropy"),
    "alignment": ("+ high entropy", "+ distribution alignment"),
    "pool": ("+ distribution alignment", "all"),
}
"""Part -> the row before it and its own; the last row's gain can only be the pool's."""


def paper_table(figures: dict[str, Any]) -> Rows:
    """What each part adds, in points of success: in the paper, alone here, and last of all here."""
    final = {arm: [run["success_rate_final"] for run in figures["arms"] if run["arm"] == arm] for arm in ARMS}

    def gain(arm: str, over: str) -> str:
        return _points([a - b for a, b in zip(final[arm], final[over], strict=True)])

    rows = []
    for part, (before, after) in PUBLISHED_ROWS.items():
        alone = gain(f"+ {part}", "decoupled") if f"+ {part}" in ARMS else "–"
        published = PUBLISHED[after] - PUBLISHED[before]
        rows.append([part, f"{published * 100:+.1f}", alone, gain("dart", f"dart - {part}")])
    total = PUBLISHED["all"] - PUBLISHED["baseline"]
    rows.append(["all", f"{total * 100:+.1f}", gain("dart", "decoupled"), "–"])
    return ["part", "paper, over the row before", "here, added to decoupled", "here, dart over dart without it"], rows


def staleness_table(figures: dict[str, Any]) -> Rows:
    """Success by staleness bound, with and without importance sampling.

    ``effective`` is the effective sample size of the importance weights before they are truncated, as a share.
    """
    head = [
        "bound",
        "importance sampling",
        "staleness",
        "effective",
        "updates",
        "success",
        "off less on",
        AFTER,
        "50 % after hours",
    ]
    rows = []
    names = (("on", "staleness"), ("off", "staleness_without_alignment"))
    for switch, name, bound in [(on, key, bound) for on, key in names for bound in _bounds(figures[key])]:
        runs = [run for run in figures[name] if run["bound"] == bound]
        rows.append(
            [
                str(bound),
                switch,
                f"{np.mean([run['staleness_mean'] for run in runs]):.1f}",
                _effective(runs),
                f"{np.mean([run['num_updates'] for run in runs]):.0f}",
                _percent(run["success_rate_final"] for run in runs),
                _points(_differences(runs, figures["staleness"])) if switch == "off" else "–",
                _percent(_at(run["curve"], "turns", TURNS) for run in runs),
                _reached([run["simulated_hours_to_50_percent"] for run in runs], ".2f"),
            ]
        )
    return head, rows


def _differences(off: Sequence[dict[str, Any]], on: Sequence[dict[str, Any]]) -> list[float]:
    """Return by how much runs differ from those of the same seed and bound."""
    known = {(run["seed"], run["bound"]): run["success_rate_final"] for run in on}
    return [run["success_rate_final"] - known[run["seed"], run["bound"]] for run in off]


def _effective(runs: Sequence[dict[str, Any]]) -> str:
    shares = [run["importance"].get("raw_effective_sample_share") for run in runs]
    known = [share for share in shares if share is not None]
    return f"{np.mean(known):.0%}" if known else "–"


def _at(curve: dict[str, list[float]], column: str, point: float) -> float:
    """Return the success rate at a point between evaluations, linearly; the last one beyond the end."""
    return float(np.interp(point, curve[column], curve["success_rate"]))


def _bounds(runs: Sequence[dict[str, Any]]) -> list[int]:
    return sorted({run["bound"] for run in runs})


def _percent(values: Iterable[float]) -> str:
    mean, half = interval(list(values))
    return f"{mean * 100:.0f} ± {half * 100:.0f} %"


def _points(values: Sequence[float]) -> str:
    mean, half = interval(values)
    return f"{mean * 100:+.0f} ± {half * 100:.0f}"


def _reached(values: Sequence[float | None], form: str) -> str:
    """Return the mean of those that got there, and how many did if not all."""
    known = [value for value in values if value is not None]
    if not known:
        return "never"
    counted = "" if len(known) == len(values) else f" ({len(known)} of {len(values)})"
    return f"{np.mean(known):{form}}{counted}"


def provenance(figures: dict[str, Any]) -> str:
    """Return what the recorded ablation was run with."""
    seeds = ", ".join(str(seed) for seed in figures["seeds"])
    hours = figures["config"]["dart"]["run"]["hours"]
    return (
        f"Recorded with seeds {seeds}, {hours:g} simulated hours a run, "
        f"{figures['cpu_seconds'] / 60:.0f} CPU minutes in all,\nat commit {short_commit(figures)}"
        f"{' with changes' if figures['commit']['dirty'] else ''}, "
        f"torch {figures['versions'].get('torch', 'unknown')}.\n"
    )


_hours = partial(curve_table, column="simulated_hours", points=(0.1, 0.2, 0.3, 0.4))
_turns = partial(curve_table, column="turns", points=(2_000, 4_000, 6_000, 8_000))

TABLES: Mapping[str, Callable[[], str]] = {
    "ablation-arms": table_from_record("ablation", arms_table),
    "ablation-base": table_from_record("ablation", base_table),
    "ablation-cuts": table_from_record("ablation", cut_table),
    "ablation-hours": table_from_record("ablation", _hours),
    "ablation-turns": table_from_record("ablation", _turns),
    "ablation-paper": table_from_record("ablation", paper_table),
    "ablation-staleness": table_from_record("ablation", staleness_table),
    "ablation-provenance": from_record("ablation", provenance),
}
"""The tables of docs/ablation.md, by their names there."""
