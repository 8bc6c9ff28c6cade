"""Closed-form bounds on the trained turns of a configuration: the bottleneck law.

No run trains faster than its trainer, its desktops or its engines allow; each bound ignores all waiting. A measured
window that starts in the middle of an update counts all of its turns, so that in a short run the simulated figure may
exceed the trainer's bound by up to one update.

A mean over a run is too loose where the bottleneck moves. In the first pass over the tasks about half of the groups
have no signal, and desktops are the bottleneck; later the task filter skips those, and the trainer is. So the law is
applied over time: with S(s) the usable turns that desktops and engines can generate by s, and m turns per minute of the
trainer, at most S(s) + m (T - s) are trained by T, for every s (Reich's formula for a queue).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dartsim.core.types import Drop
from dartsim.observe.figures import after_warmup
from dartsim.observe.records import Snapshot
from dartsim.run.prepare import PreparedRun, hosts
from dartsim.sim import SimEnvironment
from dartsim.sim.gpu import GpuProfile
from dartsim.sim.host import place
from dartsim.sim.latency import from_spec


def bounds(prepared: PreparedRun, figures: Mapping[str, Any], snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return the bounds on trained turns per minute; None for a run with real components.

    The mean turns and tokens of an update, the turns of a trajectory and the dropped turns are those of the run.
    ``bounds`` are those of each component alone, in its own turns; that of all is ``supply_bound``.
    """
    num_updates, turns = figures["num_updates"], figures["turns_per_trajectory"]
    backend = prepared.config.backend
    modeled = {backend.desktops, backend.workers, backend.learner} == {"sim"}
    if not modeled or not num_updates or not turns:
        return {"bound_trained_turns_per_minute": None, "bound_by": None}
    by_part = {
        "trainer": trainer_bound(
            prepared,
            figures["trained_turns_per_minute"] * figures["minutes"] / num_updates,
            figures["tokens_per_trained_turn"] or 0.0,
        ),
        "desktops": desktop_bound(prepared, turns),
        "engines": engine_bound(prepared, turns),
        "driver": driver_bound(prepared),
    }
    bound = supply_bound(by_part, snapshots, prepared.config.run.warmup_share)
    made_by = min(("desktops", "engines", "driver"), key=lambda name: by_part[name])
    return {
        "bound_trained_turns_per_minute": bound,
        "bound_by": "trainer" if bound >= by_part["trainer"] else made_by,
        "bounds": {name: value for name, value in by_part.items() if value < inf},
    }


def trainer_bound(prepared: PreparedRun, turns_per_update: float, tokens_per_turn: float) -> float:
    """Return the turns per minute of a trainer that never waits; infinite if an update takes no time."""
    learner = prepared.config.cluster.learner
    seconds = learner.fixed_seconds + learner.kilotoken_seconds * turns_per_update * tokens_per_turn / 1000.0
    return 60.0 * turns_per_update / seconds if seconds > 0.0 else inf


def driver_bound(prepared: PreparedRun) -> float:
    """Return the turns per minute of the event loop around desktops and engines; infinite if it takes no time."""
    seconds = prepared.config.cluster.engine.control_seconds
    return 60.0 / seconds if seconds > 0.0 else inf


def desktop_bound(prepared: PreparedRun, turns_per_trajectory: float) -> float:
    """Return the turns per minute of desktops that each have an engine of their own.

    A reply takes the engine's minimum time (``alone_seconds``), without queues and syncs. Spare desktops boot and close
    outside of the slots, but each attempt still has a boot. A host's cores limit its turns.
    """
    answer = alone_seconds(prepared, turns_per_trajectory)
    places = sites(prepared)
    rate = desktop_rate(prepared, places, turns_per_trajectory, answer)
    fastest = slot_seconds(prepared, turns_per_trajectory, answer, max(cores for cores, _, _ in places))
    return 60.0 * min(rate, prepared.config.rollout.num_envs / fastest) if fastest > 0.0 else inf


