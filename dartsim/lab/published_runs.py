"""The figures of a row of a table by simulation: the scheduler's own control plane over a cluster from data sheets."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any, Literal

from dartsim.config import Config, load
from dartsim.core.errors import ConfigError, DartsimError
from dartsim.lab.published import Setup
from dartsim.lab.roofline import call_seconds, engine_settings, switch_seconds, sync_seconds, update_settings
from dartsim.lab.virtual import with_settings
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.latency import Capped, Lognormal
from dartsim.sim.learner import UpdateParts

FEWEST_ATTEMPTS, FEWEST_AWAITED = 256, 2_048
"""Attempts of a batch below which a row is not simulated at smaller scale; and attempts between two publications, if
all of them are awaited: the longest of many is longer than that of few."""
ATTEMPTS = 2_000
"""Attempts of a simulation, a third of a second."""
SHORTER = 0.8
"""Share of the longest reply up to which a mean is taken as it is; beyond, it approaches 0.95 smoothly."""

Figures = dict[str, float]


def simulate(setup: Setup, parameters: Mapping[str, float], seed: int) -> Figures:
    """Return the figures of a row, seconds, for values of the unknown parameters.

    Raises:
        ConfigError: If the row's settings contradict each other.
        DartsimError: If nothing was trained.
    """
    if setup.kind == "sync":
        return {"sync_seconds": _sync_seconds(setup, parameters)}
    if setup.kind == "update":
        seconds = _update_seconds(setup, parameters)
        return {"update_seconds": seconds, "step_seconds": seconds}
    config = run_config(setup, parameters, seed)
    cycle = _cycle(setup)
    result = run_prepared(prepare(config))
    times = [record.time for record in result.recorder.updates]
    if len(times) <= cycle:
        raise DartsimError(
            f"row {setup.name!r} trained nothing: {result.figures['failure'] or 'its time was too short'}"
        )
    skipped = cycle if len(times) < 6 * cycle else 2 * cycle
    step = (times[-1] - times[skipped - 1]) / (len(times) - skipped) * setup.scheduler.updates_per_step
    shares = result.figures["trainer_shares"]
    return {
        "step_seconds": step,
        "update_seconds": shares["training"] * step,
        "wait_seconds": (shares["wait_data"] + shares["lent"] + shares["wait_publish"]) * step,
        "sync_seconds": shares["wait_sync"] * step,
    }


def run_config(setup: Setup, parameters: Mapping[str, float], seed: int) -> Config:
    """Return the configuration that simulates a row, at a scale at which engines have as many requests.

    Raises:
        ConfigError: If the numbers of GPUs do not fit together.
    """
    load_, training, rules = setup.workload, setup.training, setup.scheduler
    engines, ranks = _parts(setup, _engine_gpus(setup), "engine_gpus"), _parts(setup, _trainer_gpus(setup), "rank_gpus")
    scale = _scale(setup, engines, ranks)
    groups, attempts = load_.groups // scale, load_.groups // scale * load_.group_size
    coupled = rules.preset == "coupled"
    ahead = 1.0 if coupled else rules.ahead or float(rules.publish_every)
    admitted = round(ahead * attempts)
    slots = min(admitted, rules.concurrency // scale if rules.concurrency else admitted)
    sync = _sync_seconds(setup, parameters)
    base = load(rules.preset, on="math")
    changes: dict[str, Any] = {
        "run.seed": seed,
        "run.hours": 1e5,
        "run.updates": _updates(setup, attempts),
        "run.max_segments": 0,
        "curation.store": "memory",
        "tasks.count": max(256, groups),
        "rollout.num_envs": max(1, slots),
        "rollout.num_workers": engines // scale,
        "rollout.lockstep": False,
        "rollout.max_turns": 1 if load_.turns == 1 else 2 * load_.turns,
        "rollout.limits.request_seconds": 1e6,
        "rollout.limits.lease_seconds": 1e7,
        "rollout.limits.step_seconds": 1e5,
        "rollout.limits.load_seconds": 1e5,
        "curation.attempts.group_size": load_.group_size,
        "curation.batch.min_groups": groups,
        "curation.batch.max_groups": groups,
        "curation.groups.min_size": 1,
        "curation.admission.ahead_batches": ahead,
        **{f"curation.groups.{rule}": False for rule in ("drop_all_failed", "drop_solved", "drop_equal")},
        "trainer.publish_every": rules.publish_every,
        "trainer.optimizer.minibatches": training.minibatches,
        "trainer.optimizer.max_tokens": training.max_tokens,
        "cluster.env.latency": {**base.cluster.env.latency, "step": load_.turn_seconds},
        "cluster.hosts.concurrent_starts": 100_000,
        "cluster.engine.roofline": _engine(setup, parameters),
        "cluster.engine.prompt": "text" if load_.turns == 1 else "dialog",
        "cluster.engine.prompt_tokens": load_.prompt_tokens,
        "cluster.engine.reply_tokens": reply_lengths(setup),
        "cluster.engine.longest_reply_tokens": load_.longest,
        "cluster.engine.transfer_seconds": sync,
        "cluster.engine.reload_seconds": sync,
        **{f"cluster.learner.{key}": value for key, value in _update(setup, parameters, ranks, scale).items()},
        "cluster.learner.fixed_seconds": _fixed_seconds(setup, parameters),
    }
    if base.rollout.lending.engines:
        switch = _switch_seconds(setup, parameters)
        changes |= {
            "rollout.lending.engines": _parts(setup, _trainer_gpus(setup), "engine_gpus") // scale,
            "cluster.engine.lend_seconds": _path_seconds(setup, parameters, "ipc") + switch / 2.0,
            "cluster.engine.release_seconds": switch / 2.0,
        }
    if load_.turns > 1:
        for outcome in ("success", "failure"):
            changes[f"surrogate.{outcome}_turns_mean"] = float(load_.turns)
            changes[f"surrogate.{outcome}_turns_sd"] = 0.5 * load_.turns
    return with_settings(base, changes)


def reply_lengths(setup: Setup) -> dict[str, Any]:
    """Return the lognormal whose mean, once replies are cut at the longest, is the row's mean reply."""
    spread, longest = setup.workload.reply_spread, setup.workload.longest
    wanted = setup.reply_tokens
    if wanted > SHORTER * longest:  # a fit may try any mean, and its slope must not end
        wanted = longest * (SHORTER + 0.15 * (1.0 - exp((SHORTER - wanted / longest) / 0.15)))
    low, high = wanted, 100.0 * wanted
    for _ in range(40):
        middle = (low * high) ** 0.5
        shorter = Capped(Lognormal(middle, spread * middle), float(longest)).mean < wanted
        low, high = (middle, high) if shorter else (low, middle)
    return {"kind": "lognormal", "mean_seconds": high, "sd_seconds": spread * high}


