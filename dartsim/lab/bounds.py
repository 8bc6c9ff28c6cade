"""Closed-form bounds on what a configuration can train: the bottleneck law, beside every simulated figure.

Nothing can train faster than its trainer, nor than its desktops produce, nor than its engines answer; each bound leaves
out all waiting. A measured window that begins in the middle of an update counts all of its turns when it ends, so in a
short run the simulated figure may lie above the trainer's bound by up to one update's turns.
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
    """Return the bounds on trained turns per minute; none of a run with parts that are real, which no profile binds.

    The mean turns of an update and of a trajectory, and what the group filter drops, are taken from the run. ``bounds``
    are those of each part alone, in turns that it makes or takes; the bound on what is trained is ``supply_bound``'s.

    Args:
        prepared: The configuration and what it names.
        figures: The run's figures.
        snapshots: Of the run, oldest first.
    """
    num_updates, turns = figures["num_updates"], figures["turns_per_trajectory"]
    backend = prepared.config.backend
    modelled = {backend.desktops, backend.workers, backend.learner} == {"sim"}
    if not modelled or not num_updates or not turns:
        return {"bound_trained_turns_per_minute": None, "bound_by": None}
    by_part = {
        "trainer": trainer_bound(prepared, figures["trained_turns_per_minute"] * figures["minutes"] / num_updates),
        "desktops": desktop_bound(prepared, turns),
        "engines": engine_bound(prepared, turns),
    }
    bound = supply_bound(by_part, snapshots, prepared.config.run.warmup_share)
    made_by = min(("desktops", "engines"), key=lambda name: by_part[name])
    return {
        "bound_trained_turns_per_minute": bound,
        "bound_by": "trainer" if bound >= by_part["trainer"] else made_by,
        "bounds": {name: value for name, value in by_part.items() if value < inf},
    }


def trainer_bound(prepared: PreparedRun, turns_per_update: float) -> float:
    """Return the turns a minute of a trainer that never waits; infinite if an update takes no time."""
    learner = prepared.config.cluster.learner
    seconds = learner.fixed_seconds + learner.turn_seconds * turns_per_update
    return 60.0 * turns_per_update / seconds if seconds > 0.0 else inf


def desktop_bound(prepared: PreparedRun, turns_per_trajectory: float) -> float:
    """Return the turns a minute of desktops whose every request is answered by an engine of its own.

    The engine's part of a turn is its least time alone (``alone_seconds``); queues and syncs are left out. Spare
    desktops take boots and tear-downs off the slots, not off the desktops: those are as many, and each attempt still
    has a boot. A host makes no more turns than its cores have seconds for.
    """
    answer = alone_seconds(prepared, turns_per_trajectory)
    places = sites(prepared)
    rate = desktop_rate(prepared, places, turns_per_trajectory, answer)
    fastest = slot_seconds(prepared, turns_per_trajectory, answer, max(cores for cores, _, _ in places))
    return 60.0 * min(rate, prepared.config.rollout.num_envs / fastest) if fastest > 0.0 else inf


def desktop_rate(prepared: PreparedRun, places: Sequence[Site], turns: float, answer_seconds: float) -> float:
    """Return the turns a second of all desktops, none of them waiting for anything but its replies.

    Args:
        prepared: The configuration and what it names.
        places: Where its desktops are, as ``sites`` says.
        turns: Of a trajectory.
        answer_seconds: Until an engine has answered.
    """
    seconds, rate = core_seconds(prepared, turns), 0.0
    for cores, num_hosts, num_desktops in places:
        cycle = desktop_seconds(prepared, turns, answer_seconds, cores)
        most = num_hosts * cores / seconds if seconds > 0.0 else inf
        rate += min(num_desktops / cycle if cycle > 0.0 else inf, most)
    return rate


def desktop_seconds(prepared: PreparedRun, turns: float, answer_seconds: float, cores: float) -> float:
    """Return the seconds of a desktop for each turn, everything around its attempts included.

    Args:
        prepared: The configuration and what it names.
        turns: Of a trajectory.
        answer_seconds: Until an engine has answered, without the way there and back.
        cores: Of the desktop's host; what wants more of them than there are takes longer.
    """
    timing = prepared.timing
    slow_boot, slow_step = (max(1.0, wanted / cores) for wanted in (timing.boot_cores, timing.step_cores))
    boots = timing.start.mean + timing.boot.mean
    around = around_seconds(prepared) + (slow_boot - 1.0) * (boots + timing.setup.mean)
    around += (slow_step - 1.0) * timing.evaluate.mean
    engine = prepared.config.cluster.engine
    way = engine.overhead_seconds + engine.control_seconds
    return slow_step * timing.step.mean + way + answer_seconds + around / turns


def slot_seconds(prepared: PreparedRun, turns: float, answer_seconds: float, cores: float) -> float:
    """Return the seconds of a slot for each turn: those of a desktop, less what spares take off it.

    Takes what ``desktop_seconds`` takes.
    """
    seconds, timing = desktop_seconds(prepared, turns, answer_seconds, cores), prepared.timing
    if not prepared.config.rollout.warm_envs:
        return seconds
    slow_boot = max(1.0, timing.boot_cores / cores)
    return seconds - (slow_boot * (timing.start.mean + timing.boot.mean) + timing.teardown.mean) / turns


def around_seconds(prepared: PreparedRun) -> float:
    """Return the mean seconds of an attempt apart from its turns; each has a desktop of its own, freshly booted."""
    timing = prepared.timing
    boots = timing.start.mean + timing.boot.mean + timing.teardown.mean
    return boots + timing.setup.mean + timing.settle_seconds + timing.evaluate_settle_seconds + timing.evaluate.mean


def core_seconds(prepared: PreparedRun, turns: float) -> float:
    """Return what a turn asks of its host's cores, with its part of what is around its attempt, core-seconds."""
    timing = prepared.timing
    boots = timing.start.mean + timing.boot.mean
    around = timing.boot_cores * (boots + timing.setup.mean) + timing.step_cores * timing.evaluate.mean
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
    """Return the turns a minute of engines that are always full and never change weights."""
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


