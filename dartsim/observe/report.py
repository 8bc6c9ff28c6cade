"""The pages of a run, of a comparison of runs, and of a study: self-contained, without network access.

``summary.json`` may contain ``bias``: ``{"by domain": {"chrome": {"offered": 40, "trained": 12}, …}, …}``, as returned
by ``dartsim.observe.figures.by_label``; each entry becomes a chart.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dartsim.core.files import below
from dartsim.observe import charts
from dartsim.observe.alarm import hours
from dartsim.observe.bias import BAND, JUDGED, ByClass, class_shares, judged_shares, least_trained, usable
from dartsim.observe.figures import FIGURES, figure_parts, figure_text
from dartsim.observe.rundir import RunDir, write_text
from dartsim.observe.states import POPULATIONS, StateInfo, state_info, state_infos
from dartsim.observe.steady import steady_text

CARDS: Mapping[str, tuple[str, str]] = {
    "trained_turns_per_minute": ("admitted_turns_per_minute", "{} admitted"),
    "generated_turns_per_minute": ("wasted_share", "{} never trained"),
    "env_utilization": ("trajectories_per_minute", "{} trajectories"),
    "gpu_utilization": ("gpu_utilization_rollout_phase", "{} while rolling out"),
    "minutes_per_version": ("num_updates", "{} updates"),
    "staleness_max": ("staleness_mean", "mean {}"),
}
"""Headline figures, each with the figure below it."""

TITLES = {name: info.title for name, info in POPULATIONS.items()}

EFFICIENCY = ("trained_turns_per_minute", "env_utilization", "gpu_utilization")
"""The bars in the paper."""


def render_report(run: RunDir, target: Path | None = None) -> Path:
    """Write a run's page, by default its ``report.html``, and return its path."""
    summary, series = run.summary, run.series
    window = rolling_window(summary)
    plots: dict[str, charts.Chart] = {
        "states": charts.time_by_state([("", summary)]),
        "throughput": charts.throughput(series, window),
        "utilization": charts.utilization(series, window),
        "desktops": charts.desktops_over_time(series, window),
        "staleness": charts.staleness(summary),
        "reward": charts.reward(series),
        "endings": charts.count_bars(summary.get("endings", {}), charts.ENDING_COLOR, "attempts"),
        "dropped": charts.count_bars(summary.get("dropped", {}), charts.DROP_COLOR, "dropped trajectories"),
    }
    curve = summary.get("learning")
    if curve:
        plots["learning"] = charts.learning(curve)
    if run.idle is not None:
        plots |= {f"idle_{name}": charts.idle_over_time(run.idle, name) for name in POPULATIONS}
    tables: Mapping[str, ByClass] = summary.get("bias", {})
    plots |= {f"bias{index}": charts.bias(table) for index, table in enumerate(tables.values())}
    return _write_page(
        target or run.report,
        "report.html.j2",
        plots,
        [(run.name, run)],
        clock=_clock([run]),
        run=run,
        summary=summary,
        cards=_cards(summary),
        legends=_legends(summary),
        sentences=_sentences(summary),
        window_minutes=window * 60.0,
        bias=[
            {"key": f"bias{index}", "name": name, "filter": usable(table), "least": _least_trained(name, table)}
            for index, (name, table) in enumerate(tables.items())
        ],
        idle=run.idle,
        populations=TITLES,
        curve=curve,
        samples=_samples(run),
        facts=_facts(summary),
        alarms=_alarms(summary),
        start_failures=[
            {"cause": cause, "count": number, "reason": summary.get("fault_reasons", {}).get(cause, "")}
            for cause, number in summary.get("start_causes", {}).items()
        ],
    )


