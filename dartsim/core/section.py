"""``Section``: the base class of every parameter object and every table of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]
Deadline = Annotated[float, Field(gt=0.0)]
"""Longest time of a call, seconds."""
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Fuzzed:
    """Values that ``dartsim fuzz`` tries in place of those that follow from a field's type, the simplest first."""

    values: tuple[str | int | float | bool | None, ...] = ()


NONE = "none"
"""Value of a setting that is absent; TOML has no null."""


class Section(BaseModel):
    """Parameters of one component: frozen, strict, no unknown keys, every number finite.

    A component takes its section as a whole. Each field's description has its unit and the source of its default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_none(cls, values: Any) -> Any:
        """Read the word ``none`` as None in optional settings and free-form tables."""
        if not isinstance(values, Mapping):
            return values
        read = dict(values)
        for name, value in values.items():
            if value != NONE and not isinstance(value, dict):
                continue
            members = get_args(cls.model_fields[name].annotation) if name in cls.model_fields else ()
            if value == NONE and type(None) in members:
                read[name] = None
            elif Any in members and isinstance(value, dict):  # dict[str, Any]
                read[name] = {key: None if each == NONE else each for key, each in value.items()}
        return read

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with changed values; a mapping changes values inside the section it names."""
        values = dict(self)
        for name, value in changes.items():
            now = values.get(name)
            values[name] = now.replace(**value) if isinstance(now, Section) and isinstance(value, Mapping) else value
        return type(self)(**values)
