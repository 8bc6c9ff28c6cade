"""The error card: every published table that the model can express, its fitted rows, and the error of all others.

python -m experiments.error_card            all tables: some twenty minutes of CPU
python -m experiments.error_card --quick    the same keys for tables that need no simulated run, in seconds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from dartsim.lab.prediction import Predictor
from dartsim.lab.sweep import executor_for
from experiments.charts import BLUE, GRAY, ORANGE, drawing, label_axes, legend_below
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, rows_of

FOLDER = Path(__file__).parent / "published"


def measure(options: Options) -> Figures:
    """Fit all tables, what continues another one after it; then predict them, given the error of the model."""
    known: dict[Path, Predictor] = {}
    with executor_for(1 if options.quick else None) as executor:
        for path in sorted(FOLDER.glob("*.toml")):
            predictor = Predictor(path, known=known, executor=executor)
            if not options.quick or predictor.table.kind != "run" or predictor.table.unsupported:
                known[path] = predictor
        left_out = []
        for predictor in known.values():
            if not predictor.table.unsupported:
                options.console.print(f"fits {predictor.table.id}: {predictor.table.title}", style="dim")
                left_out += predictor.posterior().left_out
        found, error = [], model_error(left_out)
        options.console.print(f"the model's own error: {error:.1%}, of {len(left_out)} figures left out", style="dim")
        for predictor in known.values():
            predictor.discrepancy = error
            options.console.print(f"predicts {predictor.table.id}", style="dim")
            found.append(predictor.run())
    return {**card(found), "model_error": error}


def card(tables: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the tables with the figures of the whole card, which are of held-out rows."""
    rows = [row for table in tables for row in table["rows"]]
    held = [row for row in rows if row["supported"] and not row["fitted"] and row["error"] is not None]
    errors = [abs(row["error"]) for row in held]
    named = [table["best_named"] for table in tables if table.get("best_named") is not None]
    taus = [table["tau"] for table in tables if table.get("tau") is not None]
    return {
        "tables": list(tables),
        "held_out_rows": len(held),
        "median_error": median(errors) if errors else None,
        "share_within_20_percent": fmean(error <= 0.2 for error in errors) if errors else None,
        "largest_error": max(errors, default=None),
        "coverage": fmean(row["low"] <= row["published"] <= row["high"] for row in held) if held else None,
        "best_named": fmean(named) if named else None,
        "best_asked": len(named),
        "mean_tau": fmean(taus) if taus else None,
        "config": {"hours": {}},
    }


def model_error(left_out: Sequence[Mapping[str, Any]]) -> float:
    """Return the likeliest deviation between model and system, from what fitted figures miss if they are left out.

    What parameters and repetitions explain of an error is known; the model's own is what remains.
    """
    squares = np.array([each["error"] ** 2 for each in left_out])
    known = np.array([each["variance"] for each in left_out])
    candidates = np.arange(0.0, 1.0, 0.005)

    def surprise(own: float) -> float:
        return float(np.sum(squares / (known + own**2) + np.log(known + own**2)))

    return float(min(candidates, key=surprise))


def supported(recorded: Figures) -> list[Figures]:
    """Return the tables of which something is predicted."""
    return [table for table in recorded["tables"] if any(row["supported"] for row in table["rows"])]


def predictions(recorded: Figures) -> Rows:
    """Every prediction beside the published value."""
    columns = {
        "table": "{table}",
        "row": "{row}",
        "figure": "{figure}",
        "published": "{published:.4g}",
        "predicted": "{predicted:.3g}",
        "90 % interval": "{low:.3g} to {high:.3g}",
        "error": "{error:+.0%}{note}",
    }
    every = [{**row, "table": table["id"]} for table in supported(recorded) for row in table["rows"]]
    shown = [{**row, "note": ", fitted" if row["fitted"] else ""} for row in every if row["supported"]]
    return rows_of(columns, shown)


def refused(recorded: Figures) -> Rows:
    """What is unsupported, and why."""
    columns = {"table": "{table}", "row": "{row}", "unsupported, because": "{reason}"}
    found = [
        {"table": table["id"], "row": "all", "reason": table["unsupported"]}
        for table in recorded["tables"]
        if table["unsupported"]
    ]
    for table in supported(recorded):
        reasons: dict[str, list[str]] = {}
        for row in table["rows"]:
            if not row["supported"]:
                reasons.setdefault(row["reason"], []).append(row["row"])
        found += [
            {"table": table["id"], "row": "; ".join(dict.fromkeys(rows)), "reason": why}
            for why, rows in reasons.items()
        ]
    return rows_of(columns, found)


def score(recorded: Figures) -> Rows:
    """The card's own figures, beside their aims."""
    rows = [
        ["held-out figures", str(recorded["held_out_rows"]), ""],
        ["median error", f"{recorded['median_error']:.0%}", "at most 10%"],
        ["within 20 %", f"{recorded['share_within_20_percent']:.0%}", "90%"],
        ["largest error", f"{recorded['largest_error']:.0%}", ""],
        ["published value in the 90 % interval", f"{recorded['coverage']:.0%}", "85% to 95%"],
        [f"best row named ({recorded['best_asked']} tables)", f"{recorded['best_named']:.0%}", "80%"],
        ["error of the model itself, from fitted rows", f"{recorded['model_error']:.0%}", ""],
        ["Kendall's tau, mean", f"{recorded['mean_tau']:.2f}", ""],
    ]
    return ["held-out rows", "here", "aim"], rows


@drawing(4.2)
def predicted(figure: Any, recorded: Figures) -> None:
    """Predicted against published, with intervals and the line of no error."""
    axes = figure.subplots()
    ends = []
    for fitted, color, label in ((True, GRAY, "fitted"), (False, ORANGE, "held out")):
        rows = [
            row
            for table in supported(recorded)
            for row in table["rows"]
            if row["supported"] and row["fitted"] is fitted and row["published"] is not None
        ]
        x, y = ([row[name] for row in rows] for name in ("published", "predicted"))
        below = [row["predicted"] - row["low"] for row in rows]
        above = [row["high"] - row["predicted"] for row in rows]
        axes.errorbar(x, y, yerr=[below, above], color=color, marker="o", ls="", label=label, elinewidth=0.8)
        ends += x + y
    axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color=BLUE, linestyle=":", label="no error")
    axes.set_xscale("log")
    axes.set_yscale("log")
    label_axes(axes, "Published (seconds or hours)", "predicted, 90 % interval", zero=False)
    legend_below(figure, 3)


STUDY = Experiment(
    name="error_card",
    about="Predictions of published runs: fitted rows, held-out rows, intervals, and what the model cannot express",
    measure=measure,
    tables={"score": score, "predictions": predictions, "refused": refused},
    pictures={
        "predicted": StudyPicture(
            "Predicted against published figures with 90 % intervals, on logarithmic axes, and the line of no error",
            predicted,
        )
    },
)

if __name__ == "__main__":
    STUDY.run()
