"""A configuration's figures in closed form: to search without simulations, and to check simulated figures.

Interactive law: N desktops a worker that think for Z and are answered after R make N / (Z + R) turns a second; R grows
with the requests that the engine computes together. Little's law: what is in a state is the rate into it times the time
in it. Bottleneck law: see ``dartsim.lab.bounds``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

from dartsim.config import Config
from dartsim.core.registry import ComponentSection
from dartsim.lab.bounds import (
    TurnLoad,
    alone_seconds,
    around_seconds,
    core_seconds,
    desktop_bound,
    desktop_rate,
    desktop_seconds,
    driver_bound,
    engine_bound,
    sites,
    slot_seconds,
    trainer_bound,
    turn_load,
    waiting_seconds,
)
from dartsim.lab.trainable_share import tokens_per_turn, workload
from dartsim.run.prepare import PreparedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Figures in closed form.

    Attributes:
        trained_turns_per_minute: The smaller of the trainer's rate and the usable generated rate.
        generated_turns_per_minute: Of desktops and engines together.
        turns_per_trajectory: Mean.
        turns_per_update: With full batches.
        usable_share: Trainable share of the generated turns.
        minutes_per_version: Of an update, or of collecting its batch.
        desktop_cores: Share of the hosts' cores that the desktops use.
        bounds: Trained turns per minute that each component alone allows, by the bottleneck law.
        unknown: Rules of the scheduler that the laws do not know; with any, all figures but ``bounds`` are rough.
    """

    trained_turns_per_minute: float
    generated_turns_per_minute: float
    turns_per_trajectory: float
    turns_per_update: float
    usable_share: float
    minutes_per_version: float
    desktop_cores: float
    bounds: Mapping[str, float]
    unknown: tuple[str, ...] = ()

    @property
    def bound_by(self) -> str:
        """The component with the lowest bound."""
        return min(self.bounds, key=lambda name: self.bounds[name])


KEEPS_SESSIONS = {"least_in_flight": False, "round_robin": True, "group_round_robin": True, "session_affine": True}
"""Whether a session's next request goes to the engine of its last one, by router."""

KNOWN = {
    "rollout.routing": set(KEEPS_SESSIONS),
    "curation.admission": {"bounds", "cache_use"},
    "curation.attempts": {"fixed", "by_success"},
    "curation.batch": {"ready", "started", "weights", "in_order"},
    "curation.turn_limit": {"fixed", "by_success"},
    "policy.agent": {"drawn"},
}
"""Rules that the laws know, by the table that chooses one."""


def unknown_rules(config: Config) -> tuple[str, ...]:
    """Return the rules of a configuration's scheduler that the laws do not know, each as ``key = name``."""
    chosen = {f"{section}.{name}": value.rule for section, name, value in _chosen(config)}
    return tuple(f"{key}.rule = {chosen[key]}" for key, known in KNOWN.items() if chosen[key] not in known)


def _chosen(config: Config) -> Iterator[tuple[str, str, ComponentSection]]:
    for section in ("rollout", "curation", "policy"):
        for name, value in getattr(config, section):
            if isinstance(value, ComponentSection):
                yield section, name, value


def predict(prepared: PreparedRun) -> Prediction:
    """Return the closed-form figures of a configuration."""
    config = prepared.config
    prediction = _predicted(prepared, 0.0)
    for _ in range(2):  # what is left of the tasks depends on how many groups a run makes, and that on what is left
        turn_rate = prediction.generated_turns_per_minute
        if _bounded(config) and prediction.usable_share:
            turn_rate = min(turn_rate, prediction.bounds["trainer"] / prediction.usable_share)
        turns = prediction.turns_per_trajectory * config.curation.attempts.group_size
        prediction = _predicted(prepared, turn_rate * 60.0 * config.run.hours / turns)
    return prediction


