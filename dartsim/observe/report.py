"""One page for a run, and one that puts runs side by side: self-contained, asking nothing of a network.

``summary.json`` may hold ``bias``: ``{"by domain": {"chrome": {"offered": 40, "trained": 12}, …}, …}``; each
of its entries becomes a chart (``dartsim.observe.figures.by_label`` makes them).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dartsim.observe import charts
from dartsim.observe.alarm import hours
from dartsim.observe.bias import BAND, JUDGED, ByClass, class_shares, judged, least, usable
from dartsim.observe.figures import FIGURES, figure_parts, figure_text
from dartsim.observe.rundir import RunDir, write_text
from dartsim.observe.states import POPULATIONS, StateInfo, state_info, state_infos

CARDS: Mapping[str, tuple[str, str]] = {
    "trained_turns_per_minute": ("admitted_turns_per_minute", "{} admitted"),
    "generated_turns_per_minute": ("wasted_share", "{} never trained"),
    "env_utilization": ("trajectories_per_minute", "{} trajectories"),
    "gpu_utilization": ("gpu_utilization_rollout_phase", "{} while rolling out"),
    "minutes_per_version": ("num_updates", "{} updates"),
    "staleness_max": ("staleness_mean", "mean {}"),
}
"""Headline figures, each with the one that is shown small beneath it."""

TITLES = {name: info.title for name, info in POPULATIONS.items()}
"""What each population is called."""

EFFICIENCY = ("trained_turns_per_minute", "env_utilization", "gpu_utilization")
"""The three bars of the paper."""


def render_report(run: RunDir) -> Path:
    """Write a run's ``report.html`` and return its path."""
    summary, series = run.summary, run.series
    window = rolling_window(summary)
    plots: dict[str, charts.Chart] = {
        "states": charts.time_by_state([("", summary)]),
        "throughput": charts.throughput(series, window),
        "utilization": charts.utilization(series, window),
        "desktops": charts.desktops_over_time(series, window),
        "staleness": charts.staleness(summary),
        "reward": charts.reward(series),
        "endings": charts.counted(summary.get("endings", {}), charts.ENDING_COLOR, "attempts"),
        "dropped": charts.counted(summary.get("dropped", {}), charts.DROP_COLOR, "dropped trajectories"),
    }
    curve = summary.get("learning")
    if curve:
        plots["learning"] = charts.learning(curve)
    if run.idle is not None:
        plots |= {f"idle_{name}": charts.idle_over_time(run.idle, name) for name in POPULATIONS}
    tables: Mapping[str, ByClass] = summary.get("bias", {})
    plots |= {f"bias{index}": charts.bias(table) for index, table in enumerate(tables.values())}
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            _shared(plots, [(run.name, run)]),
            clock=_clock([run]),
            run=run,
            summary=summary,
            cards=_cards(summary),
            legends=_legends(summary),
            sentences=_sentences(summary),
            window_minutes=window * 60.0,
            bias=[
                {"key": f"bias{index}", "name": name, "filter": usable(table), "found": _least_trained(name, table)}
                for index, (name, table) in enumerate(tables.items())
            ],
            idle=run.idle,
            populations=TITLES,
            curve=curve,
            promotion=summary.get("promotion"),
            samples=_samples(run),
            facts=_facts(summary),
            alarms=_alarms(summary),
        )
    )
    write_text(run.report, page)
    return run.report


def render_comparison(
    runs: Sequence[RunDir],
    path: Path,
    *,
    published: Mapping[str, Mapping[str, float]] | None = None,
    means: Sequence[Mapping[str, charts.Mean]] = (),
    table: Sequence[tuple[str, Sequence[str]]] = (),
    bias: Sequence[Mapping[str, ByClass]] = (),
    num_seeds: int = 1,
) -> Path:
    """Write one page that puts runs side by side and return its path.

    Args:
        runs: At least one; the first is what the others are measured against.
        path: The page's file.
        published: By run's name (its preset), published figures by the names of ``summary.json``; shares
            from 0 to 1.
        means: Of each run, its figures over several seeds; the bars are these then.
        table: What was told of them: what it is, and a cell a run.
        bias: Of each run, its counts by class of task over several seeds; its own by default.
        num_seeds: How many seeds.
    """
    if not runs:
        raise ValueError("a comparison needs at least one run, got none")
    names = unique_names(runs)
    given = [(published or {}).get(run.name, {}) for run in runs]
    summaries = [(name, run.summary) for name, run in zip(names, runs, strict=True)]
    window = max(rolling_window(run.summary) for run in runs)
    plots: dict[str, charts.Chart] = {
        f"efficiency{index}": charts.efficiency(
            figure, summaries, [values.get(figure) for values in given], [found.get(figure) for found in means]
        )
        for index, figure in enumerate(EFFICIENCY)
    }
    plots |= {f"states_{population}": charts.time_by_state(summaries, [population]) for population in POPULATIONS}
    rates = [(name, run.series) for name, run in zip(names, runs, strict=True)]
    for key in ("trained", "generated"):
        plots[key] = charts.rates_of_runs(rates, f"{key}_turns_per_minute", window)
    page = (
        _environment()
        .get_template("comparison.html.j2")
        .render(
            _shared(plots, list(zip(names, runs, strict=True))),
            clock=_clock(runs),
            names=names,
            colors=charts.run_colors(len(runs)),
            runs=runs,
            rows=_rows([run.summary for run in runs], given),
            has_published=any(given),
            table=table,
            num_seeds=num_seeds,
            surrogates=surrogates([(run.name, run.summary) for run in runs]),
            bias=_bias_rows(bias or [run.summary.get("bias", {}) for run in runs]),
            band=BAND,
            differences=differences([run.summary.get("config", {}) for run in runs]),
            populations=TITLES,
            legends=_states_shown([run.summary for run in runs]),
            window_minutes=window * 60.0,
        )
    )
    write_text(path, page)
    return path


