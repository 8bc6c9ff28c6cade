"""What a store that outlives the run keeps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Positive, Section


class StorageConfig(Section):
    """What a store that outlives the run keeps; see docs/storage.md."""

    durability: Literal["auto", "each", "batched"] = Field(
        "auto",
        description="When it is written: after each attempt and through to the disk, or at the latest with each batch; "
        "auto: each where desktops are booted, batched where they are computed.",
    )
    keep: Literal["all", "live", "none"] = Field(
        "live", description="Whose turns are kept: all, those of trajectories that may still be trained, or none."
    )
    screenshots: bool = Field(True, description="Whether screenshots and accessibility trees are kept with turns.")
    max_disk_gib: float | None = Field(
        None, gt=0.0, description="Most that turns and screenshots may take, GiB; what ended first makes room."
    )
    checkpoint_every_updates: Positive | None = Field(
        1,
        description="Updates between checkpoints of a model; a crash costs the updates since the last. none: never.",
    )
    keep_checkpoints: Positive = Field(2, description="Newest checkpoints kept.")