def _predicted(prepared: PreparedRun, groups: float) -> Prediction:
    """Return the closed-form figures of a run with this number of groups."""
    config = prepared.config
    turns, usable = workload(prepared, groups)
    size = config.curation.batch.max_groups * config.curation.attempts.group_size * turns
    trainer = trainer_bound(prepared, size, tokens_per_turn(prepared))
    generated, cores, trained = 0.0, 0.0, trainer
    version_seconds = 60.0 * size / trainer
    for _ in range(3):  # the time of a version decides how much of their time workers change weights, and so on
        generated, cores = generated_turns(prepared, turns, version_seconds)
        trained = min(trainer, generated * usable)
        if one_batch_at_a_time(config):
            trained = 60.0 * size / _serial_seconds(prepared, size, trainer, generated * usable)
        version_seconds = 60.0 * size / max(trained, 1e-9)
    return Prediction(
        trained_turns_per_minute=trained,
        generated_turns_per_minute=generated,
        turns_per_trajectory=turns,
        turns_per_update=size,
        usable_share=usable,
        minutes_per_version=version_seconds / 60.0,
        desktop_cores=cores,
        bounds={
            "trainer": trainer,
            "desktops": usable * desktop_bound(prepared, turns),
            "engines": usable * engine_bound(prepared, turns),
            **({"driver": usable * driver_bound(prepared)} if config.cluster.engine.control_seconds else {}),
        },
        unknown=unknown_rules(config),
    )


def one_batch_at_a_time(config: Config) -> bool:
    """Return whether each batch starts after the previous one is published, so that nothing overlaps."""
    curation = config.curation
    batch, ahead = curation.batch.max_groups * curation.attempts.group_size, curation.admission.ahead_batches
    few = curation.max_ahead is not None and curation.max_ahead <= batch
    return few or (ahead is not None and ahead <= 1.0)


def _serial_seconds(prepared: PreparedRun, size: float, trainer: float, usable_rate: float) -> float:
    """Return the seconds of a version whose batch is generated, then trained, then loaded."""
    loading = sync_seconds(prepared) if prepared.config.trainer.wait_for_sync else 0.0
    making = 60.0 * size / max(usable_rate, 1e-9)
    return making + 60.0 * size / trainer + loading


def _bounded(config: Config) -> bool:
    """Return whether admission limits generation to what the trainer takes."""
    bounds = config.curation.admission
    counts = (bounds.ahead_batches, bounds.open_batches, bounds.ready_batches, bounds.waiting_batches)
    return config.curation.max_ahead is not None or any(count is not None for count in counts)


def generated_turns(prepared: PreparedRun, turns: float, version_seconds: float) -> tuple[float, float]:
    """Return the turns per minute by the interactive law, and the share of the hosts' cores that desktops use."""
    config = prepared.config
    rollout, settings = config.rollout, config.cluster.hosts
    up = max(0.05, 1.0 - out_seconds(prepared) / max(version_seconds, 1e-9))
    workers = rollout.num_workers * up
    slots = rollout.num_envs / rollout.num_desktops  # spares start no attempt
    places = sites(prepared)
    warm, cold = (turn_load(prepared, turns, warm=state) for state in (config.cluster.engine.prefix_cache, False))
    live, rate, answer, on_slots = 1.0, 0.0, 0.0, 0.0
    for _ in range(60):  # requests in an engine, by Little's law, until they agree with themselves
        answer = _answer_seconds(prepared, warm, cold, live, rate)
        on_slots = sum(slots * number / slot_seconds(prepared, turns, answer, cores) for cores, _, number in places)
        # Damped: where prefills fill an engine, answers and rate would alternate between two values.
        rate = 0.5 * rate + 0.5 * min(on_slots, desktop_rate(prepared, places, turns, answer)) / workers
        live = 0.5 * live + 0.5 * max(1.0, rate * answer)
    wanted = sum(number / desktop_seconds(prepared, turns, answer, cores) for cores, _, number in places)
    there = settings.cores * (settings.count - settings.slow_count) + settings.slow_cores * settings.slow_count
    return 60.0 * workers * rate, min(wanted, on_slots) * core_seconds(prepared, turns) / there


