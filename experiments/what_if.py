"""What if: other configurations predicted from one measured run, before any of them is run.

python -m experiments.what_if --predict          measures one run and predicts the others: ten minutes
python -m experiments.what_if --record           runs them, once their predictions are committed: a minute each
python -m experiments.what_if --quick            the same keys from short runs of two configurations

All runs are real: a tiny model in threads of this process, its learner, and mock desktops whose steps take a tenth of a
second (``experiments.paced_desktops``), by the machine's clock.
Predictions are twins of the configurations on the profile of the measured run alone, which also replay its outcomes.
An interval of 90 % contains the seeds, the profiles of parts of that run, and the error of its own twin. The
configurations run in random order; the measured one is repeated first, in the middle and last: what its repetitions
differ by is drift, and the order of two configurations that differ less is inconclusive.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dartsim.config import Config
from dartsim.config.settings import merge
from dartsim.core.errors import ConfigError
from dartsim.core.plugins import use_plugin
from dartsim.lab.measure import Measurement, TimingTable, answered_by
from dartsim.lab.measure import measure as measured_by
from dartsim.lab.sweep import ArmRun, InProcess, sweep
from dartsim.lab.virtual import COMPARED, compare, compared_figures, twin
from dartsim.observe.timings import TIMINGS, Entry, read_timings
from dartsim.rollout.history import num_images
from dartsim.run.execute import execute
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.fitting import fit_line
from experiments.arms import declared
from experiments.real_loop import config
from experiments.study import RECORDED, Experiment, Figures, Options, Rows, cell, provenance, rows_of, write_json

PREDICTIONS = RECORDED / "what_if_predictions.json"
BASE = "as measured"
QUICK = (BASE, "8 desktops", "containers")
BASE_SEED = 100
"""Of the measured run; the others have seeds from 0."""
SEEDS, PARTS = 3, 5
"""Twins of a configuration: on the profile of the whole run, and on those of parts of a third of it each."""
DEVIATIONS = 1.645
"""Standard deviations on either side of a prediction that contain 90 %."""
FEW = 30
"""Fewer batches say nothing."""
BEST_BY = "trained_turns_per_minute"


def configurations(*, quick: bool) -> dict[str, Mapping[str, Any]]:
    """Return what each configuration changes, or why it cannot be predicted."""
    found = declared()["what_if"]["configurations"]
    return {name: found[name] for name in QUICK} if quick else dict(found)


def settings(seed: int, options: Options, seconds: float | None, changes: Sequence[str] = ()) -> Config:
    """Return a configuration of this length; None: the measured run's."""
    use_plugin("experiments.paced_desktops")
    minutes = None if seconds is None else seconds / 60.0
    return config("what_if", seed, quick=options.quick, minutes=minutes, changes=changes)


def executed(real: Config, path: Path) -> Figures:
    """Run for real and return the figures."""
    load_average = os.getloadavg()[0]
    done, result = execute(real, path)
    if result.interrupted:  # half a run says nothing
        raise KeyboardInterrupt
    return {"figures": compared_figures(done.summary), "load_average": round(load_average, 2)}


def virtual_figures(virtual: Config) -> dict[str, float | None]:
    """Return what a twin predicts."""
    return compared_figures(run_prepared(prepare(virtual)).figures)


def alone(entries: Sequence[Entry]) -> float | None:
    """Return the time of a batch while no other engine computes, relative to all batches of its size.

    None if there were too few of them.
    """
    batches = TimingTable(entries, 0.0).some("worker/batch")
    sizes, seconds, ends = ([float(batch[name]) for batch in batches] for name in ("size", "seconds", "at"))
    line = fit_line(sizes, seconds)
    relative = np.array(seconds) / [line.seconds(size) for size in sizes]
    spans = np.column_stack([np.subtract(ends, seconds), ends])
    workers = np.array([batch["worker"] for batch in batches])
    shared = np.zeros(len(batches))
    for worker in np.unique(workers):
        others = spans[workers != worker]
        others = others[np.argsort(others[:, 0])].ravel()  # begin and end of each batch
        if others.size:
            busy = np.cumsum(np.diff(others, prepend=others[:1]) * (np.arange(others.size) % 2))
            begun, ended = (np.interp(spans[workers == worker, side], others, busy) for side in (0, 1))
            shared[workers == worker] = (ended - begun) / np.array(seconds)[workers == worker]
    free = shared < 0.1
    return float(relative[free].mean() / relative.mean()) if free.sum() >= FEW else None