def desktop_rate(prepared: PreparedRun, places: Sequence[Site], turns: float, answer_seconds: float) -> float:
    """Return the turns per second of all desktops, which wait for nothing but their replies."""
    seconds, rate = core_seconds(prepared, turns), 0.0
    for cores, num_hosts, num_desktops in places:
        cycle = desktop_seconds(prepared, turns, answer_seconds, cores)
        most = num_hosts * cores / seconds if seconds > 0.0 else inf
        rate += min(num_desktops / cycle if cycle > 0.0 else inf, most)
    return rate


def desktop_seconds(prepared: PreparedRun, turns: float, answer_seconds: float, cores: float) -> float:
    """Return the seconds of a desktop for each turn, with its part of boot, set-up, evaluation and tear-down."""
    timing, preparing = prepared.timing, Preparing.of(prepared)
    slow_boot, slow_step = (max(1.0, wanted / cores) for wanted in (timing.boot_cores, timing.step_cores))
    around = around_seconds(prepared) + (slow_boot - 1.0) * (preparing.boot + preparing.setup)
    around += (slow_step - 1.0) * timing.evaluate.mean
    engine = prepared.config.cluster.engine
    transport = engine.overhead_seconds + engine.control_seconds
    return slow_step * timing.step.mean + transport + answer_seconds + around / turns


def slot_seconds(prepared: PreparedRun, turns: float, answer_seconds: float, cores: float) -> float:
    """Return the seconds of a slot for each turn: ``desktop_seconds`` without what spares do ahead."""
    seconds, timing = desktop_seconds(prepared, turns, answer_seconds, cores), prepared.timing
    if not prepared.config.rollout.warm_envs:
        return seconds
    slow_boot = max(1.0, timing.boot_cores / cores)
    ahead = slow_boot * (timing.start.mean + timing.boot.mean) + timing.teardown.mean
    if prepared.config.desktop.revert == "fork":
        ahead += slow_boot * timing.setup.mean + timing.settle_seconds
    return seconds - ahead / turns


class Preparing(NamedTuple):
    """The mean seconds of an attempt in which its desktop gets ready for it, and is torn down after it."""

    boot: float
    """Of the boot, or of the return to a saved state."""
    setup: float
    """Of its part of a set-up, saving the state included; without fixed sleeps."""
    settle: float
    """Of its part of the fixed sleep after a set-up."""
    teardown: float

    @classmethod
    def of(cls, prepared: PreparedRun) -> Preparing:
        """Return those of a configuration; forks wait for nobody, and a task's state is saved once for each group."""
        timing, config = prepared.timing, prepared.config
        revert = config.desktop.revert if config.backend.desktop_backend.reverts(config) else "boot"
        if revert == "boot":
            boot = timing.start.mean + timing.boot.mean
            return cls(boot, timing.setup.mean, timing.settle_seconds, timing.teardown.mean)
        if revert == "snapshot":
            return cls(timing.restore.mean, timing.setup.mean, timing.settle_seconds, 0.0)
        part = 1.0 / config.curation.attempts.group_size
        setup = part * (timing.setup.mean + timing.save.mean)
        return cls(timing.restore.mean, setup, part * timing.settle_seconds, 0.0)


def around_seconds(prepared: PreparedRun) -> float:
    """Return the mean seconds of an attempt outside of its turns."""
    timing = prepared.timing
    return sum(Preparing.of(prepared)) + timing.evaluate_settle_seconds + timing.evaluate.mean


