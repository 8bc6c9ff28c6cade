"""The document ``study`` of a page: what ``compare``, ``tune``, ``plan`` and ``predict`` found, JSON-serializable.

{title, verdict, notes: [text], runs: [id of the first run of each arm],
 arms: [{name, lines: {FIGURE: {over, x, y, low, high}}}],       low and high: 95 % of the mean over seeds, or null
 differences: {title, rows: [{figure, arm, against, difference, low, high, unit}]},
 ranking: [{rank, arm, score, low, high, verdict}],              rank null: it failed
 tables: [{title, heads, rows}]}                                 a head with # in front: a column of numbers
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.lab.comparison import half_width
from dartsim.lab.gate import Comparison, SchedulerRank
from dartsim.observe.figures import FIGURES, intervals
from dartsim.observe.metrics import read_snapshots

Document = dict[str, Any]
Floats = NDArray[np.float64]

NUM_POINTS = 120
"""Points of a line."""
UNIDENTIFIED = "The fitted rows do not identify all parameters: intervals contain what the priors allow."
TRIALS = "Trials"
"""Title of the table of all trials."""
PAIRED = "Differences paired by seed, 95 % intervals"
LINES = ("trained_turns_per_minute", "generated_turns_per_minute", "env_utilization", "gpu_utilization")
"""Figures whose course is shown."""
DIFFERENCES = (*LINES, "trainer_utilization", "staleness_mean", "wasted_share", "hours_to_updates")
"""Figures whose difference to the best arm is shown."""


def comparison_document(
    compared: Comparison, folders: Mapping[str, Sequence[Path]], tables: Sequence[Document], notes: Sequence[str]
) -> Document:
    """Return the document of a comparison.

    Args:
        compared: The comparison.
        folders: The folders of each arm's runs, by arm.
        tables: Tables of the document.
        notes: Sentences for the reader.
    """
    ranks = compared.ranking()
    best = ranks[0].scheduler
    others = [name for name in compared.schedulers if name != best and name not in compared.failures]
    found = (difference(compared, figure, name, best) for figure in DIFFERENCES for name in others)
    return {
        "title": f"{', '.join(compared.schedulers)}: trained turns a minute",
        "verdict": "; ".join(f"{rank.scheduler}: {_words(rank)}" for rank in ranks),
        "notes": list(notes),
        "runs": [own[0].name for own in folders.values() if own],
        "arms": [{"name": name, "lines": dict(bands(own))} for name, own in folders.items()],
        "differences": {"title": PAIRED, "rows": [row for row in found if row is not None]},
        "ranking": ranking_rows(compared, ranks),
        "tables": list(tables),
    }


def search_document(results: Mapping[str, Any], fresh: Comparison | None) -> Document:
    """Return the document of a search.

    Args:
        results: What ``dartsim tune --json`` writes.
        fresh: The best settings and the configuration's own with fresh seeds; None if no trial met the bounds.
    """
    objectives, best = results["objectives"], results["best"]
    figure, lowest = objectives[0]["figure"], objectives[0]["direction"] == "minimize"
    trials = [trial for trial in results["trials"] if trial["values"]]
    within = [trial for trial in trials if trial["feasible"]]
    so_far = accumulate((trial["values"][0] for trial in within), min if lowest else max)
    lines = {
        "trials": _line("trial", [trial["number"] for trial in trials], [trial["values"][0] for trial in trials]),
        "best so far": _line("trial", [trial["number"] for trial in within], list(so_far)),
    }
    arms = [{"name": name, "lines": {_words_of(figure): line}} for name, line in lines.items()]
    document: Document = {
        "title": f"{_words_of(figure)}: {results['num_trials']} trials",
        "verdict": None if best is None else f"trial {best['number']} is the best",
        "notes": [] if best is not None else ["no trial met the bounds"],
        "runs": [],
        "arms": arms,
        "differences": {"title": PAIRED, "rows": []},
        "ranking": [],
        "tables": list(_search_tables(results)),
    }
    if fresh is not None:
        ranks = fresh.ranking(figure, lowest=lowest)
        found = (difference(fresh, one["figure"], "best", "as it is") for one in objectives)
        document["verdict"] = "; ".join(results["fresh"]["effects"])
        document["notes"].append(
            "The best of many trials is partly the luckiest: ranking and differences are of fresh seeds, "
            f"{', '.join(map(str, fresh.seeds))}."
        )
        document["ranking"] = ranking_rows(fresh, ranks)
        document["differences"]["rows"] = [row for row in found if row is not None]
    return document


def _search_tables(results: Mapping[str, Any]) -> Iterator[Document]:
    knobs, labels = list(results["space"]), [f"#{_words_of(one['figure'])}" for one in results["objectives"]]
    if (best := results["best"]) is not None:
        importances = results["importances"]
        yield {
            "title": "Best settings",
            "heads": ["setting", "as it is", "best", "#importance, %"],
            "rows": [
                [key, results["as_it_is"][key], best["settings"].get(key), _percent(importances.get(key))]
                for key in knobs
            ],
        }
    for title, trials in (("Pareto front", results["front"] if len(labels) > 1 else []), (TRIALS, results["trials"])):
        if trials:
            yield {
                "title": title,
                "heads": ["#trial", *knobs, *labels, "state"],
                "rows": [
                    [
                        trial["number"],
                        *(trial["settings"].get(key) for key in knobs),
                        *(trial["values"] or [None] * len(labels)),
                        ": ".join(filter(None, (trial["state"], trial["reason"]))),
                    ]
                    for trial in trials
                ],
            }


def prediction_document(found: Mapping[str, Any]) -> Document:
    """Return the document of a prediction, from what ``dartsim predict --json`` writes."""
    known = [row for row in found["rows"] if row["supported"] and row["published"]]
    predicted = [row for row in known if not row["fitted"]]
    inside = sum(row["low"] <= row["published"] <= row["high"] for row in predicted)
    verdict = f"{inside} of {len(predicted)} predicted figures are inside their 90 % interval" if predicted else None
    heads = ["row", "figure", "#published", "#predicted", "#low", "#high", "#error, %", ""]
    return {
        "title": found["title"],
        "verdict": f"unsupported, because {found['unsupported']}" if found["unsupported"] else verdict,
        "notes": [
            *([] if found["identified"] or not found["parameters"] else [UNIDENTIFIED]),
            *(f"assumed: {each}" for each in found["assumptions"]),
        ],
        "runs": [],
        "arms": [{"name": name, "lines": {}} for name in dict.fromkeys(row["row"] for row in known)],
        "differences": {
            "title": "Predicted against published, 90 % intervals",
            "rows": [
                {
                    "figure": f"{_words_of(row['figure'])}{', fitted' if row['fitted'] else ''}",
                    "arm": row["row"],
                    "against": "published",
                    "unit": "%",
                    **{
                        name: 100.0 * (row[value] / row["published"] - 1.0)
                        for name, value in (("difference", "predicted"), ("low", "low"), ("high", "high"))
                    },
                }
                for row in known
            ],
        },
        "ranking": [],
        "tables": [
            {"title": "Rows", "heads": heads, "rows": [_prediction_cells(row) for row in found["rows"]]},
            {
                "title": "Parameters",
                "heads": ["parameter", "#median", "#low", "#high", "determined", "meaning"],
                "rows": [
                    [each[key] for key in ("name", "median", "low", "high", "determined", "meaning")]
                    for each in found["parameters"]
                ],
            },
        ],
    }


def _prediction_cells(row: Mapping[str, Any]) -> list[Any]:
    if not row["supported"]:
        return [row["row"], row["figure"], row["published"], None, None, None, None, f"unsupported: {row['reason']}"]
    figures = (row[key] for key in ("published", "predicted", "low", "high"))
    return [row["row"], row["figure"], *figures, _percent(row["error"]), "fitted" if row["fitted"] else ""]


def ranking_rows(compared: Comparison, ranks: Sequence[SchedulerRank]) -> list[Document]:
    """Return the ranking, each arm with the 95 % interval of its mean."""
    return [
        {
            "rank": None if rank.scheduler in compared.failures else place,
            "arm": rank.scheduler,
            "score": rank.mean,
            **_interval(rank.mean, rank.half_width),
            "verdict": rank.verdict,
        }
        for place, rank in enumerate(ranks, 1)
    ]


def difference(compared: Comparison, figure: str, arm: str, against: str) -> Document | None:
    """Return the mean difference of a figure, paired by seed; None with one seed, or where a run lacks the figure."""
    if {arm, against} & compared.failures.keys():
        return None
    rows = zip(compared.figures[arm], compared.figures[against], strict=False)
    pairs = [(own.get(figure), other.get(figure)) for own, other in rows]
    scale = FIGURES[figure].scale if figure in FIGURES else 1.0
    values = [scale * (own - other) for own, other in pairs if own is not None and other is not None]
    width = half_width(values) if len(values) == len(pairs) else None
    if width is None:
        return None
    mean = fmean(values)
    unit = FIGURES[figure].unit if figure in FIGURES else ""
    return {
        "figure": _words_of(figure),
        "arm": arm,
        "against": against,
        "difference": mean,
        **_interval(mean, width),
        "unit": unit,
    }


def bands(folders: Sequence[Path]) -> Iterator[tuple[str, Document]]:
    """Yield each figure over the hours of runs that differ in their seed: the mean, and its 95 % interval."""
    columns = [intervals(read_snapshots(folder / "snapshots.jsonl", until=inf)) for folder in folders]
    columns = [column for column in columns if column["to_hours"]]
    if not columns:
        return
    hours = np.linspace(0.0, min(column["to_hours"][-1] for column in columns), NUM_POINTS + 1)[1:]
    for figure in LINES:
        group = "rates" if figure in columns[0]["rates"] else "utilization"
        scale, unit = FIGURES[figure].scale, FIGURES[figure].unit
        values = np.array([scale * rolling_mean(column, column[group][figure], hours) for column in columns])
        mean = values.mean(axis=0)
        widths = [half_width(list(map(float, own))) for own in values.T]
        line = _line("hours", _rounded(hours), _rounded(mean))
        if len(columns) > 1:
            wide = np.array(widths, dtype=np.float64)
            line |= {"low": _rounded(mean - wide), "high": _rounded(mean + wide)}
        yield FIGURES[figure].label + (unit if unit.startswith("/") else f", {unit}"), line


def rolling_mean(columns: Mapping[str, Any], values: Sequence[float], hours: Floats) -> Floats:
    """Return the mean of a column of ``intervals`` in a window around each hour, a tenth of the run wide.

    Updates come in bursts, so a narrow window would show the bursts and not the rate. At the run's ends, only the part
    of the window within the run counts.
    """
    start, end = (np.asarray(columns[name], dtype=np.float64) for name in ("from_hours", "to_hours"))
    borders = np.append(start, end[-1])
    summed = np.append(0.0, np.cumsum(np.asarray(values, dtype=np.float64) * (end - start)))
    half = (end[-1] - start[0]) / 20.0
    low, high = np.maximum(hours - half, borders[0]), np.minimum(hours + half, borders[-1])
    return np.asarray((np.interp(high, borders, summed) - np.interp(low, borders, summed)) / (high - low))


def _line(over: str, x: Sequence[float], y: Sequence[float]) -> Document:
    return {"over": over, "x": x, "y": y, "low": None, "high": None}


def _interval(mean: float | None, half: float | None) -> Document:
    if mean is None or half is None:
        return {"low": None, "high": None}
    return {"low": mean - half, "high": mean + half}


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), 4) for value in values]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _words_of(figure: str) -> str:
    return FIGURES[figure].label if figure in FIGURES else figure.replace("_", " ")


def _words(rank: SchedulerRank) -> str:
    return rank.verdict if rank.change is None or rank.verdict == "best" else f"{rank.to_best} ({rank.verdict})"
