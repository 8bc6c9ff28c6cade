"""The gain from removing a cause of idle time: the same run without it, simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.jobs import Job, outcomes
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import changed

NO_STARTS = {"cluster.env.latency.start": 0.0, "cluster.env.latency.boot": 0.0}
NO_NETWORK = {"cluster.engine.overhead_seconds": 0.0, "cluster.engine.control_seconds": 0.0}
MANY = 1_000_000

REMOVED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "generating": (
        "engines that answer at once, and no network to them",
        {
            **NO_NETWORK,
            "cluster.engine.model": "batch",
            "cluster.engine.batch_seconds": 0.0,
            "cluster.engine.request_seconds": 1e-6,
            "cluster.engine.max_batch": MANY,
        },
    ),
    "network": ("no time between desktops and engines", NO_NETWORK),
    "acting": ("actions that take no time", {"cluster.env.latency.step": 0.0}),
    "starting": ("boots that take no time", NO_STARTS),
    "closing": ("tear-downs that take no time", {"cluster.env.latency.teardown": 0.0}),
    "setting up": (
        "set-ups that take no time",
        {"cluster.env.latency.setup": 0.0, "cluster.env.latency.settle_seconds": 0.0},
    ),
    "evaluating": (
        "scores that take no time",
        {"cluster.env.latency.evaluate": 0.0, "cluster.env.latency.evaluate_settle_seconds": 0.0},
    ),
    "lockstep": ("turns not in lockstep", {"rollout.lockstep": False}),
    "unit unfinished": ("slots that wait for no other attempt", {"rollout.unit": "rollout"}),
    "not admitted": (
        "no limit to what is admitted",
        {
            "curation.max_ahead": None,
            **{f"curation.admission.{name}_batches": None for name in ("ahead", "open", "ready", "waiting")},
        },
    ),
    "training": (
        "updates that take no time",
        {"cluster.learner.fixed_seconds": 0.0, "cluster.learner.kilotoken_seconds": 0.0},
    ),
    "weight sync": (
        "weight syncs that take no time",
        {
            "cluster.engine.reload_seconds": 0.0,
            "cluster.engine.transfer_seconds": 0.0,
            "rollout.sync.resume_seconds": 0.0,
        },
    ),
    "waiting to publish": ("weights published at once", {"trainer.publish_wait": "nothing"}),
    "start failed": ("no failed start of a desktop", {"cluster.faults.kinds.start_failed.share": 0.0}),
    "down": (
        "no faults of engines and trainer, nor any of the named profile",
        {
            "cluster.faults.kinds.load_failed.share": 0.0,
            "cluster.faults.kinds.update_failed.share": 0.0,
            "cluster.faults.kinds.trainer_outage.per_hour": 0.0,
            "cluster.faults.profile": "none",
        },
    ),
    "host contention": (
        "hosts with cores and start slots for all",
        {"cluster.hosts.cores": float(MANY), "cluster.hosts.concurrent_starts": MANY, "cluster.hosts.slow_count": 0},
    ),
}
"""The removal of each cause, in words and as settings; host contention slows starts and actions."""

HIDDEN = ("training", "host contention")
"""Always removed too: a component that is never idle may be the bottleneck, and contention is not a state."""

FIGURES = ("trained_turns_per_minute", "generated_turns_per_minute", "env_utilization", "gpu_utilization")


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain from removing one cause."""

    cause: str
    removed: str
    figures: Mapping[str, float]
    gain: float | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Gains:
    """Figures of a run as it is, and the gain from removing each cause, the largest first."""

    base: Mapping[str, float]
    gains: tuple[Gain, ...]


def gains(config: Config, causes: Sequence[str], seeds: tuple[int, ...], executor: Executor) -> Gains:
    """Simulate a configuration as it is and without each of some causes.

    Args:
        config: As ``as_virtual`` returns it.
        causes: Keys of ``REMOVED``; others are ignored, and those of ``HIDDEN`` are added.
        seeds: Of each simulation.
        executor: Runs the simulations.

    Raises:
        DartsimError: If a simulation failed.
    """
    jobs = [Job(name="as it is", config=config, seeds=seeds)]
    known: list[str] = []
    refused: list[Gain] = []
    for cause in dict.fromkeys((*causes, *HIDDEN)):
        if cause not in REMOVED:
            continue
        words, settings = REMOVED[cause]
        if cause == "not admitted" and config.trainer.publish_wait == "batch":
            settings = {**settings, "trainer.publish_wait": "nothing"}  # without a limit no batch completes by itself
        try:
            jobs.append(Job(name=f"without {cause}", config=changed(config, settings), seeds=seeds))
            known.append(cause)
        except ConfigError as error:
            refused.append(Gain(cause, words, {}, None, str(error)))
    first, *others = outcomes(executor, jobs)
    base = _shown(first.figures)
    simulated = [_gain(cause, base, _shown(outcome.figures)) for cause, outcome in zip(known, others, strict=True)]
    simulated.sort(key=lambda gain: -(gain.gain or 0.0))
    return Gains(base, (*simulated, *refused))


def _gain(cause: str, base: Mapping[str, float], without: Mapping[str, float]) -> Gain:
    rate, reference = without["trained_turns_per_minute"], base["trained_turns_per_minute"]
    return Gain(cause, REMOVED[cause][0], without, rate / reference - 1.0 if reference else None)


def _shown(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the compared figures, with the steady trained rate where there is one."""
    shown = {name: float(figures[name]) for name in FIGURES}
    if figures.get("steady_turns_per_minute"):
        shown["trained_turns_per_minute"] = float(figures["steady_turns_per_minute"])
    return shown
