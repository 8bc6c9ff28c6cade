"""What a persistent store keeps."""

from __future__ import annotations

from pydantic import Field

from dartsim.core.section import Positive, Section


class StorageConfig(Section):
    """What a persistent store keeps; see docs/operations.md."""

    checkpoint_every_updates: Positive | None = Field(
        1,
        description="Updates between checkpoints of a model; a crash loses those since the last; none: never.",
    )
