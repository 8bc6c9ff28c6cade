"""What every section is, and the kinds of numbers in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]
Deadline = Annotated[float, Field(gt=0.0)]
"""Longest time of a call, seconds."""
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the configuration: frozen, strict, no unknown keys, every number finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
