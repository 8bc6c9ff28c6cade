"""What is admitted, and what is trained on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Positive, Section, Share


class AttemptsConfig(Section):
    """How many attempts a task gets."""

    rule: Literal["fixed", "by_success"] = Field("fixed", description="Always ``most``, or fewer for easy tasks.")
    most: Positive = Field(8, description="Attempts of a task (DART: 8).")
    least: Positive = Field(2, description="by_success: fewest attempts.")
    threshold: Share = Field(0.6, description="by_success: success rate from which attempts are lowered.")
    max_replacements: int = Field(2, ge=0, description="Masked attempts of a group that are tried again.")
    further: int = Field(
        0, ge=0, description="Most added to a group in which all failed, on slots that would wait for admission."
    )


class GroupsConfig(Section):
    """Which complete groups may be trained on."""

    min_size: Positive = Field(2, description="Fewest unmasked attempts.")
    drop_all_failed: bool = Field(True, description="Drop groups in which all failed.")
    drop_solved: bool = Field(True, description="Drop groups whose mean reward reaches max_mean_reward.")
    max_mean_reward: Share = Field(1.0, description="Where a group counts as solved (DART released: acc_max 1.0).")
    drop_equal: bool = Field(True, description="Drop groups of equal rewards strictly between 0 and 1.")


class BatchConfig(Section):
    """What an update trains on."""

    min_groups: Positive = Field(6, description="Groups to wait for (DART released: 6).")
    max_groups: Positive = Field(8, description="Groups taken at most (DART released: 8).")
    order: Literal["ready", "started", "weights", "in_order"] = Field(
        "ready",
        description="Taken first: what became ready first, began first, has the oldest weights, or began first with "
        "the batch waiting for it.",
    )
    wait_age: Positive | None = Field(
        None, description="No batch while a running group began so many versions ago (verl's dropless buffer)."
    )


class AdmissionConfig(Section):
    """Bounds on groups, in batches of curation.batch.max_groups; none: no bound."""

    ahead_batches: float | None = Field(
        None, gt=0.0, description="Begun and in no published weights (AReaL: eta + 1; verl: (1 + theta) T)."
    )
    open_batches: float | None = Field(None, gt=0.0, description="Whose attempts run (AReaL: 1; SkyRL: 3).")
    ready_batches: float | None = Field(None, gt=0.0, description="Complete, and waiting (prime-rl: 1).")
    waiting_batches: float | None = Field(None, gt=0.0, description="Begun and taken by no update (slime: 1).")


class ConcurrencyConfig(Section):
    """How many attempts may run at once."""

    rule: Literal["none", "cache_use"] = Field(
        "none", description="As many as there are desktops; cache_use: by how full the engines' caches are (prime-rl)."
    )
    least: Positive = Field(1, description="cache_use: fewest attempts (prime-rl: 1).")
    most: Positive = Field(1024, description="cache_use: most attempts (prime-rl: 1,024).")


class StalenessConfig(Section):
    """How old a trajectory may be when it is trained on."""

    bound: int | None = Field(1, ge=0, description="Versions; DART: the newest two checkpoints, so 1.")
    measured_by: Literal["oldest", "newest", "start"] = Field(
        "oldest",
        description="Which version of a trajectory counts: of its oldest or newest turn, or the one published when it "
        "was admitted.",
    )
    cancel_running: bool = Field(
        False, description="start: end attempts whose group is certain to be too old (prime-rl)."
    )
    requeue: bool = Field(False, description="Offer the task of a group that got stale again, before others (tinker).")


class TurnLimitConfig(Section):
    """How many turns an attempt may take; rollout.max_turns is the most."""

    rule: Literal["fixed", "by_success"] = Field(
        "fixed", description="The same for all, or the task's longest success so far (DART's paper)."
    )
    least: Positive = Field(1, description="by_success: fewest turns.")
    slack: int = Field(0, ge=0, description="by_success: turns beyond the longest success.")


class PoolConfig(Section):
    """Stored successes, for groups in which all failed."""

    enabled: bool = Field(False, description="Whether such a group gets one success of its task.")
    online: bool = Field(True, description="Whether the run's own successes are stored.")
    file: str | None = Field(None, description="Folder of successes to begin with, as `dartsim collect` writes it.")
    collected_per_task: int = Field(
        0, ge=0, description="Successes of the oracle stored for each task before the run (mock tasks)."
    )
    keep_per_task: int = Field(
        1, ge=0, description="Own successes of each task kept in the run's folder, for `dartsim collect --run`."
    )
    max_per_task: Positive = Field(8, description="Stored successes of a task, newest kept.")
    choice: Literal["least_used", "newest"] = Field(
        "least_used", description="Which one is used (DART released: newest)."
    )


class SelectionConfig(Section):
    """Which turns of a group are trained on."""

    rule: Literal["all", "high_entropy"] = Field("all", description="All (DART released), or the paper's selection.")
    share: float = Field(0.8, gt=0.0, le=1.0, description="high_entropy: share of a group's turns that is kept.")
    keep_stored: bool = Field(False, description="high_entropy: keep stored successes whole (DART: no).")


class TaskFilterConfig(Section):
    """Tasks that are left out while they teach nothing; at 1 and 0 none is."""

    max_mean: Share = Field(1.0, description="Mean reward above which a task is too easy.")
    min_mean: Share = Field(0.0, description="Mean reward below which a task is too hard.")
    window: Positive = Field(16, description="Newest rewards of a task that count.")
    revisit_after: Positive | None = Field(4, description="Skips after which a task is offered again; none: never.")


class CurationConfig(Section):
    """What is admitted and what is trained on."""

    success_reward: Share = Field(1.0, description="Reward from which an attempt is a success (pool, turn limit).")
    turn_limit: TurnLimitConfig = Field(default_factory=TurnLimitConfig, description="Trajectory length.")
    pool: PoolConfig = Field(default_factory=PoolConfig, description="Stored successes.")
    selection: SelectionConfig = Field(default_factory=SelectionConfig, description="Turns trained on.")
    task_filter: TaskFilterConfig = Field(default_factory=TaskFilterConfig, description="Tasks left out.")
    attempts: AttemptsConfig = Field(default_factory=AttemptsConfig, description="Attempts of a task.")
    groups: GroupsConfig = Field(default_factory=GroupsConfig, description="Group filter.")
    batch: BatchConfig = Field(default_factory=BatchConfig, description="Batch rule.")
    staleness: StalenessConfig = Field(default_factory=StalenessConfig, description="Staleness bound.")
    admission: AdmissionConfig = Field(default_factory=AdmissionConfig, description="Bounds on groups.")
    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig, description="Attempts at once.")
    max_ahead: Positive | None = Field(
        None,
        description="Most attempts admitted and not yet in published weights; none admits always (DART).",
    )
    store: str = Field(
        "sqlite",
        description="Where the run is kept: sqlite (a file in its folder), postgresql://USER@HOST/NAME (password: "
        "PGPASSWORD), or memory, which cannot be resumed.",
    )