def render_study(found: Mapping[str, Any], path: Path) -> Path:
    """Write the page of a study and return its path.

    Args:
        found: What ``dartsim tune --json`` writes.
        path: The page's file.
    """
    wanted = found["objectives"]
    finished = [trial for trial in found["trials"] if trial["values"]]
    plots: dict[str, charts.Chart] = {"history": charts.history(finished, wanted[0])}
    if len(wanted) > 1:
        plots["front"] = charts.front(finished, found["front"], wanted)
    knobs = list(found["space"])
    plots |= {f"knob{place}": charts.knob(finished, key, wanted[0]) for place, key in enumerate(knobs)}
    write_text(path, lone_page("study.html.j2", plots, found=found, knobs=knobs, wanted=wanted))
    return path


def surrogates(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return that nothing was learned, of which runs if not of all; an empty text if of none."""
    drawn = list(dict.fromkeys(name for name, summary in runs if summary.get("surrogate")))
    if not drawn:
        return ""
    all_of_them = all(summary.get("surrogate") for _, summary in runs)
    of = "" if all_of_them else f" ({', '.join(drawn)})"
    return f"surrogate policy{of}: outcomes are drawn, nothing was learned"


def _least_trained(name: str, table: ByClass) -> str:
    """Say which classes are starved, or else which is trained least.

    Nothing of a classification that is not judged.
    """
    shares = class_shares(table) if name in JUDGED.values() else {}
    if not shares:
        return ""
    labels = [label for label, share in shares.items() if share.starved] or [least(shares)]
    told = "; ".join(f"{label}, {shares[label]}" for label in labels)
    return f"Trained least, over what the filter leaves: {told}; starved is below {BAND:g}."


def _bias_rows(counts: Sequence[Mapping[str, ByClass]]) -> list[dict[str, Any]]:
    """Return the classes of tasks that are judged, with what each run trained of them; no row if none has any."""
    found = [judged(tables) for tables in counts]
    labels = {name: list(dict.fromkeys(label for own in found for label in own.get(name, {}))) for name in JUDGED}
    return [
        {"name": name, "label": label, "cells": [own.get(name, {}).get(label) for own in found]}
        for name, its_labels in labels.items()
        for label in its_labels
    ]


def _alarms(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the run's alarms with their times in words."""
    return [
        {
            **alarm,
            "since": hours(alarm["since_seconds"]),
            "over": None if alarm["cleared_seconds"] is None else hours(alarm["cleared_seconds"]),
        }
        for alarm in summary.get("alarms", ())
    ]


def lone_page(template: str, plots: Mapping[str, charts.Chart], **values: Any) -> str:
    """Return a page that shows charts of its own, of no single run.

    Args:
        template: Its file.
        plots: Its charts by name.
        values: What else the template names.
    """
    return _environment().get_template(template).render(_shared(plots, []), clock="simulated", **values)


def _samples(run: RunDir) -> list[dict[str, str]]:
    """Return the run's pictures of attempts, as data, with their captions."""
    return [
        {
            "caption": sample["caption"],
            "source": "data:image/png;base64," + b64encode((run.path / sample["file"]).read_bytes()).decode(),
        }
        for sample in run.summary.get("samples", ())
    ]


def _clock(runs: Sequence[RunDir]) -> str:
    """Return by which clock the runs went, in one word."""
    return "simulated" if any(run.summary.get("virtual", True) for run in runs) else "real"


def rolling_window(summary: Mapping[str, Any]) -> float:
    """Return the width in hours over which rates are averaged: two updates, or a thirtieth of the run.

    Updates finish in bursts; averaged over less than one of them, the trained rate is a comb.
    """
    hours = float(summary["simulated_hours"])
    updates = 2.0 * float(summary.get("minutes_per_version") or 0.0) / 60.0
    return max(hours / 30.0, min(updates, hours / 4.0))


def unique_names(runs: Sequence[RunDir]) -> list[str]:
    """Return what each run is called: its preset, with the seed where presets repeat, numbered if need be."""
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


def _shared(plots: Mapping[str, charts.Chart], runs: Sequence[tuple[str, RunDir]]) -> dict[str, Any]:
    """Return what every page needs: plotly.js, the charts and the timelines."""
    from plotly.offline import get_plotlyjs

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
        "plotlyjs": Markup(get_plotlyjs()),
        "plots": _json(plots),
        "timelines": _json({"runs": timelines, "styles": styles, "names": TITLES}),
        "timeline_legend": {
            title: [(key, info) for key, info in state_infos(name).items() if (name, key) in used]
            for name, title in TITLES.items()
        },
        "has_timeline": bool(timelines),
    }


