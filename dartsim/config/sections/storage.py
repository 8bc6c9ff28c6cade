"""What a store that outlives the run keeps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Positive, Section


class StorageConfig(Section):
    """What a store that outlives the run keeps; see docs/operations.md."""

    durability: Literal["auto", "each", "batched"] = Field(
        "auto",
        description="When data is written: after each attempt and flushed to disk (each), or at the latest with each "
        "batch (batched); auto: each for booted desktops, batched for computed ones.",
    )
    keep: Literal["all", "live", "none"] = Field(
        "live", description="Whose turns are kept: all trajectories, those that may still be trained (live), or none."
    )
    screenshots: bool = Field(True, description="Keep screenshots and accessibility trees with turns.")
    max_disk_gib: float | None = Field(
        None, gt=0.0, description="Disk limit of turns and screenshots, GiB; the oldest are removed first."
    )
    checkpoint_every_updates: Positive | None = Field(
        1,
        description="Updates between checkpoints of a model; a crash loses those since the last; none: never.",
    )
    keep_checkpoints: Positive = Field(2, description="Number of newest checkpoints that are kept.")
