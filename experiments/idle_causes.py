"""What limits each scheduler: idle causes of desktops, engines and trainer, and excerpts of three timelines.

python -m experiments.idle_causes            one seed on the workload osworld: about three minutes of CPU
python -m experiments.idle_causes --quick    the same keys, three schedulers, shorter
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartsim.observe.idle import attribute
from dartsim.observe.states import AT_WORK, DesktopState, TrainerState
from dartsim.observe.timeline import Stay, Window, evenly_spread, recorded_window
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments.arms import Arm, arm_study
from experiments.charts import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    YELLOW,
    boxes,
    drawing,
    label_axes,
    legend_below,
    rows_axis,
)
from experiments.study import Figures, StudyPicture

MINUTES = 40.0
"""Length of a timeline, at the end of the run."""
ROWS = {"trainer": 1, "desktops": 6}
"""Components of each population that a timeline shows; of engines, shares in ``BINS`` intervals."""
BINS = 80
SYNC = DesktopState.SYNC_WAIT.info.label
RESOLUTION = 5.0
"""Shorter stays belong to the phase before, seconds."""

D, T = DesktopState, TrainerState
PHASES: Mapping[str, Mapping[str, set[Any]]] = {
    "desktops": {
        "attempt": {D.GENERATING, D.ACTING, D.TURN_WAIT},
        "overhead": {D.STARTING, D.SETUP, D.SCORE_WAIT, D.EVALUATING, D.CLOSING},
        "sync": {D.SYNC_WAIT},
        "idle": {D.WAIT_ADMISSION, D.WAIT_UNIT, D.WAIT_START, D.OFF, D.READY},
    },
    "trainer": {
        "training": {T.TRAINING},
        "sync": {T.WAIT_SYNC},
        "idle": {T.WAIT_DATA, T.WAIT_PUBLISH, T.DOWN, T.OFF},
    },
}
"""States by population and phase of a timeline."""
PHASE_OF = {
    population: {int(state): phase for phase, states in phases.items() for state in states}
    for population, phases in PHASES.items()
}


def run_scheduler(arm: Arm, seed: int) -> Figures:
    """Run one scheduler and return its shares of idle time, and its timeline if it is shown."""
    config = arm.cluster(seed).config
    # Configurations of studies keep no timelines.
    result = run_simulation(prepare(config.replace(recorder={"max_segments": 2_000_000})))
    window = recorded_window(result.recorder)
    assert window is not None, "segments are kept"
    return {
        "idle": {
            name: {cause: shares[0] for cause, shares in own.items()}
            for name, own in idle_shares(window, config.run.warmup_share * window.end, 1).items()
        },
        "timeline": excerpt(window) if arm.keys.get("timeline") else None,
        "event_hash": result.event_hash,
    }


def of_seed(arm: Arm, runs: Sequence[Figures]) -> Figures:
    """Return what is written of a scheduler: its one seed."""
    return {name: runs[0][name] for name in ("idle", "timeline")}


def idle_shares(window: Window, start: float, num_bins: int) -> dict[str, dict[str, list[float]]]:
    """Return the share of time at work and of each idle cause from ``start`` on, by population and interval."""
    found = attribute(window.clipped(start)._replace(start=start), num_bins=num_bins)
    return {name: own["shares"] for name, own in found["populations"].items()}


def excerpt(window: Window) -> Figures:
    """Return the last minutes: rows of ``[phase, start, length]``, seconds, and the engines' shares of time."""
    start = window.end - 60.0 * MINUTES
    engines = idle_shares(window, start, BINS)["engines"]
    shown = {
        name: [phases(window.stays[name][i], start, name) for i in evenly_spread(len(window.stays[name]), number)]
        for name, number in ROWS.items()
    }
    return {**shown, "engines": {name: engines.get(name, [0.0] * BINS) for name in (AT_WORK, SYNC)}}


def phases(stays: Sequence[Stay], start: float, population: str) -> list[list[Any]]:
    """Return a component's phases from ``start`` on; stays below the resolution belong to the phase before."""
    merged: list[list[Any]] = []
    for stay in stays:
        if stay.end <= start:
            continue
        phase, since = PHASE_OF[population][stay.state], max(stay.start, start) - start
        short = stay.end - stay.start < RESOLUTION
        if merged and (short or merged[-1][0] == phase):
            merged[-1][2] = round(stay.end - start - merged[-1][1], 1)
        else:
            merged.append([phase, round(since, 1), round(stay.end - start - since, 1)])
    return merged


COLORS: Mapping[str, tuple[str, str]] = {
    "attempt": (GREEN, "desktop: turns of an attempt"),
    "overhead": (PINK, "desktop: boot, set-up, scoring, teardown"),
    "training": (PURPLE, "trainer: update"),
    "serving": (BLUE, "engines: share with a request"),
    "sync": (RED, "weight sync"),
    "idle": ("#f0c987", "idle"),
}
"""Color and description of a phase of the timelines."""