def image_share(entries: Sequence[Entry], real: Config) -> tuple[float, float] | None:
    """Return the time of a batch for each request without its screenshots, and for each screenshot, in seconds."""
    table = TimingTable(entries, 0.0)
    batches = table.some("worker/batch")
    answered = answered_by(batches, table)
    known = [batch for batch in batches if len(answered.get(id(batch), ())) == batch["size"]]
    if len(known) < FEW:
        return None
    shown = [sum(images(reply["turn"], real) for reply in answered[id(batch)]) for batch in known]
    terms = np.column_stack([np.ones(len(known)), [batch["size"] for batch in known], shown])
    _, each, image = np.linalg.lstsq(terms, np.array([batch["seconds"] for batch in known]))[0]
    return max(0.0, float(each)), max(0.0, float(image))


def images(turn: int, real: Config) -> int:
    """Return the screenshots in the prompt of a turn."""
    policy = real.policy
    return num_images(turn, max_images=policy.max_images, after_cut=policy.images_after_cut)


def profile_for(changed: Config, base: Config, entries: Sequence[Entry]) -> Measurement:
    """Return the profile of a part of the measured run as a configuration needs it.

    Raises:
        ConfigError: If the run does not say it.
    """
    found = measured_by(base, entries)
    engine = found.settings["cluster"]["engine"]
    changes: dict[str, float] = {}
    if changed.rollout.num_workers == 1 < base.rollout.num_workers:
        if (factor := alone(entries)) is None:
            raise ConfigError(f"fewer than {FEW} batches of the measured run had the cores without another engine's")
        changes = {name: factor * engine[name] for name in ("batch_seconds", "request_seconds")}
    if changed.policy.max_images != base.policy.max_images:
        if (parts := image_share(entries, base)) is None:
            raise ConfigError("the requests of the measured run's batches are not known")
        turns = [entry["turn"] for entry in entries if entry["what"] == "worker/generate"]
        new, old = (parts[0] + parts[1] * fmean(images(turn, each) for turn in turns) for each in (changed, base))
        changes["request_seconds"] = engine["request_seconds"] * (new / old if old else 1.0)
    return Measurement(merge(found.settings, {"cluster": {"engine": changes}}), found.counts)


