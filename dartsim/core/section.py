"""``Section``: the base class of every parameter object, and so of every table of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]
Deadline = Annotated[float, Field(gt=0.0)]
"""Longest time of a call, seconds."""
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Parameters of one component: frozen, strict, no unknown keys, every number finite.

    A component takes its section as it is; nothing is copied field by field. Each field has a description with its
    unit and the source of its default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values, which are validated; a mapping replaces values of the section it names."""
        values = dict(self)
        for name, value in changes.items():
            now = values.get(name)
            values[name] = now.replace(**value) if isinstance(now, Section) and isinstance(value, Mapping) else value
        return type(self)(**values)