@drawing(4.2)
def timeline(figure: Any, timelines: Figures) -> None:
    """Desktops, engines and the trainer over time, a column for each of three schedulers."""
    shown = {arm["scheduler"]: arm["timeline"] for arm in timelines["arms"] if arm["timeline"]}
    grid = figure.subplots(3, len(shown), sharex=True, sharey="row", height_ratios=(0.5, 1.2, 2.6), squeeze=False)
    for column, (name, own) in enumerate(shown.items()):
        trainer, engines, desktops = grid[:, column]
        for axes, tracks in ((trainer, own["trainer"]), (desktops, own["desktops"])):
            for phase, (color, words) in COLORS.items():
                spans = [
                    (start / 60.0, row - 0.4, length / 60.0, 0.8)
                    for row, track in enumerate(tracks)
                    for kind, start, length in track
                    if kind == phase
                ]
                boxes(axes, spans, color, words)
            axes.set_ylim(len(tracks) - 0.5, -0.5)
            axes.grid(visible=False)
        busy, sync = (own["engines"][key] for key in (AT_WORK, SYNC))
        width = MINUTES / len(busy)
        boxes(engines, [(0.0, 0.0, MINUTES, 1.0)], COLORS["idle"][0])
        shares = (("serving", [0.0] * len(busy), busy), ("sync", busy, sync))
        for phase, bottoms, heights in shares:
            spans = [(i * width, low, width, high) for i, (low, high) in enumerate(zip(bottoms, heights, strict=True))]
            boxes(engines, spans, *COLORS[phase])
        engines.set_ylim(0.0, 1.0)
        engines.set_yticks([0.0, 1.0], ["0 %", "100 %"])
        trainer.set_title(name)
        trainer.set_yticks([])
        desktops.set_yticks([])
        desktops.set_xlim(0.0, MINUTES)
        desktops.set_xlabel("simulated minutes")
    for axes, words in zip(grid[:, 0], ("trainer", "8 engines", "6 of 64 desktops"), strict=True):
        axes.set_ylabel(words)
    legend_below(figure, 3)


CAUSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "at work": (BLUE, (AT_WORK,)),
    "reply awaited, network": ("#8cc0f0", ("generating", "network")),
    "actions": (GREEN, ("acting",)),
    "boot, set-up, scoring, teardown": (
        PINK,
        ("starting", "setting up", "scoring queue", "evaluating", "closing", "start failed", "spare"),
    ),
    "weight sync": (RED, ("weight sync", "waiting to publish")),
    "other attempts: lockstep, group, batch": (YELLOW, ("lockstep", "unit unfinished")),
    "not admitted": (ORANGE, ("not admitted",)),
    "update": (PURPLE, ("training",)),
    "down or off": (GRAY, ("down", "off")),
}
"""Groups of causes, with their color and the causes of ``dartsim.observe.idle``."""


@drawing(5.2)
def causes_picture(figure: Any, timelines: Figures) -> None:
    """What limits each scheduler: the time of desktops, engines and trainer by idle cause."""
    arms = sorted(timelines["arms"], key=lambda arm: -arm["idle"]["trainer"].get(AT_WORK, 0.0))
    for axes, population in zip(figure.subplots(1, 3, sharey=True), ("desktops", "engines", "trainer"), strict=True):
        left = [0.0] * len(arms)
        for words, (color, causes) in CAUSES.items():
            shares = [100.0 * sum(arm["idle"][population].get(cause, 0.0) for cause in causes) for arm in arms]
            spans = [(left[row], row - 0.4, share, 0.8) for row, share in enumerate(shares) if share > 0.0]
            boxes(axes, spans, color, words)
            left = [before + share for before, share in zip(left, shares, strict=True)]
        rows_axis(axes, [arm["scheduler"] for arm in arms])
        axes.set_xlim(0.0, 100.0)
        label_axes(axes, population, "share of time, %", zero=False)
    legend_below(figure, 3)


STUDY = arm_study(
    "idle_causes",
    run=run_scheduler,
    more=of_seed,
    pictures={
        "timeline": StudyPicture(
            "Timelines of coupled, dart-measured and dartsim on osworld: desktops, engines and trainer take turns "
            "under coupled and overlap under the others; the trainer hardly waits under dartsim",
            timeline,
        ),
        "schedulers-idle": StudyPicture(
            "Time of desktops, engines and trainer, at work or idle by cause, for 25 schedulers on osworld",
            causes_picture,
        ),
    },
)

if __name__ == "__main__":
    STUDY.run()