def render_comparison(
    runs: Sequence[RunDir],
    path: Path,
    *,
    names: Sequence[str] | None = None,
    published: Mapping[str, Mapping[str, float]] | None = None,
    means: Sequence[Mapping[str, charts.Mean]] = (),
    table: Sequence[tuple[str, Sequence[str]]] = (),
    bias: Sequence[Mapping[str, ByClass]] = (),
    num_seeds: int = 1,
) -> Path:
    """Write a page that compares runs, and return its path.

    Args:
        runs: At least one; ratios are relative to the first.
        path: The page's file.
        names: Names of the runs; default: their presets.
        published: Published figures, by the run's name and by the names of ``summary.json``.
        means: For each run, its figures over several seeds, which replace the run's own in the bars.
        table: Rows of the table: a label, and a cell for each run.
        bias: For each run, its counts by class of tasks over several seeds; default: the run's own.
        num_seeds: Number of seeds.
    """
    if not runs:
        raise ValueError("a comparison needs at least one run, got none")
    names = names or unique_names(runs)
    named = list(zip(names, runs, strict=True))
    own_published = [(published or {}).get(name, {}) for name in names]
    summaries = [run.summary for run in runs]
    window = max(map(rolling_window, summaries))
    plots: dict[str, charts.Chart] = {
        f"efficiency{index}": charts.efficiency(
            figure,
            [(name, run.summary) for name, run in named],
            [values.get(figure) for values in own_published],
            [figures.get(figure) for figures in means],
        )
        for index, figure in enumerate(EFFICIENCY)
    }
    for population in POPULATIONS:
        plots[f"states_{population}"] = charts.time_by_state([(n, run.summary) for n, run in named], [population])
    for key in ("trained", "generated"):
        rates = [(name, run.series) for name, run in named]
        plots[key] = charts.rates_of_runs(rates, f"{key}_turns_per_minute", window)
    return _write_page(
        path,
        "comparison.html.j2",
        plots,
        named,
        clock=_clock(runs),
        names=names,
        colors=charts.run_colors(len(runs)),
        runs=runs,
        rows=_rows(summaries, own_published),
        has_published=any(own_published),
        table=table,
        num_seeds=num_seeds,
        surrogates=surrogates([(name, run.summary) for name, run in named]),
        bias=_bias_rows(bias or [summary.get("bias", {}) for summary in summaries]),
        band=BAND,
        differences=differences([summary.get("config", {}) for summary in summaries]),
        populations=TITLES,
        legends=_states_shown(summaries),
        window_minutes=window * 60.0,
    )


def render_study(study: Mapping[str, Any], path: Path) -> Path:
    """Write the page of a study (what ``dartsim tune --json`` writes), and return its path."""
    objectives, knobs = study["objectives"], list(study["space"])
    finished = [trial for trial in study["trials"] if trial["values"]]
    plots: dict[str, charts.Chart] = {"history": charts.history(finished, objectives[0])}
    if len(objectives) > 1:
        plots["front"] = charts.front(finished, study["front"], objectives)
    plots |= {f"knob{number}": charts.knob(finished, key, objectives[0]) for number, key in enumerate(knobs)}
    values = {"study": study, "knobs": knobs, "objectives": objectives, "clock": "simulated"}
    return _write_page(path, "study.html.j2", plots, (), **values)


def _write_page(
    path: Path, template: str, plots: Mapping[str, charts.Chart], timelines: Sequence[tuple[str, RunDir]], **values: Any
) -> Path:
    """Write a page with its charts and the timelines of runs, and return its path."""
    write_text(path, _environment().get_template(template).render(_page_values(plots, timelines), **values))
    return path