def outcomes(entries: Sequence[Entry], limit: int, folder: Path) -> Path:
    """Write the outcomes of attempts as they would be with a limit of turns, and return the file."""
    path = folder / f"{limit}-turns.jsonl"
    attempts = [entry for entry in entries if entry["what"] == "attempt"]
    longer = {True: {"turns": limit, "reward": 0.0}, False: {}}
    lines = [json.dumps({**each, **longer[each["reward"] is not None and each["turns"] > limit]}) for each in attempts]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def predict(options: Options, folder: Path) -> Figures:
    """Measure one run and predict all configurations from it."""
    own = options.own
    base = settings(BASE_SEED, options, None)
    path = folder / "base"
    measured = executed(base, path)
    entries = read_timings(path)
    options.console.print(f"measured {len(entries)} calls in {60.0 * base.run.hours:.3g} minutes")
    whole = measured_by(base, entries)
    repeated = virtual_figures(twin(base, whole, {"simulated_hours": base.run.hours}, path / TIMINGS))
    checked = compare(measured["figures"], repeated)
    first, last = entries[0]["at"], entries[-1]["at"]
    begins = np.linspace(first, first + (last - first) * 2 / 3, PARTS)
    parts = [[each for each in entries if begin <= each["at"] <= begin + (last - first) / 3] for begin in begins]
    planned: list[Figures] = []
    runs: list[ArmRun] = []
    for name, entry in configurations(quick=options.quick).items():
        planned.append({"name": name, **entry, "figures": {}})
        if "unsupported" in entry:
            continue
        try:
            for number, profiled in enumerate([entries] * SEEDS + parts):
                changed = settings(number, options, own.seconds, entry["changes"])
                replayed = outcomes(entries, changed.rollout.max_turns, folder)
                profile = profile_for(changed, base, profiled)
                virtual = twin(changed, profile, {"simulated_hours": changed.run.hours}, replayed)
                runs.append(ArmRun(name, number, virtual))
        except ConfigError as refused:
            planned[-1]["unsupported"] = str(refused)
            runs = [run for run in runs if run.arm != name]
    found: dict[str, list[Mapping[str, float | None]]] = {}
    for run, figures in zip(runs, options.sweep(virtual_figures, runs, "twins"), strict=True):
        found.setdefault(run.arm, []).append(figures)
    for each in planned:
        if each["name"] in found:
            each["figures"] = intervals(found[each["name"]], checked["relative_error"])
    return {
        "base": {**checked, "load_average": measured["load_average"], "settings": whole.settings},
        "configurations": planned,
        "config": {"minutes": 60.0 * base.run.hours, "seconds": own.seconds},
    }


def intervals(twins: Sequence[Mapping[str, float | None]], own: Mapping[str, float | None]) -> Figures:
    """Return the prediction of each figure, and its interval: seeds, parts of the run, and its twin's own error."""
    found: Figures = {}
    for name in COMPARED:
        whole, parts = (
            [value for each in some if (value := each[name]) is not None] for some in (twins[:SEEDS], twins[SEEDS:])
        )
        if whole and len(parts) > 1:
            middle = fmean(whole)
            half = DEVIATIONS * float(np.hypot(stdev([*whole, *parts]), (own[name] or 0.0) * middle))
            found[name] = {"predicted": middle, "low": max(0.0, middle - half), "high": middle + half}
    return found


def order(names: Sequence[str], seeds: int) -> list[tuple[str, int]]:
    """Return the runs in random order, and the measured configuration first, in the middle and last."""
    runs = [(name, seed) for seed in range(seeds) for name in names if name != BASE]
    random.Random(0).shuffle(runs)
    middle = len(runs) // 2
    return [(BASE, 0), *runs[:middle], (BASE, 0), *runs[middle:], (BASE, 0)]


def measure(options: Options) -> Figures:
    """Predict, run, or both."""
    own = options.own
    if own.predict and options.record:
        raise ConfigError("--predict comes first; commit what it writes, then --record runs the configurations")
    if own.predict or not options.record:
        with TemporaryDirectory() as folder:
            predicted = predict(options, Path(folder))
        if own.predict and not options.quick:
            write_json(PREDICTIONS, {**predicted, **provenance()})
        if own.predict:
            return {**predicted, **scored([], predicted)}
        content = json.dumps(predicted).encode()
    else:
        require_committed()
        content = PREDICTIONS.read_bytes()
        predicted = json.loads(content)
    changes = {each["name"]: each["changes"] for each in predicted["configurations"] if each["figures"]}
    seconds = predicted["config"]["seconds"]
    runs = [
        ArmRun(name, seed, (number, settings(seed, options, seconds, changes[name])))
        for number, (name, seed) in enumerate(order(list(changes), options.seeds))
    ][: own.runs]
    done = sweep(run_one, runs, console=options.console, results=options.results, executor=InProcess())
    measured = [{"name": run.arm, "seed": run.seed, **each} for run, each in zip(runs, done, strict=True)]
    return {
        **scored(measured, predicted),
        "base": predicted["base"],
        "predictions_sha256": hashlib.sha256(content).hexdigest(),
        "config": predicted["config"],
    }


