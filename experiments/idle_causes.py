"""What limits each scheduler: idle causes of desktops, engines and trainer.

python -m experiments.idle_causes            one seed on the workload osworld: about three minutes of CPU
python -m experiments.idle_causes --quick    the same keys, three schedulers, shorter
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartsim.observe.idle import attribute
from dartsim.observe.states import AT_WORK
from dartsim.observe.window import recorded_window
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
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


def run_scheduler(arm: Arm, seed: int) -> Figures:
    """Run one scheduler and return its shares of time at work and of each idle cause, by population."""
    config = arm.cluster(seed).config
    # Configurations of studies keep no timelines.
    result = run_prepared(prepare(config.replace(run={"max_segments": 2_000_000})))
    window = recorded_window(result.recorder)
    assert window is not None, "segments are kept"
    start = config.run.warmup_share * window.end
    found = attribute(window.clipped(start))["populations"]
    return {
        "idle": {
            name: {
                cause: round(seconds / (own["size"] * (window.end - start)), 6)
                for cause, seconds in own["seconds"].items()
            }
            for name, own in found.items()
        },
        "event_hash": result.event_hash,
    }


def of_seed(arm: Arm, runs: Sequence[Figures]) -> Figures:
    """Return what is written of a scheduler: its one seed."""
    return {"idle": runs[0]["idle"]}


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
def causes_picture(figure: Any, recorded: Figures) -> None:
    """What limits each scheduler: the time of desktops, engines and trainer by idle cause."""
    arms = sorted(recorded["arms"], key=lambda arm: -arm["idle"]["trainer"].get(AT_WORK, 0.0))
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
        "schedulers-idle": StudyPicture(
            "Time of desktops, engines and trainer, at work or idle by cause, for 25 schedulers on osworld",
            causes_picture,
        ),
    },
)

if __name__ == "__main__":
    STUDY.run()
