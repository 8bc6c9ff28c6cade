"""The figures of a run: name, meaning and style of each, and its computation from two snapshots.

Every figure is measured between the first snapshot after the warm-up and the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dartsim.observe.states import POPULATIONS, EngineState, PhaseState

if TYPE_CHECKING:
    from dartsim.observe.recorder import Recorder
    from dartsim.observe.records import Snapshot, UpdateRecord

T = TypeVar("T")


class FigureStyle(NamedTuple):
    """How one figure is shown."""

    label: str
    unit: str
    decimals: int
    definition: str

    @property
    def scale(self) -> float:
        """Factor of its value for display."""
        return 100.0 if self.unit == "%" else 1.0


FIGURES: Mapping[str, FigureStyle] = {
    "trained_turns_per_minute": FigureStyle(
        "Trained turns", "/min", 1, "Training throughput: distinct turns in finished updates."
    ),
    "signal_turns_per_minute": FigureStyle(
        "Trained with signal",
        "/min",
        1,
        "Trained turns of groups whose rewards differ. In other groups every advantage is 0.",
    ),
    "admitted_turns_per_minute": FigureStyle(
        "Admitted turns", "/min", 1, "Turns in batches leased to the trainer, less those it gave back untrained."
    ),
    "generated_turns_per_minute": FigureStyle(
        "Generated turns", "/min", 1, "Turns that engines answered, trained on or not."
    ),
    "trajectories_per_minute": FigureStyle("Trajectories", "/min", 2, "Attempts that ended, masked ones included."),
    "env_utilization": FigureStyle(
        "Environment utilization",
        "%",
        1,
        "Time between the first request and the last observation of attempts, less waiting for engines that are all"
        " stopped for a weight sync, over provisioned desktop time.",
    ),
    "gpu_utilization": FigureStyle(
        "GPU utilization (rollout)",
        "%",
        1,
        "Share of time with at least one live request (what nvidia-smi shows), mean over engines; of lent "
        "ones, while they are lent.",
    ),
    "gpu_utilization_rollout_phase": FigureStyle(
        "GPU utilization while rolling out", "%", 1, "The same, over the time in which at least one attempt runs."
    ),
    "gpu_peak_share": FigureStyle(
        "Share of peak token rate", "%", 1, "Response tokens per second, over the largest rate of the engines."
    ),
    "trainer_utilization": FigureStyle("Trainer utilization", "%", 1, "Share of time in which the trainer updates."),
    "prefix_hit_share": FigureStyle(
        "Prefix hits",
        "%",
        1,
        "Share of prompt tokens found in an engine's prefix cache; unknown if no engine reports it.",
    ),
    "tokens_per_trained_turn": FigureStyle(
        "Tokens per trained turn",
        "",
        0,
        "Tokens that updates compute, over trained turns; fewer if turns share a sequence (trainer.optimizer.pack).",
    ),
    "minutes_per_version": FigureStyle("Time per version", "min", 1, "Time per finished update."),
    "rollout_share": FigureStyle("Time with rollout", "%", 1, "Share of time in which at least one attempt runs."),
    "staleness_mean": FigureStyle(
        "Staleness, mean",
        "versions",
        2,
        "Version trained on, less the oldest version that generated the turn; mean over trained turns.",
    ),
    "staleness_max": FigureStyle(
        "Staleness, maximum",
        "versions",
        0,
        "Version trained on, less the oldest version that generated a part of the trajectory; maximum.",
    ),
    "wasted_share": FigureStyle(
        "Generated, not trained",
        "%",
        1,
        "1 - trained / generated turns; none if updates trained more than was generated (before the warm-up).",
    ),
    "turns_per_trajectory": FigureStyle("Turns per trajectory", "", 1, "Mean number of turns of an attempt."),
    "mean_reward": FigureStyle("Mean reward", "", 3, "Mean score of the attempts that have one, in [0, 1]."),
}
"""The style of every figure, by its name in ``summary.json``."""


def figure_text(name: str, value: float | int | None) -> str:
    """Return a figure as text: shares as percentages, minutes below one in seconds, an unknown one as a dash."""
    style = FIGURES[name]
    if value is None:
        return "–"
    if style.unit == "min" and 0.0 < value < 1.0:  # small models in real time
        return f"{60.0 * value:.3g}\u202fs"
    number = f"{value * style.scale:,.{style.decimals}f}"
    return f"{number}\u202f{style.unit}" if style.unit else number


def after_warmup(snapshots: Sequence[Snapshot], warmup_share: float) -> Snapshot:
    """Return the first snapshot after ``warmup_share`` of the run."""
    start = warmup_share * snapshots[-1].time
    return next(snapshot for snapshot in snapshots if snapshot.time >= start)


def shares(first: Sequence[float], last: Sequence[float]) -> list[float]:
    """Return each state's share of the time between two snapshots; they add up to 1."""
    spent = [b - a for a, b in zip(first, last, strict=True)]
    total = sum(spent)
    return [seconds / total if total > 0 else 0.0 for seconds in spent]


