"""DART and its coupled baseline: the published efficiency table beside ours, and what else the parameters predict.

python -m experiments.headline            three seeds, 24 simulated hours each: about three minutes on two cores
python -m experiments.headline --quick    the same keys in less than one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from experiments.arms import Arm, arms_of, provenance, run_arms, studies
from experiments.charts import BLUE, GRAY, GREEN, ORANGE, RED, drawing, label_axes, legend_below, rows_axis
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, cell

DECLARED = studies()["headline"]
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    name: arm["published"] for name, arm in DECLARED["arms"]["headline"]["axes"]["arm"].items()
}

READ: Mapping[str, Callable[[Figures], float]] = {
    # Desktop seconds of a turn: between the first request and the last observation, and of any kind.
    "seconds_per_turn": lambda run: run["num_envs"] * run["env_utilization"] * 60.0 / run["generated_turns_per_minute"],
    "desktop_seconds_per_turn": lambda run: run["num_envs"] * 60.0 / run["generated_turns_per_minute"],
    "trajectories_per_version": lambda run: run["trajectories_per_minute"] * run["minutes_per_version"],
}
"""How our figure is computed where it is not a figure of the run itself."""


def measure(options: Options) -> Figures:
    """Run both presets with all seeds, and predict the other runs with one."""
    arms = arms_of(DECLARED, quick=options.quick)
    own, others = ([arm for arm in arms if arm.family == family] for family in ("headline", "other"))
    found = {
        arm.names["arm"]: {
            **{name: fmean(run[name] for run in runs) for name in DECLARED["figures"]},
            "max_staleness": max(run["staleness_max"] for run in runs),
            "event_hashes": [run["event_hash"] for run in runs],
        }
        for arm, runs in zip(own, run_arms(own, options), strict=True)
    }
    predicted = run_arms(others, replace(options, seeds=1))
    return {
        **found,
        "published": {name: {**dict.fromkeys(found[name]), **known} for name, known in PUBLISHED.items()},
        "other_runs": [prediction(arm, run) for arm, [run] in zip(others, predicted, strict=True)],
        "config": {"hours": {arm.family: [arm.hours] for arm in arms}},
    }


def prediction(arm: Arm, run: Figures) -> Figures:
    """Return the entry of another run: what is known of it beside what we predict."""
    figure, known = arm.keys["figure"], arm.keys["known"]
    run = {**run, "num_envs": arm.cluster(0).config.rollout.num_envs}
    ours = READ[figure](run) if figure in READ else run[figure]
    named = {"name": arm.names["name"], "figure": figure, "kind": arm.keys["kind"]}
    return {**named, "measured": known, "predicted": ours, "error": ours / known - 1.0}


LABELS = {
    "trained_turns_per_minute": ("trained turns/min", ".1f"),
    "generated_turns_per_minute": ("generated turns/min", ".1f"),
    "env_utilization": ("environment utilization, %", ".1p"),
    "gpu_utilization": ("GPU utilization (rollout), %", ".1p"),
    "trajectories_per_minute": ("trajectories/min", ".2f"),
    "minutes_per_version": ("minutes per version", ".1f"),
}


def efficiency(figures: Figures) -> Rows:
    """The paper's three figures, coupled against DART, published and simulated."""
    rows = []
    for name in ("trained_turns_per_minute", "env_utilization", "gpu_utilization"):
        label, form = LABELS[name]
        row = [label]
        for source in (figures["published"], figures):
            coupled, dart = source["coupled"][name], source["dart"][name]
            patterns = (f"{{coupled:{form}}}", f"{{dart:{form}}}", "{ratio:.2f}x")
            row += [cell(one, {"coupled": coupled, "dart": dart, "ratio": dart / coupled}) for one in patterns]
        rows.append(row)
    head = ["", "coupled, published", "DART, published", "ratio", "coupled, here", "DART, here", "ratio"]
    return head, rows