def turn_load(prepared: PreparedRun, turns_per_trajectory: float, *, warm: bool) -> TurnLoad:
    """Return the mean over the turns of a trajectory of mean length.

    Args:
        prepared: The configuration and what it names.
        turns_per_trajectory: Its length.
        warm: Whether every turn meets an engine that still holds the turn before.
    """
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


Floats = NDArray[np.float64]

NO_SIGNAL = (Drop.ALL_FAILED, Drop.ALL_SOLVED, Drop.NO_SIGNAL)
"""Why a group is dropped that no scheduler could have trained on."""


def supply_bound(by_part: Mapping[str, float], snapshots: Sequence[Snapshot], warmup_share: float) -> float:
    """Return the most turns a minute that could be trained between warm-up and end.

    Which of what is made is usable is taken from the run: its groups in the order in which it made them, however fast.
    Beyond what it made, the rest is as its second half.

    Args:
        by_part: Turns a minute that ``trainer``, ``desktops`` and ``engines`` allow, as ``dartsim.lab.bounds`` says;
            a part that is missing allows any number.
        snapshots: Of the run, oldest first.
        warmup_share: Share of the run before what is measured.
    """
    first, last = after_warmup(snapshots, warmup_share), snapshots[-1]
    makes = min((rate for part, rate in by_part.items() if part != "trainer"), default=inf)
    takes = by_part.get("trainer", inf)
    minutes = (last.time - first.time) / 60.0
    if makes == inf or minutes <= 0.0:
        return takes
    before = first.counts.get("trained_turns", 0)
    seconds = np.array([snapshot.time for snapshot in snapshots if snapshot.time >= first.time])
    supplied = _of_first(makes * seconds / 60.0, *_usable(snapshots)) - before
    left = (last.time - seconds) / 60.0
    trained = supplied + np.multiply(takes, left, out=np.zeros_like(left), where=left > 0.0)
    return min(takes * minutes, float(trained.min())) / minutes


def _usable(snapshots: Sequence[Snapshot]) -> tuple[list[float], list[float]]:
    """Return, snapshot by snapshot, the turns that had been made, and how many of them were not dropped for good."""
    made, usable, most = [0.0], [0.0], 0.0
    for snapshot in snapshots:
        turns = float(snapshot.counts.get("generated_turns", 0))
        most = max(most, turns - sum(snapshot.counts.get(f"dropped_turns/{reason}", 0) for reason in NO_SIGNAL))
        if turns > made[-1]:
            made.append(turns)
            usable.append(most)
        else:
            usable[-1] = most
    return made, usable


def _of_first(turns: Floats, made: Sequence[float], usable: Sequence[float]) -> Floats:
    """Return how many of the first so many turns are usable, for each number of turns."""
    half = float(np.interp(made[-1] / 2.0, made, usable))
    rest = (usable[-1] - half) / (made[-1] / 2.0) if made[-1] else 1.0
    return np.interp(turns, made, usable) + rest * np.maximum(turns - made[-1], 0.0)
