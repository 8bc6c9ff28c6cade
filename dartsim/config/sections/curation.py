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
    """Settings of every rule for the number of attempts."""

    group_size: int = Field(8, ge=1, le=10_000, description="Attempts at a task, which form a group (DART: 8).")
    max_replacements: int = Field(2, ge=0, description="How many masked attempts of a group are repeated.")

    @property
    def smallest_group(self) -> int:
        """Smallest number of attempts that a task can get."""
        return self.group_size


class GroupsConfig(Section):
    """Which complete groups may be trained on."""

    min_size: Positive = Field(2, description="Smallest number of unmasked attempts of a trainable group.")
    drop_all_failed: bool = Field(True, description="Drop groups in which all attempts failed.")
    drop_solved: bool = Field(True, description="Drop groups in which all attempts succeeded.")
    drop_equal: bool = Field(True, description="Drop groups whose rewards are all equal and between 0 and 1.")


class BatchConfig(ComponentSection):
    """Settings of every batch rule."""

    min_groups: int = Field(6, ge=1, le=10_000, description="An update waits for this many groups (DART released: 6).")
    max_groups: int = Field(
        8, ge=1, le=10_000, description="An update trains on at most this many groups (DART released: 8)."
    )
    wait_age: Positive | None = Field(
        None, description="Wait for running groups that began this many versions ago (verl's dropless buffer)."
    )


class AdmissionConfig(ComponentSection):
    """Settings of every admission rule: bounds on groups, in batches of curation.batch.max_groups; none: no bound."""

    ahead_batches: float | None = Field(
        None, gt=0.0, description="Most groups begun and in no published weights (AReaL: eta + 1; verl: (1 + theta) T)."
    )
    open_batches: float | None = Field(
        None, gt=0.0, description="Most groups with running attempts (AReaL: 1; SkyRL: 3)."
    )
    ready_batches: float | None = Field(None, gt=0.0, description="Most complete groups that wait (prime-rl: 1).")
    waiting_batches: float | None = Field(None, gt=0.0, description="Most groups begun and in no update (slime: 1).")

    @staticmethod
    def groups(batches: float | None, size: int) -> int | None:
        """Return a bound in groups, rounded, from one in batches of ``size`` groups."""
        return None if batches is None else round(batches * size)


class StalenessConfig(Section):
    """How old a trajectory may be when it is trained on."""

    max_staleness: int | None = Field(1, ge=0, description="Largest allowed staleness, versions (DART: 1); none: any.")
    measured_by: Literal["oldest", "newest", "start"] = Field(
        "oldest",
        description="Version that counts: of the oldest turn, of the newest turn, or the one published when the "
        "attempt started.",
    )
    cancel_running: bool = Field(
        False, description="start: cancel attempts whose group is certain to become too stale (prime-rl)."
    )
    requeue: bool = Field(False, description="Offer the task of a stale group again, before other tasks (tinker).")


class PoolConfig(Section):
    """Stored successes, for groups in which all attempts failed."""

    enabled: bool = Field(False, description="Add a stored success to a group in which all attempts failed.")
    file: str | None = Field(
        None, description="Folder of successes to start with, from `dartsim eval --keep-successes`; none: empty."
    )
    collected_per_task: int = Field(
        0, ge=0, description="Successes of the oracle per task, stored before the run (mock tasks only)."
    )
    choice: Literal["least_used", "newest"] = Field(
        "least_used", description="Which stored success is used (DART released: newest)."
    )


class TaskFilterConfig(Section):
    """Tasks that are skipped because they are too easy or too hard; with bounds of 1 and 0, none are."""

    max_mean: Share = Field(1.0, description="Skip tasks whose mean reward is above this (too easy); 1: none.")
    min_mean: Share = Field(0.0, description="Skip tasks whose mean reward is below this (too hard); 0: none.")
    window: Positive = Field(16, description="Number of the newest rewards of a task that count.")

    @property
    def enabled(self) -> bool:
        """Whether any task may be skipped."""
        return self.max_mean < 1.0 or self.min_mean > 0.0


class CurationConfig(Section):
    """What is admitted and what is trained on."""

    task_order: Annotated[ComponentSection, TASK_ORDER] = Field(
        default_factory=TASK_ORDER, description="Rule for the next task."
    )
    task_filter: TaskFilterConfig = Field(default_factory=TaskFilterConfig, description="Which tasks are skipped.")
    attempts: Annotated[AttemptsConfig, ATTEMPTS] = Field(
        default_factory=ATTEMPTS, description="Rule for the number of attempts at a task."
    )
    turn_limit: Annotated[ComponentSection, TURN_LIMIT] = Field(
        default_factory=TURN_LIMIT, description="Rule for the turns of an attempt, at most rollout.max_turns."
    )
    admission: Annotated[AdmissionConfig, ADMISSION] = Field(
        default_factory=ADMISSION, description="Rule that lets another group start."
    )
    groups: GroupsConfig = Field(default_factory=GroupsConfig, description="Which groups carry a learning signal.")
    pool: PoolConfig = Field(default_factory=PoolConfig, description="Stored successes.")
    batch: Annotated[BatchConfig, BATCH] = Field(default_factory=BATCH, description="Rule for the groups of an update.")
    selection: Annotated[ComponentSection, SELECTION] = Field(
        default_factory=SELECTION, description="Rule for the trained turns of a group."
    )
    staleness: StalenessConfig = Field(default_factory=StalenessConfig, description="Bound of the staleness.")
    store: Literal["sqlite", "memory"] = Field(
        "sqlite", description="Where the run is stored: sqlite, a file in its folder; or memory: it cannot be resumed."
    )