def figures(first: Snapshot, last: Snapshot, *, peak_tokens_per_second: float | None = None) -> dict[str, Any]:
    """Return the figures of the time between two snapshots.

    Rates are per minute, shares from 0 to 1.

    Args:
        first: The start of the measured time.
        last: Its end, later than ``first``.
        peak_tokens_per_second: Largest total response-token rate of all engines, if known.

    Source: ``docs/reference.md`` has the definitions.
    """
    minutes = (last.time - first.time) / 60.0

    def count(name: str) -> float:
        return last.counts.get(name, 0) - first.counts.get(name, 0)

    def per_minute(name: str) -> float:
        return count(name) / minutes if minutes > 0 else 0.0

    spent = {name: shares(getattr(first, name), getattr(last, name)) for name in POPULATIONS}
    used = {
        name: sum(spent[name][state] for state in info.states if state.info.useful)
        for name, info in POPULATIONS.items()
    }
    there = 1.0 - spent["engines"][EngineState.OFF]  # the others' GPUs are the trainer's
    used["engines"] = used["engines"] / there if there > 0.0 else 0.0
    phase = shares(first.phase, last.phase)
    rollout_share = phase[PhaseState.ROLLOUT]
    trajectories, updates, generated = count("trajectories"), count("updates"), count("generated_turns")
    trained = count("trained_turns")
    tokens, looked_up = per_minute("response_tokens") / 60.0, count("looked_up_tokens")
    return {
        "minutes": minutes,
        "trained_turns_per_minute": per_minute("trained_turns"),
        "signal_turns_per_minute": per_minute("signal_turns"),
        "admitted_turns_per_minute": per_minute("admitted_turns"),
        "generated_turns_per_minute": per_minute("generated_turns"),
        "trajectories_per_minute": per_minute("trajectories"),
        "tokens_per_trained_turn": count("computed_tokens") / trained if trained else None,
        "minutes_per_version": minutes / updates if updates else None,
        "num_updates": int(updates),
        "env_utilization": used["desktops"],
        "gpu_utilization": used["engines"],
        "gpu_utilization_rollout_phase": used["engines"] / rollout_share if rollout_share > 0 else 0.0,
        "trainer_utilization": used["trainer"],
        "gpu_peak_share": tokens / peak_tokens_per_second if peak_tokens_per_second else None,
        "prefix_hit_share": count("cached_tokens") / looked_up if looked_up else None,
        "rollout_share": rollout_share,
        "turns_per_trajectory": count("trajectory_turns") / trajectories if trajectories else None,
        "mean_reward": mean_reward(first, last),
        "wasted_share": 1.0 - trained / generated if generated and trained <= generated else None,
        **{info.shares: {state.key: spent[name][state] for state in info.states} for name, info in POPULATIONS.items()},
    }


def staleness(recorder: Recorder) -> dict[str, Any]:
    """Return the staleness of all trained turns: mean, maximum and distribution, in versions."""
    by_oldest: dict[int, int] = {}
    for (oldest, _), num_turns in recorder.staleness.items():
        by_oldest[oldest] = by_oldest.get(oldest, 0) + num_turns
    total = sum(by_oldest.values())
    return {
        "staleness_mean": sum(k * n for k, n in by_oldest.items()) / total if total else 0.0,
        "staleness_max": recorder.staleness_max,
        "staleness_histogram": {str(k): by_oldest[k] for k in sorted(by_oldest)},
    }


def staleness_definitions(counts: Mapping[tuple[int, int], int]) -> dict[str, dict[str, float]]:
    """Return mean and maximum staleness of trained trajectories by each system's definition, in versions.

    With *s* the version that is trained, *a* the oldest and *z* the newest that generated part of it: ``oldest`` s - a
    (ours; verl's worst, prime-rl's total), ``newest`` s - z (DART's released code), ``age`` s - a + 1 (verl), ``spans``
    z - a + 1 (verl), ``in_flight`` min(s - a, z - a) and ``in_queue``, the rest of s - a (prime-rl).

    Args:
        counts: Trajectories by (s - a, s - z).
    """
    total = sum(counts.values())
    definitions: Mapping[str, Callable[[int, int], int]] = {
        "oldest": lambda oldest, newest: oldest,
        "newest": lambda oldest, newest: newest,
        "age": lambda oldest, newest: oldest + 1,
        "spans": lambda oldest, newest: oldest - newest + 1,
        "in_flight": lambda oldest, newest: min(oldest, oldest - newest),
        "in_queue": lambda oldest, newest: oldest - min(oldest, oldest - newest),
    }
    by_definition = {}
    for name, value in definitions.items():
        values = [(value(*versions), times) for versions, times in counts.items()]
        mean = sum(number * times for number, times in values) / total if total else 0.0
        by_definition[name] = {"mean": mean, "max": float(max((number for number, _ in values), default=0))}
    return by_definition


def mean_reward(first: Snapshot, last: Snapshot) -> float | None:
    """Return the mean reward of the attempts that ended between two snapshots; None if none has one."""
    rewarded = last.counts.get("rewarded", 0) - first.counts.get("rewarded", 0)
    return (last.counts.get("reward", 0) - first.counts.get("reward", 0)) / rewarded if rewarded else None