def waiting_seconds(prepared: PreparedRun, cycle_seconds: float) -> float:
    """Return the mean seconds that an attempt waits while another desktop of its host sets up the state for its fork.

    The attempts of a group begin one after the other on a host, as its desktops become free.

    Args:
        prepared: The run.
        cycle_seconds: Time from an attempt's beginning to the next one's on the same desktop.
    """
    config = prepared.config
    if config.desktop.revert != "fork" or not config.backend.desktop_backend.reverts(config):
        return 0.0
    timing, group_size = prepared.timing, prepared.config.curation.attempts.group_size
    gap = cycle_seconds * sum(site.num_hosts for site in sites(prepared)) / prepared.config.rollout.num_envs
    ready = timing.restore.mean + timing.setup.mean + timing.settle_seconds + timing.save.mean
    return sum(max(0.0, ready - number * gap) for number in range(1, group_size)) / group_size


def core_seconds(prepared: PreparedRun, turns: float) -> float:
    """Return the core-seconds of a turn on its host, with its part of boot, set-up and evaluation."""
    timing, preparing = prepared.timing, Preparing.of(prepared)
    around = timing.boot_cores * (preparing.boot + preparing.setup) + timing.step_cores * timing.evaluate.mean
    return timing.step_cores * timing.step.mean + around / turns


class Site(NamedTuple):
    """Hosts of one kind."""

    cores: float
    """Of each."""
    num_hosts: int
    """How many of them have desktops."""
    num_desktops: int
    """On all of them, spares included."""


def sites(prepared: PreparedRun) -> list[Site]:
    """Return where the desktops are, by their hosts' cores."""
    placed = place(
        prepared.config.rollout.num_desktops, hosts(prepared.config, SimEnvironment()), prepared.timing.memory_gib
    )
    desktops = Counter(host.cores.cores for host in placed)
    machines = Counter(host.cores.cores for host in {host.name: host for host in placed}.values())
    return [Site(cores, machines[cores], number) for cores, number in desktops.items()]


def reply_tokens(prepared: PreparedRun) -> float:
    """Return the mean length of a reply, tokens."""
    engine = prepared.config.cluster.engine
    if engine.reply_tokens is None:
        return float(prepared.prompts.reply_tokens)
    return max(1.0, from_spec(engine.reply_tokens).capped_mean(engine.longest_reply_tokens))


def alone_seconds(prepared: PreparedRun, turns_per_trajectory: float) -> float:
    """Return how long an engine needs at least for the mean turn alone, seconds.

    Of a GPU's model: one prefill on an engine that holds the turn before, which says the first token, and the others.
    """
    engine, gpu = prepared.config.cluster.engine, prepared.gpu
    if engine.model != "fluid":
        return engine.batch_seconds + engine.request_seconds
    load = turn_load(prepared, turns_per_trajectory, warm=engine.prefix_cache)
    prefill = (
        max(a + b * load.prefill for a, b in _lines_below(gpu))
        + gpu.head_seconds
        + gpu.fixed_seconds
        + gpu.sequence_seconds
        + load.pairs * gpu.prefill_pair_seconds
        + load.images * gpu.image_seconds
    )
    return prefill + (load.reply - 1.0) * gpu.iteration_seconds(1, kv_tokens=load.context)


def engine_bound(prepared: PreparedRun, turns_per_trajectory: float) -> float:
    """Return the turns per minute of engines that are always full and never load weights."""
    config = prepared.config
    workers, slots = config.rollout.num_workers, config.rollout.num_envs
    most = max(1, ceil(slots / workers))
    engine = config.cluster.engine
    if engine.model == "fluid":
        load = turn_load(prepared, turns_per_trajectory, warm=engine.prefix_cache)
        seconds = least_seconds(prepared.gpu, load, most)
    else:
        most = min(most, engine.max_batch) if engine.model == "batch" else most
        seconds = engine.request_seconds + engine.batch_seconds / most
    return 60.0 * workers / seconds if seconds > 0.0 else inf


@dataclass(frozen=True, slots=True)
class TurnLoad:
    """The mean load of a turn on an engine.

    Attributes:
        prefill: Computed prompt tokens.
        images: Encoded screenshots.
        context: Tokens of the prompt and half of the reply.
        pairs: (query, key) pairs of the computed prompt tokens.
        reply: Tokens of the reply.
    """

    prefill: float
    images: float
    context: float
    pairs: float
    reply: float


