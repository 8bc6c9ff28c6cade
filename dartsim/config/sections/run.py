"""The run itself: length, seed, measurements."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Positive, Section, Share

SinkName = Literal["tensorboard", "wandb", "trackio"]


class RunConfig(Section):
    """Length of a run, and its seed."""

    name: str | None = Field(
        None,
        pattern="^[^/]+$",
        description="What tables and folders call the run; none: its file's name without .toml, or its preset's.",
    )
    hours: float = Field(24.0, gt=0.0, le=1e6, description="Hours of the run's time, simulated or real.")
    seed: int = Field(0, ge=0, description="Seed of everything that is drawn.")
    updates: Positive | None = Field(None, description="Finished updates that end the run before its hours.")
    target_success: Share | None = Field(
        None, description="Success rate on held-out tasks that ends the run before its hours."
    )
    until_steady: float | None = Field(
        None,
        gt=0.0,
        lt=1.0,
        description="End a run before its hours once its headline figures are steady, within ± this share.",
    )
    warmup_share: Share = Field(0.2, lt=1.0, description="Share of the run at its start that figures leave out.")
    max_segments: int = Field(60_000, ge=0, description="Newest state segments kept per population for timelines.")
    sinks: list[SinkName] = Field(
        ["tensorboard"],
        description="Where updates go beside metrics.jsonl; wandb and trackio are extras with settings of their own "
        "(WANDB_MODE=offline, TRACKIO_DIR).",
    )
    keep_attempts: int = Field(
        200, ge=0, description="Newest attempts whose turns and screenshots are kept to be looked at (dartsim show)."
    )
    fail_on_alarm: bool = Field(False, description="Whether an alarm ends the run, with the alarm's exit code.")
