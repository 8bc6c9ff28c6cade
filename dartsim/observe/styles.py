"""How states and figures are shown: one name, one colour and one meaning each, on every page.

The colours keep apart for colour-blind readers (most are from Okabe and Ito's and Tol's palettes). What
belongs together is alike across populations: blue generates, green acts, purple trains, orange waits for
work, vermilion waits for weights, and grey is not provisioned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class StateStyle(NamedTuple):
    """How one state is shown."""

    label: str
    color: str
    meaning: str


POPULATIONS: Mapping[str, str] = {"desktops": "Desktops", "workers": "Workers", "trainer": "Trainer"}
"""What each population is called."""

STATES: Mapping[str, Mapping[str, StateStyle]] = {
    "desktops": {
        "starting": StateStyle("starting", "#aa4499", "the desktop boots"),
        "setup": StateStyle("setting up", "#cc79a7", "the task is being set up on it"),
        "generating": StateStyle("generating", "#0072b2", "waits for a reply while the inference pool serves"),
        "sync_wait": StateStyle(
            "weight sync",
            "#d55e00",
            "idle: waits for a reply while the whole pool is stopped to change weights",
        ),
        "turn_wait": StateStyle(
            "lock step", "#88ccee", "waits for the other desktops of a lock-step turn, between two of its own"
        ),
        "acting": StateStyle("acting", "#009e73", "carries out an action, until the next observation"),
        "evaluating": StateStyle("evaluating", "#8fbf4d", "scores the attempt"),
        "closing": StateStyle("closing", "#6e4b8b", "is torn down"),
        "wait_admission": StateStyle(
            "not admitted", "#e69f00", "idle: free, but the admission rule lets no further attempt start"
        ),
        "wait_unit": StateStyle(
            "unit unfinished", "#f2d94e", "idle: free, but other attempts of its task or batch still run"
        ),
        "wait_start": StateStyle("start failed", "#a05a2c", "idle: waits before it tries to start again"),
        "off": StateStyle("off", "#9aa5b1", "not provisioned: before the slot's start or after the run's end"),
        "ready": StateStyle("spare ready", "#44aa99", "idle: booted ahead, waits for a slot"),
    },
    "workers": {
        "idle": StateStyle("idle", "#e69f00", "up, without a request"),
        "busy": StateStyle("busy", "#0072b2", "up, with at least one live request"),
        "draining": StateStyle("draining", "#88ccee", "takes no new request and still has live ones"),
        "loading": StateStyle("loading weights", "#d55e00", "idle: its weights are being changed"),
        "down": StateStyle("down", "#882255", "idle: failed, waits for another try"),
        "off": StateStyle("off", "#9aa5b1", "before its start or after the run's end"),
    },
    "trainer": {
        "wait_data": StateStyle("waiting for data", "#e69f00", "idle: waits for a batch"),
        "training": StateStyle("training", "#7a5cc9", "runs an update"),
        "wait_sync": StateStyle("waiting for sync", "#d55e00", "idle: waits until workers have the new weights"),
        "down": StateStyle("down", "#882255", "idle: failed, waits for another try"),
        "off": StateStyle("off", "#9aa5b1", "before its start or after the run's end"),
        "wait_publish": StateStyle(
            "waiting to publish", "#f0a5a0", "idle: holds new weights back until the attempts that run have ended"
        ),
    },
}
"""The style of every state, by population and by the state's name in lower case."""

USEFUL: Mapping[str, frozenset[str]] = {
    "desktops": frozenset({"generating", "turn_wait", "acting"}),
    "workers": frozenset({"busy", "draining"}),
    "trainer": frozenset({"training"}),
}
"""States that count towards a population's utilization."""


class FigureStyle(NamedTuple):
    """How one figure is shown."""

    label: str
    unit: str
    decimals: int
    definition: str