def turn_load(prepared: PreparedRun, turns_per_trajectory: float, *, warm: bool) -> TurnLoad:
    """Return the mean load over the turns of a trajectory."""
    table = prepared.prompts.warm if warm else prepared.prompts.cold
    prompts = table[: max(1, min(round(turns_per_trajectory), len(table)))]
    new = [prompt.tokens - prompt.cached_tokens for prompt in prompts]
    reply = reply_tokens(prepared)
    return TurnLoad(
        prefill=fmean(new),
        images=fmean(prompt.images for prompt in prompts),
        context=fmean(prompt.tokens for prompt in prompts) + reply / 2.0,
        pairs=fmean(count * (prompt.cached_tokens + count / 2.0) for count, prompt in zip(new, prompts, strict=True)),
        reply=reply,
    )


def least_seconds(gpu: GpuProfile, load: TurnLoad, most: int) -> float:
    """Return the minimum engine time of a turn, seconds, with at most ``most`` requests computed together.

    The linear layers of an iteration of T tokens cost at least a + bT, for every line below their profile; a turn has
    ``reply`` iterations, shared by at most as many sequences as fit. The largest of these lower bounds counts.
    """
    fits = max(1, min(gpu.max_num_seqs, int(gpu.kv_capacity_tokens // (load.context + load.reply / 2.0)), most))
    share = load.reply / fits  # iterations for this turn alone
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
    # After its last point the profile continues with its own slope, which limits the lines' slopes.
    return lines


Floats = NDArray[np.float64]

NO_SIGNAL = (Drop.ALL_FAILED, Drop.ALL_SOLVED, Drop.NO_SIGNAL)
"""Reasons for dropping a group on which no scheduler could have trained."""


def supply_bound(by_part: Mapping[str, float], snapshots: Sequence[Snapshot], warmup_share: float) -> float:
    """Return the largest possible number of trained turns per minute between warm-up and end.

    The usable share of generated turns is that of the run's groups, in order; beyond them, that of its second half.
    """
    first, last = after_warmup(snapshots, warmup_share), snapshots[-1]
    makes = min((rate for part, rate in by_part.items() if part != "trainer"), default=inf)
    takes = by_part.get("trainer", inf)
    minutes = (last.time - first.time) / 60.0
    if makes == inf or minutes <= 0.0:
        return takes
    before = first.counts.get("trained_turns", 0)
    seconds = np.array([snapshot.time for snapshot in snapshots if snapshot.time >= first.time])
    supplied = _usable_of_first(makes * seconds / 60.0, *_usable(snapshots)) - before
    left = (last.time - seconds) / 60.0
    trained = supplied + np.multiply(takes, left, out=np.zeros_like(left), where=left > 0.0)
    return min(takes * minutes, float(trained.min())) / minutes


def _usable(snapshots: Sequence[Snapshot]) -> tuple[list[float], list[float]]:
    """Return the generated turns at each snapshot, and how many of them were not dropped for having no signal."""
    generated, usable, kept = [0.0], [0.0], 0.0
    for snapshot in snapshots:
        turns = float(snapshot.counts.get("generated_turns", 0))
        kept = max(kept, turns - sum(snapshot.counts.get(f"dropped_turns/{reason}", 0) for reason in NO_SIGNAL))
        if turns > generated[-1]:
            generated.append(turns)
            usable.append(kept)
        else:
            usable[-1] = kept
    return generated, usable


def _usable_of_first(turns: Floats, generated: Sequence[float], usable: Sequence[float]) -> Floats:
    """Return how many of the first turns are usable, for each number of turns."""
    half = generated[-1] / 2.0
    rest = (usable[-1] - float(np.interp(half, generated, usable))) / half if half else 1.0
    return np.interp(turns, generated, usable) + rest * np.maximum(turns - generated[-1], 0.0)
