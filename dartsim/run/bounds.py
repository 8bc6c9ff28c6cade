"""Closed-form bounds on what a configuration can train: the bottleneck law, beside every simulated figure.

Nothing can train faster than its trainer, nor than its desktops produce, nor than its engines answer; each bound leaves
out all waiting. A measured window that begins in the middle of an update counts all of its turns when it ends, so in a
short run the simulated figure may lie above the trainer's bound by up to one update's turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from statistics import fmean
from typing import Any

from dartsim.run.models import Models
from dartsim.sim.gpu import GpuProfile


def bounds(found: Models, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds on trained turns per minute.

    The mean turns of an update and of a trajectory are taken from the run.

    Args:
        found: The configuration and what it names.
        figures: The run's figures.
    """
    num_updates, turns = figures["num_updates"], figures["turns_per_trajectory"]
    if not num_updates or not turns:
        return {"bound_trained_turns_per_minute": None, "bound_by": None}
    by_part = {
        "trainer": trainer_bound(found, figures["trained_turns_per_minute"] * figures["minutes"] / num_updates),
        "desktops": desktop_bound(found, turns),
        "engines": engine_bound(found, turns),
    }
    part = min(by_part, key=lambda name: by_part[name])
    return {
        "bound_trained_turns_per_minute": by_part[part],
        "bound_by": part,
        "bounds": {name: value for name, value in by_part.items() if value < inf},
    }


def trainer_bound(found: Models, turns_per_update: float) -> float:
    """Return the turns a minute of a trainer that never waits; infinite if an update takes no time."""
    learner = found.config.cluster.learner
    seconds = learner.fixed_seconds + learner.turn_seconds * turns_per_update
    return 60.0 * turns_per_update / seconds if seconds > 0.0 else inf


def desktop_bound(found: Models, turns_per_trajectory: float) -> float:
    """Return the turns a minute of desktops whose every request is answered by an engine of its own.

    The engine's part of a turn is a decode of the mean reply alone, or a batch of one; prefill, queues and syncs are
    left out. With spare desktops a slot does not wait for a boot or a tear-down.
    """
    engine, rollout = found.config.cluster.engine, found.config.rollout
    turn_seconds = found.timing.step.mean + engine.overhead_seconds + engine.control_seconds + alone_seconds(found)
    cycle_seconds = found.timing.cycle_seconds
    if rollout.warm_envs and found.timing.fresh_per_attempt:
        timing = found.timing
        cycle_seconds -= timing.start.mean + timing.boot.mean + timing.teardown.mean
    attempt_seconds = cycle_seconds + turns_per_trajectory * turn_seconds
    return 60.0 * rollout.num_envs * turns_per_trajectory / attempt_seconds if attempt_seconds > 0.0 else inf


def alone_seconds(found: Models) -> float:
    """Return how long an engine needs at least for the mean reply to one request alone, seconds."""
    engine = found.config.cluster.engine
    if engine.model != "fluid":
        return engine.batch_seconds + engine.request_seconds
    return found.prompts.reply_tokens * found.gpu.iteration_seconds(1)


def engine_bound(found: Models, turns_per_trajectory: float) -> float:
    """Return the turns a minute of engines that are always full and never change weights."""
    config = found.config
    workers, slots = config.rollout.num_workers, config.rollout.num_envs
    most = max(1, ceil(slots / workers))
    engine = config.cluster.engine
    if engine.model == "fluid":
        load = turn_load(found, turns_per_trajectory, warm=engine.prefix_cache)
        seconds = least_seconds(found.gpu, load, most)
    else:
        most = min(most, engine.max_batch) if engine.model == "batch" else most
        seconds = engine.request_seconds + engine.batch_seconds / most
    return 60.0 * workers / seconds if seconds > 0.0 else inf


@dataclass(frozen=True, slots=True)
class TurnLoad:
    """What the mean turn asks of an engine.

    Attributes:
        prefill: Prompt tokens that are computed.
        images: Screenshots that are encoded.
        context: Tokens of the prompt, and half of the reply.
        pairs: (query, key) pairs of the prompt tokens that are computed.
        reply: Tokens of the reply.
    """

    prefill: float
    images: float
    context: float
    pairs: float
    reply: float


def turn_load(found: Models, turns_per_trajectory: float, *, warm: bool) -> TurnLoad:
    """Return the mean over the turns of a trajectory of mean length.

    Args:
        found: The configuration and what it names.
        turns_per_trajectory: Its length.
        warm: Whether every turn meets an engine that still holds the turn before.
    """
    table = found.prompts.warm if warm else found.prompts.cold
    prompts = table[: max(1, min(round(turns_per_trajectory), len(table)))]
    new = [prompt.tokens - prompt.cached_tokens for prompt in prompts]
    reply = float(found.prompts.reply_tokens)
    return TurnLoad(
        prefill=fmean(new),
        images=fmean(prompt.images for prompt in prompts),
        context=fmean(prompt.tokens for prompt in prompts) + reply / 2.0,
        pairs=fmean(count * (prompt.cached_tokens + count / 2.0) for count, prompt in zip(new, prompts, strict=True)),
        reply=reply,
    )


def least_seconds(gpu: GpuProfile, load: TurnLoad, most: int) -> float:
    """Return the least engine time of a turn, seconds, when at most ``most`` requests are computed together.

    Linear layers of an iteration of T tokens cost at least a + bT, for every straight line below their profile; a turn
    takes ``reply`` iterations, shared by at most as many sequences as fit. The largest of these lower bounds counts.
    """
    fits = max(1, min(gpu.max_num_seqs, int(gpu.kv_capacity_tokens // (load.context + load.reply / 2.0)), most))
    share = load.reply / fits  # iterations that are this turn's own
    linear = max(a * share + b * (load.prefill + load.reply) for a, b in _lines_below(gpu))
    return (
        linear
        + share * (gpu.head_seconds + gpu.fixed_seconds)
        + load.reply * (load.context * gpu.kv_seconds + gpu.sequence_seconds)
        + load.pairs * gpu.prefill_pair_seconds
        + load.images * gpu.image_seconds
    )


def _lines_below(gpu: GpuProfile) -> list[tuple[float, float]]:
    """Return (a, b) with a + b T <= the linear layers' time of T tokens, for every T >= 1, and a >= 0."""
    points = gpu.linear
    slopes = {0.0, *((high - low) / (n - m) for (m, low), (n, high) in pairwise(points))}
    lines = []
    for slope in sorted(slope for slope in slopes if slope <= gpu.linear_slope_seconds):
        start = min(seconds - slope * tokens for tokens, seconds in points)
        if start >= 0.0:
            lines.append((start, slope))
    # Past the last point the profile goes on with its own slope, so no line above that slope is allowed.
    return lines