@drawing(2.3)
def published(figure: Any, headline: Figures) -> None:
    """Our figures over the published ones, for DART and its coupled baseline."""
    names = list(LABELS)
    for axes, preset in zip(figure.subplots(1, 2, sharey=True), ("dart", "coupled"), strict=True):
        for row, name in enumerate(names):
            known, ours = PUBLISHED[preset].get(name), headline[preset][name]
            if known is not None:
                axes.plot([100.0 * ours / known], [row], color=ORANGE, marker="o")
                shown = f"{100 * ours:.1f} % / {100 * known:.1f} %" if "util" in name else f"{ours:.1f} / {known:.1f}"
                axes.annotate(shown, (100.0 * ours / known, row), (6, 4), textcoords="offset points")
        rows_axis(axes, [LABELS[name][0].removesuffix(", %") for name in names])
        axes.axvline(100.0, color=GRAY, linestyle=":")
        axes.set_xlim(0.0, 140.0)
        label_axes(axes, {"dart": "DART", "coupled": "coupled baseline"}[preset], "here / published, %", zero=False)


FITTED = ("fitted to this run", GRAY)


@drawing(6.6)
def fidelity(figure: Any, headline: Figures, vllm: Figures, desktop: Figures) -> None:
    """Predicted over measured: DART's published runs, and our own real runs with their virtual twins."""
    points: list[tuple[str, tuple[str, str], float]] = []
    for preset, known in PUBLISHED.items():
        for name, value in known.items():
            label = f"{preset}: {LABELS[name][0].removesuffix(', %')}"
            points.append((label, FITTED, headline[preset][name] / value - 1.0))
    for run in headline["other_runs"]:
        label = f"{run['name'].partition(':')[0]}: {run['figure'].replace('_', ' ')}"
        label += ", first 3 h" if ", 3.1 h" in run["name"] else ", next 2 h" if ", next" in run["name"] else ""
        points.append((label, FITTED if run["kind"] == "fitted" else ("other published runs", RED), run["error"]))
    for words, color, found in (("vLLM engines", BLUE, vllm), ("8 containers", GREEN, desktop)):
        for name, error in found["relative_error"].items():
            if error is not None:
                label = name.replace("_", " ").replace("share", "share of time")
                points.append((f"{words}: {label}", (f"twin of a real run: {words}", color), error))
    axes = figure.subplots()
    named: set[str] = set()
    for row, (_, (kind, color), error) in enumerate(points):
        ratio = 1.0 + error
        axes.plot([1.0, ratio], [row, row], color=color, alpha=0.5)
        axes.plot([ratio], [row], color=color, marker="o", ls="", label=None if kind in named else kind)
        named.add(kind)
        right = ratio >= 1.0
        axes.annotate(
            f"{error:+.1%}" if abs(error) < 0.1 else f"{error:+.0%}",
            (ratio, row),
            (5 if right else -5, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=7.5,
        )
    rows_axis(axes, [label for label, *_ in points])
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.12, 4.0)
    axes.set_xticks([0.25, 0.5, 1.0, 2.0], ["1/4", "1/2", "1", "2"])
    axes.minorticks_off()
    axes.axvline(1.0, color=GRAY, linestyle=":")
    label_axes(axes, "Predicted over measured", "ratio (1: no error)", zero=False)
    legend_below(figure, 4)


STUDY = Experiment(
    name="headline",
    about=DECLARED["about"],
    measure=measure,
    tables={"efficiency": efficiency, "provenance": provenance},
    pictures={
        "published": StudyPicture(
            "Our figures against the published ones: all within 7 %, but for the baseline's GPU utilization", published
        ),
        "fidelity": StudyPicture(
            "Predicted over measured: within 10 % where fitted, but for the baseline's GPU utilization, within 8 % for "
            "twins of our own real runs, and -35 to +172 % off for DART's other published runs",
            fidelity,
            beside=("real_loop", "real_loop_desktop"),
        ),
    },
)

if __name__ == "__main__":
    STUDY.run()