def _engine_gpus(setup: Setup) -> int:
    return setup.machines.colocated or setup.machines.rollout or 0


def _trainer_gpus(setup: Setup) -> int:
    return setup.machines.colocated or setup.machines.trainer or 0


def _parts(setup: Setup, gpus: int, key: str) -> int:
    each = getattr(setup.machines, key)
    if gpus % each:
        raise ConfigError(f"row {setup.name!r}: {gpus} GPUs cannot be shared by {each} (machines.{key})")
    return int(gpus // each)


def _scale(setup: Setup, engines: int, ranks: int) -> int:
    """Return the divisor of engines, ranks and batch at which a row is simulated."""
    load_, rules = setup.workload, setup.scheduler
    attempts = load_.groups * load_.group_size
    awaited = rules.preset == "coupled" or (rules.ahead or rules.publish_every) <= rules.publish_every
    for scale in (8, 4, 2):
        enough = attempts // scale >= FEWEST_ATTEMPTS
        if awaited:
            enough = enough and attempts * rules.publish_every // scale >= FEWEST_AWAITED
        if enough and not (engines % scale or ranks % scale or load_.groups % (scale * setup.training.minibatches)):
            return scale
    return 1


def _cycle(setup: Setup) -> int:
    """Return the updates after which a row's schedule repeats."""
    return max(setup.scheduler.publish_every, setup.scheduler.updates_per_step)


def _updates(setup: Setup, attempts: int) -> int:
    cycle = _cycle(setup)
    return cycle * min(12, max(2 if cycle > 2 else 3, round(ATTEMPTS / (attempts * cycle))))


def _engine(setup: Setup, parameters: Mapping[str, float]) -> dict[str, Any]:
    machines = setup.machines
    return engine_settings(
        setup.sheet,
        setup.model.size,
        gpus=machines.engine_gpus,
        efficiency=parameters["engine_efficiency"],
        node_gpus=machines.node_gpus,
        weight_bytes=setup.model.weight_bytes,
        memory_share=setup.scheduler.engine_memory,
        max_num_seqs=setup.scheduler.max_num_seqs,
    )


def _update(setup: Setup, parameters: Mapping[str, float], ranks: int, scale: int) -> dict[str, Any]:
    training = setup.training
    found = update_settings(
        setup.sheet,
        setup.model.size,
        gpus=_trainer_gpus(setup),
        ranks=ranks,
        efficiency=parameters["update_efficiency"],
        step_cost=parameters["step_cost"],
        node_gpus=setup.machines.node_gpus,
        **training.model_dump(exclude={"minibatches", "max_tokens", "offloads", "padded"}),
    )
    return {**found, "copies": scale}


def _update_seconds(setup: Setup, parameters: Mapping[str, float]) -> float:
    ranks = _parts(setup, _trainer_gpus(setup), "rank_gpus")
    found = _update(setup, parameters, ranks, 1)
    parts = UpdateParts(
        ranks=ranks,
        gpus=_trainer_gpus(setup),
        minibatches=setup.training.minibatches,
        max_tokens=setup.training.max_tokens,
        step_seconds=found["step_seconds"],
        micro_seconds=found["micro_seconds"],
        stages=found["stages"],
        token_seconds=found["kilotoken_seconds"] * ranks / 1000.0,
        pair_seconds=found["pair_seconds"],
    )
    length = setup.workload.prompt_tokens + round(setup.reply_tokens)
    return parts.seconds([length] * (setup.workload.groups * setup.workload.group_size))


def _sync_seconds(setup: Setup, parameters: Mapping[str, float]) -> float:
    return _path_seconds(setup, parameters, "ipc" if setup.machines.colocated else setup.scheduler.sync_path)


def _fixed_seconds(setup: Setup, parameters: Mapping[str, float]) -> float:
    """Return what an update takes besides computing: its calls, and the trainer's weights if they leave for engines."""
    load_, training = setup.workload, setup.training
    calls = call_seconds(
        load_.groups * load_.group_size,
        calls=1 + training.forwards,
        padded=training.padded or 0,
        cost=parameters["call_cost"],
    )
    return calls + (_switch_seconds(setup, parameters) if setup.machines.colocated else 0.0)


def _path_seconds(
    setup: Setup, parameters: Mapping[str, float], path: Literal["nccl", "packed", "files", "ipc"]
) -> float:
    gpus = _trainer_gpus(setup)
    return sync_seconds(
        setup.model.size,
        path,
        gpu=setup.sheet,
        inside=gpus + (setup.machines.rollout or 0) <= setup.machines.node_gpus,
        gpus=gpus,
        offloads=setup.training.offloads,
        cost=parameters["sync_cost"],
    )


def _switch_seconds(setup: Setup, parameters: Mapping[str, float]) -> float:
    """Return how long GPUs take from the trainer to engines and back."""
    machines, training, gpus = setup.machines, setup.training, _trainer_gpus(setup)
    if training.backend == "fsdp":
        weight_gpus = moment_gpus = min(training.shard_gpus or gpus, gpus)
    else:
        weight_gpus, moment_gpus = max(machines.rank_gpus, training.stages * training.expert_gpus), gpus
    return switch_seconds(
        setup.model.size, weight_gpus=weight_gpus, moment_gpus=moment_gpus, cost=parameters["switch_cost"]
    )