LEAST_LEFT = 0.05
"""Smallest share of an engine's time that others' prefills leave to a turn; it keeps the iteration stable."""


def out_seconds(prepared: PreparedRun) -> float:
    """Return how long a slice of workers is out of service for a weight sync, seconds."""
    engine = prepared.config.cluster.engine
    if not prepared.config.rollout.sync.sync_mode.restarts_engine and engine.transfer_seconds is not None:
        return engine.transfer_seconds
    return engine.reload_seconds


def sync_seconds(prepared: PreparedRun) -> float:
    """Return the mean time from a publication until a worker has the new weights, seconds."""
    rollout = prepared.config.rollout
    slice_size = rollout.num_workers if rollout.sync.workers_at_a_time == "all" else rollout.sync.workers_at_a_time
    slices = ceil(rollout.num_workers / slice_size)
    return out_seconds(prepared) * (slices + 1) / 2.0


def _answer_seconds(prepared: PreparedRun, warm: TurnLoad, cold: TurnLoad, live: float, rate: float) -> float:
    """Return the time of a turn on a shared engine, seconds.

    Prefills precede decoding, so that a turn has the engine only while no other desktop's prompt is computed: its own
    work over the share of time that those leave (a closed queueing network).
    """
    engine, gpu, rollout = prepared.config.cluster.engine, prepared.gpu, prepared.config.rollout
    if engine.model != "fluid":
        return live * engine.request_seconds + engine.batch_seconds
    affine = KEEPS_SESSIONS.get(rollout.routing.rule, True)  # of an unknown router, the most that it could reach
    share = 1.0 if affine else 1.0 / rollout.num_workers  # turns on the worker of the previous one
    prefill = share * _prefill(prepared, warm) + (1.0 - share) * _prefill(prepared, cold)
    together = max(1, min(round(live), gpu.max_num_seqs))
    decode = warm.reply * gpu.iteration_seconds(together, kv_tokens=together * warm.context)
    desktops = max(1.0, rollout.num_envs / rollout.num_workers)
    others = rate * (desktops - 1.0) / desktops
    return (prefill + decode) / max(LEAST_LEFT, 1.0 - others * prefill)


def _prefill(prepared: PreparedRun, load: TurnLoad) -> float:
    gpu = prepared.gpu
    return float(
        load.prefill * gpu.linear_slope_seconds
        + load.pairs * gpu.prefill_pair_seconds
        + load.images * gpu.image_seconds
    )


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """A simulated figure and its closed form."""

    figure: str
    law: str
    simulated: float | None
    low: float
    high: float
    alarm: str


SLACK = 0.02
"""Tolerance above a bound: rounding, and a window that cuts an attempt."""
REACHED = 0.7
"""Share of the bottleneck's bound that a system without avoidable waiting reaches."""
CHANCE = 0.15
"""Tolerance above a bound with an expected usable share: a run draws only a few groups."""
FAR = 0.25
"""Relative error of an estimate that raises an alarm."""


def checks(prepared: PreparedRun, figures: Mapping[str, Any]) -> list[BoundCheck]:
    """Check a run's figures against the closed forms."""
    said = predict(prepared)
    turns = figures["turns_per_trajectory"] or said.turns_per_trajectory
    rows = [_trained(prepared, said, figures)] if figures.get("bounds") else []
    most = min(desktop_bound(prepared, turns), engine_bound(prepared, turns), driver_bound(prepared))
    generated = figures["generated_turns_per_minute"]
    rows.append(_below("generated turns/min", "bottleneck: desktops, engines, driver", generated, most))
    shares, size = figures["desktop_shares"], prepared.config.rollout.num_desktops
    if generated and figures["trajectories_per_minute"]:
        acting = 60.0 * shares["acting"] * size / generated
        rows.append(_near("seconds an action", "Little: desktops acting / rate", acting, prepared.timing.step.mean))
        states = ("starting", "setup", "evaluating", "closing")
        around = 60.0 * sum(shares[name] for name in states) * size / figures["trajectories_per_minute"]
        wanted = around_seconds(prepared) + waiting_seconds(prepared, 60.0 * size / figures["trajectories_per_minute"])
        rows.append(_near("seconds around an attempt", "Little: the same", around, wanted))
    rows.append(_stale(prepared, figures, turns))
    if not said.unknown:
        return rows
    law = f"unknown: {', '.join(said.unknown)}"
    of_rules = ("trained turns/min", "mean staleness, versions")
    return [replace(row, law=law, low=0.0, high=inf, alarm="") if row.figure in of_rules else row for row in rows]