def run_one(spec: tuple[int, Config]) -> Figures:
    """Run one of the ordered runs, and keep only its figures."""
    with TemporaryDirectory() as folder:
        return executed(spec[1], Path(folder) / "run")


def require_committed() -> None:
    """Refuse to run what was predicted in a file that is not committed as it is.

    Raises:
        ConfigError: If it is not.
    """
    top, name = PREDICTIONS.parent, PREDICTIONS.name
    tracked = subprocess.run(["git", "ls-files", "--error-unmatch", name], cwd=top, capture_output=True, check=False)
    same = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", name], cwd=top, capture_output=True, check=False)
    if tracked.returncode or same.returncode:
        raise ConfigError(f"{PREDICTIONS} is not committed, or was changed: predict with --predict, commit, then run")


def scored(measured: Sequence[Figures], predicted: Figures) -> Figures:
    """Return every measured figure beside its prediction, and the score of those that were not fitted."""
    planned = predicted["configurations"]
    by_name = {each["name"]: each["figures"] for each in planned}
    rows = []
    for run in measured:
        expected = by_name[run["name"]]
        real = {name: run["figures"][name] for name in expected}
        errors = compare(real, {name: each["predicted"] for name, each in expected.items()})["relative_error"]
        figures = {name: {**each, "measured": real[name], "error": errors[name]} for name, each in expected.items()}
        rows.append({**run, "figures": figures})
    held = [row for row in rows if row["name"] != BASE]
    repeated = [row for row in rows if row["name"] == BASE]
    known = {name: with_error(held, name) for name in COMPARED}
    drifts = {name: drift([each["measured"] for each in with_error(repeated, name)]) for name in COMPARED}
    every = {name: pairs(each, 0.0) for name, each in known.items()}
    sure = {name: pairs(each, drifts[name]) for name, each in known.items()}
    flat = list(chain.from_iterable(known.values()))
    num_pairs, num_sure = (sum(map(len, agree.values())) for agree in (every, sure))
    return {
        "configurations": rows,
        "unsupported": {each["name"]: each["unsupported"] for each in planned if not each["figures"]},
        "num_configurations": len({row["name"] for row in held}),
        "median_error": median_error(flat),
        "share_within_10_percent": fmean(abs(each["error"]) <= 0.1 for each in flat) if flat else None,
        "coverage": fmean(each["low"] <= each["measured"] <= each["high"] for each in flat) if flat else None,
        "kendall_tau": tau(every),
        "kendall_tau_conclusive": tau(sure),
        "inconclusive_share": 1.0 - num_sure / num_pairs if num_pairs else None,
        "drift": drifts,
        "median_errors": {name: median_error(each) for name, each in known.items()},
        **best(held, drifts[BEST_BY]),
    }


def with_error(rows: Sequence[Figures], name: str) -> list[Figures]:
    """Return a figure of all runs in which its error is defined."""
    return [each for row in rows if (each := row["figures"].get(name)) and each["error"] is not None]


def median_error(figures: Sequence[Figures]) -> float | None:
    """Return the median of the errors' sizes."""
    return median(abs(each["error"]) for each in figures) if figures else None


def drift(values: Sequence[float]) -> float:
    """Return by how much repetitions of the same configuration differ at most, relative to the smallest."""
    return max(values) / min(values) - 1.0 if values else 0.0


def pairs(figures: Sequence[Figures], least: float) -> list[bool]:
    """Return of each pair of runs that differ by more than ``least`` whether their order was predicted."""
    return [
        (a["predicted"] - b["predicted"]) * (a["measured"] - b["measured"]) > 0.0
        for a, b in combinations(figures, 2)
        if abs(a["measured"] - b["measured"]) > least * min(a["measured"], b["measured"])
    ]