def _json(value: Any) -> Markup:
    """Return JSON that can stand in a script element."""
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def _number(summary: Mapping[str, Any], name: str) -> str:
    value = summary.get(name)
    return figure_text(name, value) if name in FIGURES else "–" if value is None else f"{value:,}"


def _cards(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    cards = []
    warm = " after the warm-up" if summary.get("warmup_hours") else ""
    for name, (below, phrase) in CARDS.items():
        style = FIGURES[name]
        value, unit = figure_parts(name, summary.get(name))
        cards.append(
            {
                "name": name,
                "label": style.label,
                "value": value,
                "unit": unit,
                "below": phrase.format(_number(summary, below)) + (warm if below == "num_updates" else ""),
                "definition": style.definition,
            }
        )
    return cards


def _legends(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return, for each population, its states that took any time: the largest share first."""
    legends = []
    for population, (title, _, _, figure, _) in POPULATIONS.items():
        shares = summary[figure]
        states = sorted((name for name in shares if shares[name] > 0), key=lambda name: -shares[name])
        rows = [{"style": state_info(population, name), "percent": shares[name] * 100.0} for name in states]
        legends.append({"title": title, "rows": rows})
    return legends


def _states_shown(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[StateInfo]]:
    """Return, for each population, the states that took any time of any run, in drawing order."""
    return {
        name: [
            info
            for key, info in state_infos(name).items()
            if any(summary[POPULATIONS[name].shares].get(key, 0.0) > 0.0 for summary in summaries)
        ]
        for name in POPULATIONS
    }


def _sentences(summary: Mapping[str, Any]) -> list[str]:
    """Say for each population how much of its time was useful and what took most of the rest."""
    sentences = []
    for population, (title, _, _, figure, _) in POPULATIONS.items():
        shares = summary[figure]
        infos = {key: state_info(population, key) for key in shares}
        useful = sum(share for key, share in shares.items() if infos[key].useful)
        rest = sorted(((share, key) for key, share in shares.items() if not infos[key].useful), reverse=True)
        causes = [f"{infos[key].label} {share * 100.0:.1f} %" for share, key in rest[:2] if share > 0.0005]
        tail = f"; most of the rest: {', '.join(causes)}" if causes else ""
        sentences.append(f"{title}: {useful * 100.0:.1f} % in use{tail}.")
    return sentences


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the figures that no card shows, and the plain values of the summary that no chart does."""
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
    versions = summary.get("versions")
    if isinstance(versions, Mapping):
        plain.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return [*figures, *((name.replace("_", " "), value) for name, value in plain)]


def _rows(summaries: Sequence[Mapping[str, Any]], given: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the table of figures: one cell a run, and the ratio to the first run if there are two."""
    rows = []
    for name, style in FIGURES.items():
        values = [summary.get(name) for summary in summaries]
        if all(value is None for value in values):
            continue
        ratio = values[1] / values[0] if len(values) == 2 and values[0] and values[1] is not None else None
        cells = [
            {"text": figure_text(name, value), "published": _published(name, published.get(name), value)}
            for value, published in zip(values, given, strict=True)
        ]
        rows.append({"style": style, "cells": cells, "ratio": ratio})
    return rows


def _published(name: str, published: float | None, value: float | None) -> str:
    """Say what was published, and by how much ours is off."""
    if published is None:
        return ""
    off = f" ({(value / published - 1.0) * 100.0:+.1f} %)" if value is not None and published else ""
    return f"published {figure_text(name, published)}{off}"