def success_rates(snapshots: Sequence[Snapshot]) -> dict[str, float | None]:
    """Return the mean reward of attempts in the first and in the last fifth of the run."""
    early = after_warmup(snapshots, 0.2)
    late = next((s for s in reversed(snapshots) if s.time <= 0.8 * snapshots[-1].time), snapshots[0])
    return {
        "success_rate_initial": mean_reward(snapshots[0], early),
        "success_rate_final": mean_reward(late, snapshots[-1]),
    }


def counts_by_suffix(last: Snapshot, prefix: str) -> Mapping[str, int]:
    """Return the counts whose names start with ``prefix/``, without the prefix."""
    start = prefix + "/"
    return {name[len(start) :]: int(n) for name, n in sorted(last.counts.items()) if name.startswith(start)}


def summary(recorder: Recorder, *, warmup_share: float, peak_tokens_per_second: float | None = None) -> dict[str, Any]:
    """Return all figures of a closed recorder, as written to ``summary.json``."""
    last = recorder.snapshots[-1]
    first = after_warmup(recorder.snapshots, warmup_share)
    if first.time >= last.time:
        first = recorder.snapshots[0]
    return {
        "simulated_hours": last.time / 3600.0,
        "warmup_hours": first.time / 3600.0,
        **figures(first, last, peak_tokens_per_second=peak_tokens_per_second),
        # None if the end of the run canceled every attempt.
        **({} if set(counts_by_suffix(last, "ending")) - {"cancelled"} else {"trajectories_per_minute": None}),
        "steady_turns_per_minute": steady_turns_per_minute(recorder.updates, first.time),
        **staleness(recorder),
        "staleness_definitions": staleness_definitions(recorder.staleness_trajectories),
        **success_rates(recorder.snapshots),
        "attempts": int(last.counts.get("attempts", 0)),
        "endings": counts_by_suffix(last, "ending"),
        "dropped": counts_by_suffix(last, "dropped"),
        "causes": counts_by_suffix(last, "cause"),
        "start_causes": counts_by_suffix(last, "start_cause"),
        "fault_reasons": dict(recorder.fault_reasons),
        "faults": counts_by_suffix(last, "fault"),
        "reverts": counts_by_suffix(last, "revert"),
        "spares": counts_by_suffix(last, "warm"),
        "trained_trajectories": int(last.counts.get("trained_trajectories", 0)),
        "total_updates": int(last.counts.get("updates", 0)),
        "alarms": [alarm.as_json() for alarm in recorder.alarms],
        **({"scorers": scorers} if (scorers := counts_by_suffix(last, "scorer")) else {}),
    }


def steady_turns_per_minute(updates: Iterable[UpdateRecord], start: float) -> float | None:
    """Return the trained turns per minute between two finished updates, so that no update counts partially.

    Args:
        updates: Finished updates, in order.
        start: Time before which updates do not count, seconds; the first later update only starts the clock.

    Returns:
        The rate; None with fewer than two updates.
    """
    counted = [update for update in updates if update.time >= start]
    minutes = (counted[-1].time - counted[0].time) / 60.0 if counted else 0.0
    return sum(update.num_turns for update in counted[1:]) / minutes if minutes > 0.0 else None


RATES = (
    "generated_turns_per_minute",
    "admitted_turns_per_minute",
    "trained_turns_per_minute",
    "trajectories_per_minute",
)
UTILIZATIONS = ("env_utilization", "gpu_utilization")
MAX_UPDATES = 1000


def intervals(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return each figure as a column with one value for each interval between two snapshots."""
    pairs = [(first, last) for first, last in pairwise(snapshots) if last.time > first.time]
    rows = [figures(first, last) for first, last in pairs]

    def column(name: str) -> list[float]:
        return [round(row[name], 6) for row in rows]

    def states(key: str) -> dict[str, list[float]]:
        names = rows[0][key] if rows else {}
        return {name: [round(row[key][name], 6) for row in rows] for name in names}

    return {
        "from_hours": [round(first.time / 3600.0, 6) for first, _ in pairs],
        "to_hours": [round(last.time / 3600.0, 6) for _, last in pairs],
        "rates": {name: column(name) for name in RATES},
        "utilization": {name: column(name) for name in UTILIZATIONS},
        "shares": {name: states(info.shares) for name, info in POPULATIONS.items()},
    }


def thinned(values: Sequence[T], most: int) -> Sequence[T]:
    """Return at most ``most`` values, an even selection that includes the last one."""
    step = -(-len(values) // most) or 1
    return values[::-step][::-1]


def by_label(counts: Mapping[str, Mapping[str, float]], labels: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Sum counts by task into counts by label (a domain, a decile of success), sorted by label.

    Args:
        counts: Counters by task, by name: ``{"offered": recorder.offered, "trained": recorder.trained}``.
        labels: The label of each task's id; tasks without one are left out.
    """
    sums: dict[str, dict[str, float]] = {label: dict.fromkeys(counts, 0) for label in sorted(set(labels.values()))}
    for name, by_task in counts.items():
        for task, number in by_task.items():
            if task in labels:
                sums[labels[task]][name] += number
    return sums
