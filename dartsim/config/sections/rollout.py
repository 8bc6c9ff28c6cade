"""How attempts are played: desktops, workers, weight changes, deadlines."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dartsim.core.registry import Choice, ComponentSection
from dartsim.core.section import Deadline, Fuzzed, Positive, Seconds, Section
from dartsim.core.sync_modes import SyncMode

ROUTER = Choice("router", "least_in_flight")
LENDING = Choice("lending", "by_share")


class SyncConfig(Section):
    """How workers load new weights."""

    mode: Literal["drain", "keep", "restart"] = Field(
        "drain",
        description="What happens to requests that run on a worker whose weights change: they finish first, are "
        "frozen and continue, or are killed as the engine is started again.",
    )
    workers_at_a_time: Positive | Literal["all"] = Field(1, description="Slice of a rolling change, or all at once.")
    resume_seconds: Seconds | None = Field(
        None,
        description="keep: running requests lose their keys and values, and clients ask again after this time with "
        "what was said before (AReaL: .5, verl: 1; simulated workers only); none: they keep them.",
    )

    @property
    def sync_mode(self) -> SyncMode:
        return SyncMode(self.mode)


class LendingConfig(ComponentSection):
    """Settings of every rule of lending."""

    engines: int = Field(
        0, ge=0, le=10_000, description="Engines that fit on the trainer's GPUs, besides num_workers; 0: none are lent."
    )


class LimitsConfig(Section):
    """Longest time of each kind of call."""

    close_seconds: ClassVar[float] = 120.0
    """One tear-down."""

    start_seconds: Deadline = Field(600.0, description="One start of a desktop.")
    setup_seconds: Deadline = Field(600.0, description="Setting a task up.")
    request_seconds: Deadline = Field(1800.0, description="One reply, waiting for a stopped pool included.")
    step_seconds: Deadline = Field(180.0, description="One action.")
    evaluate_seconds: Deadline = Field(600.0, description="One score.")
    load_seconds: Deadline = Field(1200.0, description="One weight load of a worker (DART: 100-300 s).")
    lease_seconds: Deadline = Field(14400.0, description="A whole attempt on its desktop.")


class RolloutConfig(Section):
    """Desktops, and how attempts are played."""

    num_envs: Annotated[int, Fuzzed((1, 2, 3, 4, 6))] = Field(
        38, ge=1, le=100_000, description="Desktop slots (DART headline run)."
    )
    warm_envs: int = Field(
        0,
        ge=0,
        description="Spare desktops booted ahead, which a slot's next attempt takes without waiting; fewer if the "
        "hosts lack the memory.",
    )
    host_reserve_gib: float = Field(0.0, ge=0.0, description="Memory of each host that spare desktops leave free, GiB.")
    num_workers: Annotated[int, Fuzzed((1, 2, 3))] = Field(
        4, ge=1, le=10_000, description="Inference workers, one GPU each (DART headline run)."
    )
    unit: Literal["rollout", "task", "batch"] = Field(
        "rollout", description="What has to end before its slots get new work."
    )
    lockstep: bool = Field(False, description="Whether all live attempts take their turns together.")
    max_turns: Annotated[int, Fuzzed((2, 1, 4, 6))] = Field(
        30, ge=1, le=10_000, description="Most turns of an attempt (DART headline run)."
    )
    fail_at_limit: bool = Field(
        False,
        description="Whether an attempt that used up its turns declares its task infeasible, which solves OSWorld's "
        "infeasible tasks and fails all others (OSWorld's agent of UI-TARS-1.5 and DART do, in place of the last "
        "turn's action).",
    )
    request_tries: Positive = Field(10, description="Workers a request is tried on (DART released: 10).")
    sync: SyncConfig = Field(default_factory=SyncConfig, description="Weight changes.")
    routing: Annotated[ComponentSection, ROUTER] = Field(
        default_factory=ROUTER, description="Which worker answers a request (DART: least_in_flight)."
    )
    lending: Annotated[LendingConfig, LENDING] = Field(
        default_factory=LENDING,
        description="When the trainer, which waits for data after a publication, lends its GPUs to engines.",
    )
    limits: LimitsConfig = Field(default_factory=LimitsConfig, description="Deadlines.")

    @property
    def num_engines(self) -> int:
        """Number of engines: the workers, and the last ones, on the trainer's GPUs, which it may lend."""
        return self.num_workers + self.lending.engines

    @property
    def num_desktops(self) -> int:
        """Number of desktops: one per slot, and the spares."""
        return self.num_envs + self.warm_envs
