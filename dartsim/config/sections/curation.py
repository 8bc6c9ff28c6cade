"""What is admitted, and what is trained on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dartsim.core.registry import Choice, ComponentSection
from dartsim.core.section import Positive, Section, Share

TASK_ORDER = Choice("task_order", "shuffled")
ATTEMPTS = Choice("attempts", "fixed")
TURN_LIMIT = Choice("turn_limit", "fixed")
ADMISSION = Choice("admission", "bounds")
BATCH = Choice("batch", "ready")
SELECTION = Choice("selection", "all")


class AttemptsConfig(ComponentSection):
    """What every rule for the attempts of a task has."""

    group_size: Positive = Field(8, description="Attempts of a task (DART: 8).")
    max_replacements: int = Field(2, ge=0, description="Masked attempts of a group that are tried again.")
    extra_attempts: int = Field(
        0, ge=0, description="Most added to a group in which all failed, on slots that would wait for admission."
    )

    @property
    def smallest_group(self) -> int:
        """Fewest attempts that a task can get."""
        return self.group_size


class GroupsConfig(Section):
    """Which complete groups may be trained on."""

    min_size: Positive = Field(2, description="Fewest unmasked attempts.")
    drop_all_failed: bool = Field(True, description="Drop groups in which all failed.")
    drop_solved: bool = Field(True, description="Drop groups whose mean reward reaches max_mean_reward.")
    max_mean_reward: Share = Field(1.0, description="Where a group counts as solved (DART released: acc_max 1.0).")
    drop_equal: bool = Field(True, description="Drop groups of equal rewards strictly between 0 and 1.")


class BatchConfig(ComponentSection):
    """What every batch rule has."""

    min_groups: Positive = Field(6, description="Groups to wait for (DART released: 6).")
    max_groups: Positive = Field(8, description="Groups taken at most (DART released: 8).")
    wait_age: Positive | None = Field(
        None, description="No batch while a running group began so many versions ago (verl's dropless buffer)."
    )


class AdmissionConfig(ComponentSection):
    """What every admission rule has: bounds on groups, in batches of curation.batch.max_groups; none: no bound."""

    ahead_batches: float | None = Field(
        None, gt=0.0, description="Begun and in no published weights (AReaL: eta + 1; verl: (1 + theta) T)."
    )
    open_batches: float | None = Field(None, gt=0.0, description="Whose attempts run (AReaL: 1; SkyRL: 3).")
    ready_batches: float | None = Field(None, gt=0.0, description="Complete, and waiting (prime-rl: 1).")
    waiting_batches: float | None = Field(None, gt=0.0, description="Begun and taken by no update (slime: 1).")

    @staticmethod
    def groups(batches: float | None, size: int) -> int | None:
        """Return how many groups a bound in batches of ``size`` groups is, rounded to the nearest."""
        return None if batches is None else round(batches * size)


class StalenessConfig(Section):
    """How old a trajectory may be when it is trained on."""

    max_staleness: int | None = Field(1, ge=0, description="Versions; DART: the newest two checkpoints, so 1.")
    measured_by: Literal["oldest", "newest", "start"] = Field(
        "oldest",
        description="Which version of a trajectory counts: of its oldest or newest turn, or the one published when it "
        "was admitted.",
    )
    cancel_running: bool = Field(
        False, description="start: end attempts whose group is certain to be too old (prime-rl)."
    )
    requeue: bool = Field(False, description="Offer the task of a group that got stale again, before others (tinker).")


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


class TaskFilterConfig(Section):
    """Tasks that are left out while they teach nothing; at 1 and 0 none is."""

    max_mean: Share = Field(1.0, description="Mean reward above which a task is too easy.")
    min_mean: Share = Field(0.0, description="Mean reward below which a task is too hard.")
    window: Positive = Field(16, description="Newest rewards of a task that count.")
    revisit_after: Positive | None = Field(4, description="Skips after which a task is offered again; none: never.")

    @property
    def enabled(self) -> bool:
        """Whether any task may be left out."""
        return self.max_mean < 1.0 or self.min_mean > 0.0


class CurationConfig(Section):
    """What is admitted and what is trained on."""

    success_reward: Share = Field(1.0, description="Reward from which an attempt is a success (pool, turn limit).")
    task_order: Annotated[ComponentSection, TASK_ORDER] = Field(
        default_factory=TASK_ORDER, description="Which task is next."
    )
    task_filter: TaskFilterConfig = Field(default_factory=TaskFilterConfig, description="Tasks left out.")
    attempts: Annotated[AttemptsConfig, ATTEMPTS] = Field(
        default_factory=ATTEMPTS, description="How many attempts a task gets."
    )
    turn_limit: Annotated[ComponentSection, TURN_LIMIT] = Field(
        default_factory=TURN_LIMIT, description="How many turns an attempt may take, at most rollout.max_turns."
    )
    admission: Annotated[AdmissionConfig, ADMISSION] = Field(
        default_factory=ADMISSION, description="Whether another group may begin."
    )
    groups: GroupsConfig = Field(default_factory=GroupsConfig, description="Group filter.")
    pool: PoolConfig = Field(default_factory=PoolConfig, description="Stored successes.")
    batch: Annotated[BatchConfig, BATCH] = Field(default_factory=BATCH, description="What an update trains on.")
    selection: Annotated[ComponentSection, SELECTION] = Field(
        default_factory=SELECTION, description="Which turns of a group are trained on."
    )
    staleness: StalenessConfig = Field(default_factory=StalenessConfig, description="Staleness bound.")
    max_ahead: Positive | None = Field(
        None,
        description="Most attempts admitted and not yet in published weights; none admits always (DART).",
    )
    store: str = Field(
        "sqlite",
        description="Where the run is kept: sqlite (a file in its folder), postgresql://USER@HOST/NAME (password: "
        "PGPASSWORD), or memory, which cannot be resumed.",
    )
