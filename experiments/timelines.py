"""The picture of the README: how much of a coupled and of a decoupled cluster works, minute by minute.

python -m experiments.timelines            eight simulated hours of both, two of them shown: 20 seconds
"""

from __future__ import annotations

from typing import Any

import dartsim
from dartsim.observe.recorder import Recorder
from dartsim.observe.states import POPULATIONS
from dartsim.observe.timeline import recorded_window
from experiments.charts import figure_as_svg
from experiments.study import Experiment, Figures, Options, StudyPicture

PRESETS = {"coupled": "Coupled", "dart-measured": "Decoupled (DART)"}
HOURS, SHOWN_FROM, SHOWN_MINUTES = 8.0, 240, 120
"""Length of a run, and the first minute and the length of the shown part."""

SEED = 0


def measure(options: Options) -> Figures:
    """Simulate both, and measure in each shown minute the share of desktops, engines and trainer that works."""
    hours = SHOWN_FROM / 60.0 + SHOWN_MINUTES / 60.0 if options.quick else HOURS
    overrides = {"run.hours": hours, "run.max_segments": 1_000_000}
    runs = {preset: dartsim.simulate(preset, overrides=overrides, seed=SEED) for preset in PRESETS}
    return {
        "config": {"hours": hours, "seed": SEED, "shown_from_minute": SHOWN_FROM},
        "runs": {
            preset: {
                "trained_turns_per_minute": run.trained_turns_per_minute,
                "event_hash": run.event_hash,
                "working_shares": working_shares(run.recorder, SHOWN_FROM, SHOWN_MINUTES),
            }
            for preset, run in runs.items()
        },
    }


def working_shares(recorder: Recorder, start: int, minutes: int) -> dict[str, list[float]]:
    """Return by population the share of its components' time in useful states, for each minute from ``start`` on.

    Raises:
        ValueError: If the states of these minutes were not kept completely.
    """
    window = recorded_window(recorder)
    if window is None or window.start > start * 60.0 or window.end < (start + minutes) * 60.0:
        raise ValueError(f"minutes {start} to {start + minutes} were not kept: raise run.max_segments or run.hours")
    found = {}
    for name, tracks in window.stays.items():
        useful = {state.value for state in POPULATIONS[name].states if state.info.useful}
        seconds = [0.0] * minutes
        for stay in (stay for track in tracks for stay in track if stay.state in useful):
            for minute in range(max(int(stay.start // 60.0), start), min(int(stay.end // 60.0) + 1, start + minutes)):
                seconds[minute - start] += min(stay.end, (minute + 1) * 60.0) - max(stay.start, minute * 60.0)
        found[name] = [round(total / 60.0 / len(tracks), 3) for total in seconds]
    return found


def _mean(shares: list[float]) -> float:
    return sum(shares) / len(shares)


def overview(figures: Figures) -> str:
    """Return both clusters side by side: desktops, engines and trainer, each as an area over two hours."""

    def paint(figure: Any) -> None:
        axes = figure.subplots(len(POPULATIONS), len(PRESETS), sharex=True, sharey=True, squeeze=False)
        for column, (preset, title) in enumerate(PRESETS.items()):
            run = figures["runs"][preset]
            axes[0][column].set_title(f"{title}: {run['trained_turns_per_minute']:.0f} trained turns a minute")
            axes[-1][column].set_xlabel("simulated minutes")
            for row, (name, info) in enumerate(POPULATIONS.items()):
                shares = run["working_shares"][name]
                panel = axes[row][column]
                panel.stairs(shares, range(len(shares) + 1), fill=True, color=info.at_work.info.color)
                panel.set_ylabel(info.title if column == 0 else "")
                panel.set_title(
                    f"{100.0 * _mean(shares):.0f} % at work", loc="right", fontsize=8, fontweight="normal", y=0.78
                )
                panel.set_yticks([0.0, 1.0], ["0 %", "100 %"])
                panel.set_xlim(0, len(shares))
                panel.set_ylim(0.0, 1.35)

    return figure_as_svg(paint, width=8.4, height=3.6)


STUDY = Experiment(
    name="timelines",
    about=str(__doc__),
    measure=measure,
    pictures={
        "overview": StudyPicture(
            "Share of desktops, engines and trainer at work over two hours, coupled and decoupled", overview
        )
    },
    seeds=1,
)

if __name__ == "__main__":
    STUDY.run()
