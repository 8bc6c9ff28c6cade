"""The run itself: its length, its seed, its measurements."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Positive, Section, Share

SteadyFigure = Literal[
    "trained_turns_per_minute",
    "signal_turns_per_minute",
    "admitted_turns_per_minute",
    "generated_turns_per_minute",
    "trajectories_per_minute",
    "env_utilization",
    "gpu_utilization",
    "trainer_utilization",
]
"""Figures that are rates or shares of time."""


class RunConfig(Section):
    """Length of a run, and its seed."""

    name: str | None = Field(
        None,
        pattern="^[^/]+$",
        description="What tables and folders call the run; none: its file's name without .toml, or its preset's.",
    )
    hours: float = Field(24.0, gt=0.0, description="Hours of the run's time, simulated or real.")
    seed: int = Field(0, ge=0, description="Seed of everything that is drawn.")
    updates: Positive | None = Field(None, description="Finished updates that end the run before its hours.")
    target_success: Share | None = Field(
        None, description="Success rate on held-out tasks that ends the run before its hours."
    )
    until_steady: bool = Field(
        False, description="Whether a run ends before its hours once its steady_figures are known with the precision."
    )
    steady_figures: list[SteadyFigure] = Field(
        ["trained_turns_per_minute", "env_utilization", "gpu_utilization"],
        min_length=1,
        description="until_steady: figures whose intervals count (nominally 95 %).",
    )
    precision: float = Field(
        0.01, gt=0.0, lt=1.0, description="until_steady: largest half width of an interval, as a share of its figure."
    )
    warmup_share: Share = Field(0.2, description="Share of the run at its start that figures leave out.")
    fail_on_alarm: bool = Field(False, description="Whether an alarm ends the run, with the alarm's exit code.")


class RecorderConfig(Section):
    """Sizes of what is recorded."""

    max_segments: int = Field(60_000, ge=0, description="Newest state segments kept per population for timelines.")
    max_requests: int = Field(
        20_000, ge=0, description="Newest requests kept for the flows of the Perfetto trace, turn to update."
    )
    max_snapshots: int = Field(400, ge=10, description="Points of the figures over time.")
