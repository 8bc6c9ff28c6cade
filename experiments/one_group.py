"""The picture of docs/concepts.md: one group of attempts on a small cluster, from its admission to the weight sync.

python -m experiments.one_group            two simulated hours of eight desktops, two engines and a trainer: 2 seconds
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override

import dartsim
from dartsim.core.types import Trajectory
from dartsim.observe.recorder import Instrument, Recorder
from dartsim.observe.states import POPULATIONS, DesktopState
from dartsim.observe.timeline import Stay, recorded_window
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments.charts import GRAY, boxes, figure_as_svg
from experiments.study import Experiment, Figures, Options, StudyPicture

SETTINGS: dict[str, Any] = {
    "run.hours": 2.0,
    "rollout.num_envs": 8,
    "rollout.num_workers": 2,
    "rollout.max_turns": 12,
    "rollout.sync.workers_at_a_time": 1,
    "curation.attempts": {"rule": "fixed", "group_size": 4},
    "curation.turn_limit": {"rule": "fixed"},
    "curation.batch.min_groups": 2,
    "curation.batch.max_groups": 2,
    "cluster.engine.reload_seconds": 60.0,
    "cluster.learner.fixed_seconds": 60.0,
    "cluster.learner.kilotoken_seconds": 0.08,
}
"""A cluster small enough that single turns can be seen; all else is the preset `dart`."""

SEED, UPDATE = 0, 3
"""Of the run; and the update whose newest group is followed."""

IDLE = ("idle", "wait_data")
"""States of engines and trainer that are drawn pale."""

BEFORE, AFTER = 30.0, 170.0
"""Seconds shown before the group's first attempt and after its update."""


class Attempts(Instrument):
    """Keeps every ended attempt."""

    def __init__(self) -> None:
        self.ended: list[Trajectory] = []

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        self.ended.append(trajectory)


def measure(options: Options) -> Figures:
    """Simulate the cluster, and return the states of its components around one group."""
    config = dartsim.load("dart", overrides={**SETTINGS, "run.seed": SEED})
    attempts = Attempts()
    recorder = run_simulation(prepare(config), instruments=[attempts]).recorder
    return {"config": {"preset": "dart", "seed": SEED, **SETTINGS}, **followed(recorder, attempts.ended)}


def followed(recorder: Recorder, ended: list[Trajectory]) -> Figures:
    """Return the newest group of a batch, with the states of all components around it; times in seconds."""
    batch = next(batch for batch in recorder.batches if batch.update == UPDATE)
    newest = max(trajectory.attempt.group for trajectory in ended if trajectory.attempt.id in batch.attempts)
    group = [trajectory for trajectory in ended if trajectory.attempt.group == newest]
    desktop_of = {attempt: desktop for desktop, _, attempt, *_ in recorder.requests or ()}
    window = recorded_window(recorder)
    if window is None or batch.trained is None:
        raise ValueError(f"update {UPDATE} was not recorded; wanted a run that finishes it")
    start, end = min(trajectory.started for trajectory in group) - BEFORE, batch.trained + AFTER
    followed_slots = {desktop_of[trajectory.attempt.id] for trajectory in group}
    stays = {
        name: [
            _shown(name, track, start, end, merge=name == "desktops" and index not in followed_slots)
            for index, track in enumerate(tracks)
        ]
        for name, tracks in window.stays.items()
    }
    return {
        "seconds": round(end - start, 1),
        "leased": round(batch.leased - start, 1),
        "trained": round(batch.trained - start, 1),
        "attempts": [
            {
                "desktop": desktop_of[trajectory.attempt.id],
                "admitted": round(trajectory.started - start, 1),
                "ended": round(trajectory.finished - start, 1),
                "num_turns": len(trajectory.turns),
                "reward": trajectory.reward,
                "oldest_version": trajectory.oldest_version,
                "newest_version": trajectory.newest_version,
            }
            for trajectory in group
        ],
        "stays": stays,
    }


def _shown(name: str, track: list[Stay], start: float, end: float, *, merge: bool) -> list[list[Any]]:
    """Return [state, start, end] of each stay that is shown, seconds from ``start``.

    Args:
        name: The population.
        track: Stays of one component.
        start: Begin of what is shown.
        end: Its end.
        merge: Whether turns are one stay: requests and actions that are drawn pale need not be told apart.
    """
    shown: list[list[Any]] = []
    for stay in track:
        state = POPULATIONS[name].states(stay.state)
        if merge and state == DesktopState.GENERATING:
            state = DesktopState.ACTING
        if stay.end <= start or stay.start >= end:
            continue
        if shown and shown[-1][0] == state.key:
            shown[-1][2] = round(stay.end - start, 1)
        else:
            shown.append([state.key, round(stay.start - start, 1), round(stay.end - start, 1)])
    return shown


def timeline(figures: Figures) -> str:
    """Return every component as a row over time, with the followed group in full color."""
    rows = [(name, index) for name in figures["stays"] for index in range(len(figures["stays"][name]))]
    rows.sort(key=lambda row: (list(POPULATIONS).index(row[0]), row[1]))

    def paint(figure: Any) -> None:
        from matplotlib.patches import Patch

        axes = figure.subplots()
        legend: dict[str, Any] = {}
        bars: dict[tuple[str, float], list[tuple[float, ...]]] = {}
        for y, (name, index) in enumerate(rows):
            for state, start, end in figures["stays"][name][index]:
                info = POPULATIONS[name].states[state.upper()].info
                full = _followed(figures, index, start, end) if name == "desktops" else state not in IDLE
                bars.setdefault((info.color, 1.0 if full else 0.2), []).append((start, y - 0.4, end - start, 0.8))
                if full and state != "busy":
                    legend.setdefault(info.label, info.color)
        for (color, alpha), spans in bars.items():
            boxes(axes, spans, color, alpha=alpha)
        first = min(attempt["admitted"] for attempt in figures["attempts"])
        marks = ((first, "first attempt\nadmitted"), (figures["leased"], "group complete,\nbatch leased"))
        for x, text in (*marks, (figures["trained"], f"version {UPDATE}\npublished")):
            axes.axvline(x, color=GRAY, linestyle=":", linewidth=1.0)
            axes.annotate(text, (x, 1.0), (2, 3), xycoords=("data", "axes fraction"), textcoords="offset points")
        axes.set_yticks(range(len(rows)), [label(*row) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False)
        axes.set_xlim(0.0, figures["seconds"])
        axes.set_xlabel("simulated seconds")
        patches = [Patch(color=color, label=name) for name, color in legend.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=5, frameon=False)

    return figure_as_svg(paint, width=8.4, height=4.2)


def _followed(figures: Figures, desktop: int, start: float, end: float) -> bool:
    """Whether a desktop is with an attempt of the followed group."""
    return any(
        attempt["desktop"] == desktop and attempt["admitted"] <= start and end <= attempt["ended"] + 0.1
        for attempt in figures["attempts"]
    )


def label(population: str, index: int) -> str:
    """Return the name of a row."""
    return "trainer" if population == "trainer" else f"{POPULATIONS[population].member} {index}"


STUDY = Experiment(
    name="one_group",
    about=str(__doc__),
    measure=measure,
    pictures={
        "one-group": StudyPicture("One group on eight desktops, its update, and the weight sync that follows", timeline)
    },
    seeds=1,
)

if __name__ == "__main__":
    STUDY.run()
