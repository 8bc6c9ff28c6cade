"""Upper bounds on the trained turns of a run: of a trainer that never waits, and of engines that are always full.

Both ignore all waiting. The engines' bound counts only turns whose group has a signal, in the share measured in the
run. A window that starts in the middle of an update counts all of its turns, so in a short run the simulated figure may
exceed the trainer's bound by up to one update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, inf
from statistics import fmean
from typing import Any

from dartsim.core.types import Drop
from dartsim.observe.figures import after_warmup
from dartsim.observe.records import Snapshot
from dartsim.run.prepared_run import PreparedRun
from dartsim.sim.gpu import GpuProfile
from dartsim.sim.latency import Capped, from_spec

NO_SIGNAL = (Drop.ALL_FAILED, Drop.ALL_SOLVED, Drop.NO_SIGNAL)
"""Reasons for dropping a group on which no scheduler could have trained."""


def bounds(prepared: PreparedRun, figures: Mapping[str, Any], snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return the bounds on trained turns per minute; None for a run with real components or without an update.

    Turns and tokens per update and turns per trajectory are measured in the run.
    """
    num_updates, turns, backend = figures["num_updates"], figures["turns_per_trajectory"], prepared.config.backend
    if {backend.desktops, backend.workers, backend.learner} != {"sim"} or not num_updates or not turns:
        return {"bound_trained_turns_per_minute": None, "bound_by": None}
    per_update = figures["trained_turns_per_minute"] * figures["minutes"] / num_updates
    warm = after_warmup(snapshots, prepared.config.run.warmup_share)
    by_part = {
        "trainer": trainer_bound(prepared, per_update, figures["tokens_per_trained_turn"] or 0.0),
        "engines": usable_share(warm, snapshots[-1]) * engine_bound(prepared, turns),
    }
    part = min(by_part, key=lambda name: by_part[name])
    return {"bound_trained_turns_per_minute": by_part[part], "bound_by": part, "bounds": by_part}


def usable_share(first: Snapshot, last: Snapshot) -> float:
    """Return the share of the turns generated between two snapshots that was not dropped for lack of a signal."""

    def count(name: str) -> float:
        return last.counts.get(name, 0) - first.counts.get(name, 0)

    dropped = sum(count(f"dropped_turns/{reason}") for reason in NO_SIGNAL)
    return max(0.0, 1.0 - dropped / count("generated_turns")) if count("generated_turns") else 1.0


def trainer_bound(prepared: PreparedRun, turns_per_update: float, tokens_per_turn: float) -> float:
    """Return the turns per minute of a trainer that never waits; infinite if an update takes no time."""
    learner = prepared.config.cluster.learner
    seconds = learner.fixed_seconds + learner.kilotoken_seconds * turns_per_update * tokens_per_turn / 1000.0
    return 60.0 * turns_per_update / seconds if seconds > 0.0 else inf


def engine_bound(prepared: PreparedRun, turns_per_trajectory: float) -> float:
    """Return the turns per minute of engines, lent ones too, that are always full and never load weights."""
    config, engine = prepared.config, prepared.config.cluster.engine
    most = max(1, ceil(config.rollout.num_envs / config.rollout.num_workers))
    if engine.model == "fluid":
        seconds = least_seconds(prepared, turns_per_trajectory, most)
    else:
        most = min(most, engine.max_batch) if engine.model == "batch" else most
        seconds = engine.request_seconds + engine.batch_seconds / most
    return 60.0 * config.rollout.num_engines / seconds if seconds > 0.0 else inf


def least_seconds(prepared: PreparedRun, turns_per_trajectory: float, most: int) -> float:
    """Return the minimum engine time of the mean turn, seconds, with at most ``most`` requests computed together.

    The linear layers of an iteration of T tokens cost at least a + bT, for every line below their profile; a turn has
    as many iterations as its reply has tokens, shared by at most as many sequences as fit. The largest of these lower
    bounds counts.
    """
    gpu, engine = prepared.gpu, prepared.config.cluster.engine
    table = prepared.prompts.warm
    prompts = table[: max(1, min(round(turns_per_trajectory), len(table)))]
    new = [prompt.tokens - prompt.cached_tokens for prompt in prompts]
    prefill, images = fmean(new), fmean(prompt.images for prompt in prompts)
    pairs = fmean(count * (prompt.cached_tokens + count / 2.0) for count, prompt in zip(new, prompts, strict=True))
    reply = float(prepared.prompts.reply_tokens)
    if engine.reply_tokens is not None:
        reply = max(1.0, Capped(from_spec(engine.reply_tokens), engine.longest_reply_tokens).mean)
    context = fmean(prompt.tokens for prompt in prompts) + reply / 2.0
    fits = max(1, min(gpu.max_num_seqs, int(gpu.kv_capacity_tokens // (context + reply / 2.0)), most))
    share = reply / fits  # iterations for this turn alone
    linear = max(a * share + b * (prefill + reply) for a, b in _lines_below(gpu))
    return (
        linear
        + share * (gpu.head_seconds + gpu.fixed_seconds)
        + reply * (context * gpu.kv_seconds + gpu.sequence_seconds)
        + pairs * gpu.prefill_pair_seconds
        + images * gpu.image_seconds
    )


def _lines_below(gpu: GpuProfile) -> list[tuple[float, float]]:
    """Return (a, b) with a + b T <= the linear layers' time of T tokens, for every T >= 1, and a >= 0."""
    points = gpu.linear
    slopes = {0.0, *((high - low) / (n - m) for (m, low), (n, high) in pairwise(points))}
    # After its last point the profile continues with its own slope, which limits the lines' slopes.
    limited = sorted(slope for slope in slopes if slope <= gpu.linear_slope_seconds)
    lines = [(min(seconds - slope * tokens for tokens, seconds in points), slope) for slope in limited]
    return [(start, slope) for start, slope in lines if start >= 0.0]