def _trained(prepared: PreparedRun, said: Prediction, figures: Mapping[str, Any]) -> BoundCheck:
    """Check trained turns against the lowest bound, with the usable share of what desktops and engines generate.

    They must also not be far below it, or below the serial rate where batches do not overlap.
    """
    usable = said.usable_share
    rate = figures.get("steady_turns_per_minute") or figures["trained_turns_per_minute"]
    bounds = {part: value * (1.0 if part == "trainer" else usable) for part, value in figures["bounds"].items()}
    part = min(bounds, key=lambda name: bounds[name])
    words, slack = (part, SLACK) if part == "trainer" else (f"{part}, {usable:.0%} of turns usable", CHANCE)
    least, law = bounds[part], f"bottleneck: {words}"
    if one_batch_at_a_time(prepared.config):
        least, law = min(least, said.trained_turns_per_minute), f"{law}; one batch at a time"
    return _below("trained turns/min", law, rate, bounds[part], least=REACHED * least, slack=slack)


def _below(
    figure: str, law: str, value: float, bound: float, *, least: float = 0.0, slack: float = SLACK
) -> BoundCheck:
    alarm = ""
    if value > bound * (1.0 + slack):
        alarm = f"{value / bound - 1:.0%} above what the law allows"
    elif value < least:
        alarm = f"{1 - value / bound:.0%} below the bound, which leaves out all waiting"
    return BoundCheck(figure, law, value, least, bound, alarm)


def _near(figure: str, law: str, value: float, wanted: float) -> BoundCheck:
    low, high = wanted * (1.0 - FAR), wanted * (1.0 + FAR)
    off = value / wanted - 1.0 if wanted > 0.0 else 0.0
    return BoundCheck(figure, law, value, low, high, f"{off:+.0%} off the profile" if abs(off) > FAR else "")


def _stale(prepared: PreparedRun, figures: Mapping[str, Any], turns: float) -> BoundCheck:
    """Check the mean staleness against two bounds.

    Lower: a turn is trained after the end of its attempt, on average half an attempt later. Upper: the staleness bound;
    and by Little's law, where admission limits the batches in progress, one batch less (its own update), plus the delay
    of the weight sync.
    """
    curation = prepared.config.curation
    minutes = figures.get("minutes_per_version")
    seconds = turns * (
        prepared.timing.step.mean + prepared.config.cluster.engine.overhead_seconds + alone_seconds(prepared, turns)
    )
    version_seconds = 60.0 * (minutes or 0.0) * prepared.config.trainer.publish_every
    low = seconds / 2.0 / version_seconds if minutes else 0.0
    tops = [] if curation.staleness.max_staleness is None else [float(curation.staleness.max_staleness)]
    if curation.admission.ahead_batches is not None and minutes:
        lag = sync_seconds(prepared) / version_seconds
        tops.append(max(0.0, curation.admission.ahead_batches - 1.0) + low + lag)
    high = min(tops, default=float("inf"))
    low = 0.0 if one_batch_at_a_time(prepared.config) else min(low, high)  # no update while its attempts run
    value = figures["staleness_mean"]
    alarm = ""
    if figures["trained_turns_per_minute"] and not low * (1.0 - FAR) <= value <= high * (1.0 + SLACK) + 1e-9:
        alarm = "outside of what the laws allow"
    return BoundCheck("mean staleness, versions", "Little: half an attempt; admission", value, low, high, alarm)
