"""A one-line verdict: what limits a run, from the time components spent in each state, and what to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartsim.config import Config
from dartsim.observe.figures import after_warmup, figures
from dartsim.observe.recorder import Recorder

FULL = 0.9
"""Trainer or engines are the limit if they are busy for at least this share of the time."""
WAITING = 0.1
"""Admission is the limit if desktops have no attempt for at least this share of their time."""
SYNCING = 0.2
"""Weight sync is the limit if the trainer waits for syncs and publications for at least this share of its time."""

REMEDIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "start too slowly": (
        ("starting", "setup", "wait_start"),
        "spares that boot ahead (rollout.warm_envs), or more hosts and starts at a time (cluster.hosts, desktop.hosts)",
    ),
    "are scored too slowly": (("evaluating", "score_wait"), "a faster evaluator, or more places to score in"),
    "close too slowly": (("closing",), "spares (rollout.warm_envs), which close and boot beside an attempt"),
    "act too slowly, or are too few": (("acting",), "more desktops (rollout.num_envs)"),
}
"""Activities of desktops that may limit a run: the states that show each, and what to try."""


RECENT = 0.75
"""A run that is going on is judged by its time after this share of what has passed, or by all of it if no update ended
in that."""


def verdict_so_far(config: Config, recorder: Recorder) -> str:
    """Return what limits a run that is going on and what to try, in one line."""
    last, snapshots = recorder.measure(), recorder.snapshots
    for first in (after_warmup([*snapshots, last], RECENT), snapshots[0]):
        recent = {"failure": None, **figures(first, last)}
        if recent["num_updates"] and recent["generated_turns_per_minute"]:
            return verdict(config, recent)
    return "What limits it is not known before the first update."


def verdict(config: Config, figures: Mapping[str, Any]) -> str:
    """Return what limited a run and what to try, in one line."""
    if figures["failure"]:
        return str(figures["failure"])
    if not figures["num_updates"] or not figures["generated_turns_per_minute"]:
        return "What limits it is unknown: nothing was generated and trained after the warm-up. Try more hours."
    trainer, desktops, engines = (figures[f"{name}_shares"] for name in ("trainer", "desktop", "engine"))
    training, syncing = trainer["training"], trainer["wait_sync"] + trainer["wait_publish"]
    waiting = desktops["wait_admission"] + desktops["wait_unit"]
    if training >= FULL:
        return f"Limited by the trainer ({training:.0%}). Try {_faster(config)}."
    if one_batch_at_a_time(config):
        return (
            f"Limited by taking turns: desktops work {1.0 - waiting:.0%} of the time, then the trainer, "
            f"{training:.0%}. Try a scheduler that overlaps them, such as dart-measured."
        )
    if syncing >= SYNCING:
        return (
            f"Limited by weight sync: the trainer waits for it {syncing:.0%} of its time, and trains {training:.0%}. "
            "Try trainer.wait_for_sync=false or rollout.sync.mode=keep."
        )
    if waiting >= WAITING:
        return (
            f"Limited by admission: desktops wait {waiting:.0%} of their time for it, and the trainer trains only "
            f"{training:.0%}. Try more batches ahead (curation.admission), or fewer desktops."
        )
    return f"{_of_supply(desktops, engines)} The trainer trains {training:.0%}."


def _of_supply(desktops: Mapping[str, float], engines: Mapping[str, float]) -> str:
    """Return whether desktops, engines or the transport between them limit a run whose trainer is not busy."""
    there = 1.0 - engines["off"]  # the others' GPUs are not lent
    replying, idle = desktops["generating"], engines["idle"] / there
    busy = 1.0 - idle - engines["loading"] / there
    by_part = {part: sum(desktops[name] for name in states) for part, (states, _) in REMEDIES.items()}
    slowest = max(by_part, key=lambda part: by_part[part])
    if replying < by_part[slowest]:
        return (
            f"Limited by the desktops: they {slowest} ({by_part[slowest]:.0%} of their time), and engines are idle "
            f"{idle:.0%}. Try {REMEDIES[slowest][1]}."
        )
    if busy >= FULL:
        return (
            f"Limited by the engines: they are busy {busy:.0%}, and desktops wait for replies {replying:.0%} of their "
            "time. Try more engines (rollout.num_workers), or rollout.routing.rule=session_affine."
        )
    if idle >= 0.5:
        return (
            f"Limited by what is between desktops and engines: desktops wait for replies {replying:.0%} of their time, "
            f"and engines are idle {idle:.0%}. Try a faster network or control process "
            "(cluster.engine.overhead_seconds, control_seconds), or more desktops."
        )
    return (
        f"Limited by the desktops: they wait for replies {replying:.0%} of their time, but keep engines busy only "
        f"{busy:.0%}. Try more desktops (rollout.num_envs)."
    )


def too_few_attempts(config: Config) -> str | None:
    """Return why a scheduler cannot keep all desktops busy, if it admits too few attempts at a time; None if it can."""
    curation, desktops = config.curation, config.rollout.num_envs
    batch, rule = curation.batch.max_groups * curation.attempts.group_size, curation.admission
    ahead = [count * batch for count in (rule.ahead_batches, rule.open_batches) if count is not None]
    most = min(ahead, default=desktops)
    if most >= desktops:
        return None
    return (
        f"your batches cannot feed {desktops:,} desktops: the scheduler admits {most:,.0f} attempts at a time. Raise "
        f"curation.batch.max_groups ({curation.batch.max_groups}) too, or what it admits (curation.admission)."
    )


def one_batch_at_a_time(config: Config) -> bool:
    """Return whether each batch starts after the previous one is published, so that nothing overlaps."""
    ahead = config.curation.admission.ahead_batches
    return ahead is not None and ahead <= 1.0


def _faster(config: Config) -> str:
    """Return how the trainer could be faster: with fewer tokens per turn, if turns can share sequences."""
    packed = config.trainer.optimizer.pack == "trajectories" and config.policy.images_after_cut is not None
    if packed or config.rollout.max_turns == 1:
        return "a faster trainer (cluster.learner), or engine GPUs for it (`dartsim plan`)"
    return "several turns in one sequence (policy.images_after_cut and trainer.optimizer.pack)"
