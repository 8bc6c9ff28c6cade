"""DART and its coupled baseline: the published efficiency table beside ours, and what else the parameters predict.

python -m experiments.headline            three seeds, 24 simulated hours each: about five minutes on two cores
python -m experiments.headline --quick    the same keys in one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from experiments.arms import Arm, arms_of, provenance, run_arms, studies
from experiments.charts import GRAY, ORANGE, drawing, label_axes, rows_axis
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, cell, rows_of

DECLARED = studies()["headline"]
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    name: arm["published"] for name, arm in DECLARED["arms"]["headline"]["axes"]["arm"].items() if "published" in arm
}

READ: Mapping[str, Callable[[Figures], float]] = {
    # Desktop seconds of a turn: between the first request and the last observation, and of any kind.
    "seconds_per_turn": lambda run: run["num_envs"] * run["env_utilization"] * 60.0 / run["generated_turns_per_minute"],
    "desktop_seconds_per_turn": lambda run: run["num_envs"] * 60.0 / run["generated_turns_per_minute"],
    "trajectories_per_version": lambda run: run["trajectories_per_minute"] * run["minutes_per_version"],
}
"""How our figure is computed where it is not a figure of the run itself."""


def measure(options: Options) -> Figures:
    """Run the presets with all seeds, and predict the other runs with one."""
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
    "turns_per_trajectory": ("turns of a trajectory", ".1f"),
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


def curation(figures: Figures) -> Rows:
    """What the paper's curation costs, with a policy that learns nothing: a column for each preset of DART."""
    presets = {"dart-measured": "dart", "dart": "curation", "dart-released": "released"}
    rows = [
        [label, *(cell(f"{{{name}:{form}}}", figures[arm]) for arm in presets.values())]
        for name, (label, form) in LABELS.items()
        if name != "trajectories_per_minute"
    ]
    return ["", *(f"`{preset}`" for preset in presets)], rows


@drawing(2.3)
def published(figure: Any, headline: Figures) -> None:
    """Our figures over the published ones, for DART and its coupled baseline."""
    names = [name for name in LABELS if name in PUBLISHED["dart"]]
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


def other_runs(figures: Figures) -> Rows:
    """Other figures of DART's run history beside what the same parameters predict."""
    columns = {
        "run": "{name}{note}",
        "figure": "{words}",
        "measured": "{measured:.1f}",
        "predicted": "{predicted:.1f}",
        "error": "{error:+.0%}",
    }
    rows = [
        {**run, "words": run["figure"].replace("_", " "), "note": " (fitted)" if run["kind"] == "fitted" else ""}
        for run in figures["other_runs"]
    ]
    return rows_of(columns, rows)


STUDY = Experiment(
    name="headline",
    about=DECLARED["about"],
    measure=measure,
    tables={"efficiency": efficiency, "presets": curation, "other-runs": other_runs, "provenance": provenance},
    pictures={
        "published": StudyPicture(
            "Our figures against the published ones: all within 7 %, but for the baseline's GPU utilization", published
        ),
    },
)

if __name__ == "__main__":
    STUDY.run()