FIGURES: Mapping[str, FigureStyle] = {
    "trained_turns_per_minute": FigureStyle(
        "Trained turns", "/min", 1, "Training throughput: distinct turns in finished updates, per minute."
    ),
    "signal_turns_per_minute": FigureStyle(
        "Trained with signal",
        "/min",
        1,
        "Trained turns of groups whose rewards differ: of others every advantage is 0.",
    ),
    "admitted_turns_per_minute": FigureStyle(
        "Admitted turns",
        "/min",
        1,
        "Turns in batches given to the trainer, less those that came back untrained.",
    ),
    "generated_turns_per_minute": FigureStyle(
        "Generated turns",
        "/min",
        1,
        "Turns the inference workers answered, whatever became of them, per minute.",
    ),
    "trajectories_per_minute": FigureStyle(
        "Trajectories", "/min", 2, "Attempts that ended, one way or another, per minute."
    ),
    "env_utilization": FigureStyle(
        "Environment utilization",
        "%",
        1,
        "Time between the first request and the last observation of attempts, less time waiting for an"
        " inference pool that is stopped for a weight sync, over provisioned environment time.",
    ),
    "gpu_utilization": FigureStyle(
        "GPU utilization (rollout)",
        "%",
        1,
        "Share of time with at least one live request (what nvidia-smi shows), mean over the workers.",
    ),
    "gpu_utilization_rollout_phase": FigureStyle(
        "GPU utilization while rolling out",
        "%",
        1,
        "The same, over the time in which at least one attempt is running.",
    ),
    "gpu_peak_share": FigureStyle(
        "Share of peak token rate", "%", 1, "Response tokens per second over the workers' largest rate."
    ),
    "prefix_hit_share": FigureStyle(
        "Prefix hits",
        "%",
        1,
        "Share of the prompt tokens that a worker found in its prefix cache, of those workers that say so.",
    ),
    "minutes_per_version": FigureStyle("Minutes per version", "min", 1, "Time per finished update."),
    "rollout_share": FigureStyle(
        "Time with rollout", "%", 1, "Share of time in which at least one attempt is running."
    ),
    "staleness_mean": FigureStyle(
        "Staleness, mean",
        "versions",
        2,
        "Weights trained on, less the oldest weights that generated the turn; mean over trained turns.",
    ),
    "staleness_max": FigureStyle(
        "Staleness, maximum",
        "versions",
        0,
        "Largest (weights trained on, less oldest weights that generated any part) of a trained trajectory.",
    ),
    "wasted_share": FigureStyle(
        "Generated, not trained", "%", 1, "Share of the generated turns that no finished update has trained."
    ),
    "turns_per_trajectory": FigureStyle("Turns per trajectory", "", 1, "Mean number of turns of an attempt."),
    "mean_reward": FigureStyle("Mean reward", "", 3, "Mean score of the attempts that have one, in [0, 1]."),
}
"""The style of every figure, by its name in ``summary.json``."""

RUN_COLORS = ("#8c97a8", "#4f5bd5", "#0f8b8d", "#c2416b", "#b7791f", "#5b8c2a")
"""Colours of runs that are compared; none of them is a state's."""


def figure_text(name: str, value: float | int | None, *, unit: bool = True) -> str:
    """Return a figure as it is read: shares as per cent, an unknown one as a dash."""
    number, measured_in = figure_parts(name, value)
    return f"{number}\u202f{measured_in}" if unit and measured_in else number


def figure_parts(name: str, value: float | int | None) -> tuple[str, str]:
    """Return a figure's number as it is read, and its unit; minutes below one in seconds, a dash for an unknown one."""
    style = FIGURES[name]
    if value is None:
        return "–", ""
    if style.unit == "min" and 0.0 < value < 1.0:  # with a small model, by the machine's clock
        return f"{60.0 * value:.3g}", "s"
    return f"{value * 100.0 if style.unit == '%' else value:,.{style.decimals}f}", style.unit