def surrogates(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a note about runs with a surrogate policy, naming them unless all have one; empty if none has."""
    drawn = list(dict.fromkeys(name for name, summary in runs if summary.get("surrogate")))
    if not drawn:
        return ""
    all_of_them = all(summary.get("surrogate") for _, summary in runs)
    of = "" if all_of_them else f" ({', '.join(drawn)})"
    return f"surrogate policy{of}: outcomes are drawn, nothing was learned"


def _least_trained(name: str, table: ByClass) -> str:
    """Return which classes are starved, or else the least trained one; empty if the classification is not judged."""
    shares = class_shares(table) if name in JUDGED.values() else {}
    if not shares:
        return ""
    labels = [label for label, share in shares.items() if share.starved] or [least_trained(shares)]
    classes = "; ".join(f"{label}, {shares[label]}" for label in labels)
    return f"Trained least, relative to what the filter leaves: {classes}; below {BAND:g} is starved."


def _bias_rows(counts: Sequence[Mapping[str, ByClass]]) -> list[dict[str, Any]]:
    """Return a row for each judged class of tasks, with a cell for each run."""
    runs = [judged_shares(tables) for tables in counts]
    return [
        {"name": name, "label": label, "cells": [own.get(name, {}).get(label) for own in runs]}
        for name in JUDGED
        for label in dict.fromkeys(label for own in runs for label in own.get(name, {}))
    ]


def _alarms(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the run's alarms with readable times."""
    return [
        {
            **alarm,
            "since": hours(alarm["since_seconds"]),
            "over": None if alarm["cleared_seconds"] is None else hours(alarm["cleared_seconds"]),
        }
        for alarm in summary.get("alarms", ())
    ]


def _samples(run: RunDir) -> list[dict[str, str]]:
    """Return the run's pictures of attempts as data URLs, with captions."""
    return [
        {
            "caption": sample["caption"],
            "source": "data:image/png;base64," + b64encode(below(run.path, sample["file"]).read_bytes()).decode(),
        }
        for sample in run.summary.get("samples", ())
    ]


def _clock(runs: Sequence[RunDir]) -> str:
    return "simulated" if any(run.summary.get("virtual", True) for run in runs) else "real"


def rolling_window(summary: Mapping[str, Any]) -> float:
    """Return the hours over which rates are averaged: at least two updates, because updates come in bursts."""
    run_hours = float(summary["simulated_hours"])
    updates = 2.0 * float(summary.get("minutes_per_version") or 0.0) / 60.0
    return max(run_hours / 30.0, min(updates, run_hours / 4.0))


def unique_names(runs: Sequence[RunDir]) -> list[str]:
    """Return a name for each run: its preset, plus its seed or a number where needed."""
    names = [run.name for run in runs]
    seeded = [
        f"{name}, seed {run.summary.get('seed', '?')}" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]
    return [
        f"{name} ({seeded[: index + 1].count(name)})" if seeded.count(name) > 1 else name
        for index, name in enumerate(seeded)
    ]


def differences(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the configuration keys in which runs differ, with each run's value."""
    flat = [dict(_flat(config)) for config in configs]
    keys = sorted(set().union(*flat))
    table = [(key, [config.get(key, "–") for config in flat]) for key in keys]
    return [(key, values) for key, values in table if len(set(values)) > 1]


def _flat(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
            pairs.append((prefix + key, text))
    return pairs


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dartsim.observe"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(figure_text=figure_text, figures=FIGURES)
    return environment


def _page_values(plots: Mapping[str, charts.Chart], runs: Sequence[tuple[str, RunDir]]) -> dict[str, Any]:
    """Return the values that every page needs: plotly.js, the charts and the timelines."""
    timelines = [{"name": name, **run.timeline} for name, run in runs if run.timeline is not None]
    used = {
        (population["name"], population["states"][state])
        for timeline in timelines
        for population in timeline["populations"]
        for track in population["tracks"]
        for state in set(track["states"])
    }
    styles = {name: {key: info._asdict() for key, info in state_infos(name).items()} for name in POPULATIONS}
    if all(float(run.summary["simulated_hours"]) < 1.0 for _, run in runs):
        plots = {name: charts.in_minutes(plot) for name, plot in plots.items()}
    return {
        "plotlyjs": _packed_plotly(),
        "plots": _json(plots),
        "timelines": _json({"runs": timelines, "styles": styles, "names": TITLES}),
        "timeline_legend": {
            title: [(key, info) for key, info in state_infos(name).items() if (name, key) in used]
            for name, title in TITLES.items()
        },
        "has_timeline": bool(timelines),
    }


@cache
def _packed_plotly() -> Markup:
    """Return plotly.js, compressed by gzip, as base64."""
    from plotly.offline import get_plotlyjs

    return Markup(b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode())


def _json(value: Any) -> Markup:
    """Return JSON for a script element."""
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def _number(summary: Mapping[str, Any], name: str) -> str:
    value = summary.get(name)
    return figure_text(name, value) if name in FIGURES else "–" if value is None else f"{value:,}"


def _cards(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    cards = []
    warm = " after the warm-up" if summary.get("warmup_hours") else ""
    for name, (beneath, phrase) in CARDS.items():
        style = FIGURES[name]
        value, unit = figure_parts(name, summary.get(name))
        cards.append(
            {
                "name": name,
                "label": style.label,
                "value": value,
                "unit": unit,
                "below": phrase.format(_number(summary, beneath)) + (warm if beneath == "num_updates" else ""),
                "definition": style.definition,
            }
        )
    return cards


def _legends(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the states of each population that took any time, the largest share first."""
    legends = []
    for population, info in POPULATIONS.items():
        shares = sorted(summary[info.shares].items(), key=lambda item: -item[1])
        rows = [{"style": state_info(population, key), "percent": 100.0 * share} for key, share in shares if share > 0]
        legends.append({"title": info.title, "rows": rows})
    return legends


def _states_shown(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[StateInfo]]:
    """Return the states of each population that took any time in any run, in drawing order."""
    return {
        name: [
            info
            for key, info in state_infos(name).items()
            if any(summary[POPULATIONS[name].shares].get(key, 0.0) > 0.0 for summary in summaries)
        ]
        for name in POPULATIONS
    }


def _sentences(summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each population: its utilization, and the main uses of the remaining time."""
    sentences = []
    for population, info in POPULATIONS.items():
        states = {state_info(population, key): (share, key) for key, share in summary[info.shares].items()}
        useful = sum(share for state, (share, _) in states.items() if state.useful)
        rest = sorted((share, key, state.label) for state, (share, key) in states.items() if not state.useful)[:-3:-1]
        causes = ", ".join(f"{label} {share * 100.0:.1f} %" for share, _, label in rest if share > 0.0005)
        tail = f"; most of the rest: {causes}" if causes else ""
        sentences.append(f"{info.title}: {useful * 100.0:.1f} % in use{tail}.")
    return sentences


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the figures without a card, and the summary's plain values without a chart."""
    on_cards = {*CARDS, *(below for below, _ in CARDS.values())}
    figures = [
        (style.label, figure_text(name, summary[name]))
        for name, style in FIGURES.items()
        if name not in on_cards and summary.get(name) is not None
    ]
    shown = {"alarms", "config", "learning", "samples", "preset", "seed", "event_hash", "surrogate", *FIGURES}
    facts = [(name, value) for name, value in summary.items() if name not in shown]
    plain = [
        (name, f"{value:,.4g}" if isinstance(value, float) else str(value))
        for name, value in facts
        if isinstance(value, str | int | float)
    ]
    if "steady" in summary:
        plain.append(("steady", steady_text(summary["steady"])))
    versions = summary.get("versions")
    if isinstance(versions, Mapping):
        plain.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return [*figures, *((name.replace("_", " "), value) for name, value in plain)]


def _rows(
    summaries: Sequence[Mapping[str, Any]], published_values: Sequence[Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Return the rows of the table of figures: one cell per run, and the ratio of two runs."""
    rows = []
    for name, style in FIGURES.items():
        values = [summary.get(name) for summary in summaries]
        if all(value is None for value in values):
            continue
        ratio = values[1] / values[0] if len(values) == 2 and values[0] and values[1] is not None else None
        cells = [
            {"text": figure_text(name, value), "published": _published(name, published.get(name), value)}
            for value, published in zip(values, published_values, strict=True)
        ]
        rows.append({"style": style, "cells": cells, "ratio": ratio})
    return rows


def _published(name: str, published: float | None, value: float | None) -> str:
    """Return the published value, and the deviation from it."""
    if published is None:
        return ""
    off = f" ({(value / published - 1.0) * 100.0:+.1f} %)" if value is not None and published else ""
    return f"published {figure_text(name, published)}{off}"
