"""What the ablation compares: the common setting, the parts of the method as overrides, and the arms.

The common setting is a small cluster with a trainer as fast as its desktops, so that neither waiting nor overlap is
free, and a suite of easy, hard and never-solved tasks for a model that clicks and says done.
"""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.config import Config, load

GROUPS, ATTEMPTS = 8, 8
"""Of a batch, and of a group at most: 64 attempts an update."""

HOURS, QUICK_HOURS = 0.4, 0.03
"""Simulated length of a run."""

BOUNDS = (0, 1, 2, 4, 8)
"""Staleness bounds that are compared, versions."""

COMMON = (
    "run.updates=10000",
    "run.target_success=1.0",
    "tasks.mock=locks",
    "tasks.count=48",
    "tasks.held_out=60",
    "policy.family=qwen2_5_vl",
    "policy.grammar=clicks_and_done",
    "policy.screen=96",
    "rollout.num_envs=32",
    "rollout.max_turns=6",
    f"curation.batch.min_groups={GROUPS}",
    f"curation.batch.max_groups={GROUPS}",
    f"curation.attempts.group_size={ATTEMPTS}",
    "curation.attempts.min_group_size=2",
    "curation.attempts.threshold=0.6",
    "curation.store=memory",
    "trainer.optimizer.learning_rate=7e-4",
    "trainer.optimizer.minibatches=4",
    "trainer.evaluation.every_updates=5",
    "trainer.evaluation.attempts_per_task=1",
    "recorder.max_segments=0",
    "cluster.learner.fixed_seconds=10.0",
    "cluster.learner.turn_seconds=0.1",
)

QUICK = ("tasks.held_out=30",)
"""What is coarser in a quick run, beside its length."""

PARTS = {
    "attempts": "curation.attempts.rule={by_success|fixed}",
    "length": "curation.turn_limit.rule={by_success|fixed}",
    "pool": "curation.pool.enabled={true|false}",
    "entropy": "curation.selection.rule={high_entropy|all}",
    "alignment": "trainer.objective.importance={token|off}",
}
"""The method's parts: the setting with the part, and without it. ``alignment`` is truncated importance sampling."""

COUPLED = (
    "rollout.unit=batch",
    "rollout.lockstep=true",
    "rollout.sync.mode=drain",
    "rollout.sync.workers_at_a_time=all",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
    "trainer.wait_for_sync=true",
)
"""As the preset ``coupled``: lock-step turns, whole batches, nothing overlaps, every group is trained on."""

ARMS: dict[str, tuple[str, ...]] = {
    "coupled": (),
    "decoupled": (),
    **{f"+ {part}": (part,) for part in PARTS},
    "dart": tuple(PARTS),
    **{f"dart - {part}": tuple(other for other in PARTS if other != part) for part in PARTS},
    "dart, stored kept": tuple(PARTS),
}
"""Name of an arm, and the parts that it has."""

REMEDY = "curation.selection.keep_stored=true"
"""Of the last arm, which is ours: selection leaves the pool's successes alone."""

STALE_WITHOUT = (4, 8)
"""Bounds, beside the arms' own, at which ``dart - alignment`` is run too."""


def overrides(arm: str, bound: int) -> tuple[str, ...]:
    """Return what distinguishes an arm at a staleness bound: parts, schedule, and attempts admitted ahead."""
    parts = ARMS[arm]
    chosen = [_switch(text, name in parts) for name, text in PARTS.items()]
    if "pool" in parts:
        chosen.append("curation.pool.collected_per_task=1")
    ahead = (bound + 1) * GROUPS * ATTEMPTS
    chosen += [f"curation.staleness.max_staleness={bound}", f"curation.max_ahead={ahead}"]
    if arm == "dart, stored kept":
        chosen.append(REMEDY)
    return (*chosen, *(COUPLED if arm == "coupled" else ()))


def config(arm: str, seed: int, bound: int = 1, *, quick: bool = False) -> Config:
    """Return the configuration of an arm."""
    bound = 0 if arm == "coupled" else bound
    length = (f"run.hours={QUICK_HOURS}", *QUICK) if quick else (f"run.hours={HOURS}",)
    changes = [f"run.seed={seed}", *COMMON, *length, *overrides(arm, bound)]
    return load(preset_name="tiny", overrides=changes)


def jobs(seed: int) -> Sequence[tuple[str, int]]:
    """Return arm and bound of every run of a seed; what two parts of the study share is run once."""
    arms = [(arm, 0 if arm == "coupled" else 1) for arm in ARMS]
    bounds = [("dart", bound) for bound in BOUNDS if bound != 1]
    return [*arms, *bounds, *(("dart - alignment", bound) for bound in STALE_WITHOUT)]


def _switch(text: str, on: bool) -> str:
    """Return ``name=first`` or ``name=second`` of ``name={first|second}``."""
    name, _, choice = text.partition("={")
    return f"{name}={choice.rstrip('}').split('|')[0 if on else 1]}"