def tau(agree: Mapping[str, Sequence[bool]]) -> float | None:
    """Return Kendall's tau, the mean over figures."""
    values = [2.0 * fmean(each) - 1.0 for each in agree.values() if each]
    return fmean(values) if values else None


def best(rows: Sequence[Figures], drifted: float) -> Figures:
    """Return which configuration trains most, which was predicted to, and whether drift could change it."""
    known = [(row["name"], row["figures"][BEST_BY]) for row in rows if BEST_BY in row["figures"]]
    if len(known) < 2:
        return {"best": None, "best_predicted": None, "best_conclusive": None}
    measured, predicted = (
        sorted(known, key=lambda each: float(each[1][which]), reverse=True) for which in ("measured", "predicted")
    )
    first, second = measured[0][1]["measured"], measured[1][1]["measured"]
    return {
        "best": measured[0][0],
        "best_predicted": predicted[0][0],
        "best_conclusive": first > second * (1.0 + drifted),
    }


SHOWN = {  # figures of the table, and how they are written
    "generated turns a minute": ("generated_turns_per_minute", ",.0f"),
    "trained turns a minute": ("trained_turns_per_minute", ",.0f"),
    "staleness": ("staleness_mean", ".2f"),
}


def runs_table(figures: Figures) -> Rows:
    """Every run, in the order of running: three figures predicted and measured, and the median error of all."""
    columns = {"predicted, measured (error)": "{name}", "load": "{load_average:.1f}"}
    for title, (name, form) in SHOWN.items():
        figure = f"figures[{name}]"
        columns[title] = f"{{{figure}[predicted]:{form}}}, {{{figure}[measured]:{form}}} ({{{figure}[error]:+.0%}})"
    columns["median error of eight"] = "{median:.0%}"
    rows = [
        {**row, "median": median_error([each for name in COMPARED for each in with_error([row], name)])}
        for row in figures["configurations"]
    ]
    return rows_of(columns, rows)


def score_table(figures: Figures) -> Rows:
    """The study's own figures, beside their aims."""
    drifts = ", ".join(f"{title} {figures['drift'][name]:.0%}" for title, (name, _) in SHOWN.items())
    trained = {row["name"]: row["figures"].get(BEST_BY, {}).get("measured") for row in figures["configurations"]}
    most, chosen = (trained.get(figures[name]) for name in ("best", "best_predicted"))
    named = "–"
    if most and chosen:
        open_ended = chosen < most <= chosen * (1.0 + figures["drift"][BEST_BY])
        named = "inconclusive" if open_ended else f"{chosen / most:.0%} of the most"
    rows = [
        ("configurations run", "{num_configurations}", "at least 12"),
        ("median error over eight figures", "{median_error:.0%}", "at most 5%"),
        ("within 10 %", "{share_within_10_percent:.0%}", "90%"),
        ("measured value in the 90 % interval", "{coverage:.0%}", ""),
        ("Kendall's tau, all pairs", "{kendall_tau:.2f}", "0.9"),
        ("Kendall's tau, pairs that differ by more than drift", "{kendall_tau_conclusive:.2f}", ""),
        ("pairs whose order drift could change", "{inconclusive_share:.0%}", ""),
        (f"drift: {drifts}", "", ""),
        (f"most trained turns: {figures['best']}; predicted: {figures['best_predicted']}", named, "named"),
        *((f"unsupported: {name}, because {why}", "", "") for name, why in figures["unsupported"].items()),
    ]
    return ["held-out configurations", "here", "aim"], [
        [about, cell(value, figures), aim] for about, value, aim in rows
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's own options."""
    parser.add_argument("--predict", action="store_true", help=f"write the predictions to {PREDICTIONS.name}, and stop")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each run (60)")
    parser.add_argument("--runs", type=int, metavar="N", help="only the first N runs of the order")


STUDY = Experiment(
    name="what_if",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"what-if-score": score_table, "what-if-runs": runs_table},
    add_arguments=add_arguments,
)

if __name__ == "__main__":
    STUDY.run()
