"""Faults of the modeled cluster."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dartsim.core.section import Positive, Seconds, Section, Share


class FaultKindConfig(Section):
    """Rate and length of one kind of fault, in place of its profile's."""

    share: Share | None = Field(None, description="Share of the calls that fail; none: as in the profile.")
    per_hour: float | None = Field(
        None,
        ge=0.0,
        description="Faults an hour of each member of its scope (`dartsim config --list faults`); none: the profile's.",
    )
    lasts_seconds: dict[str, Any] | Seconds | None = Field(
        None, description="Duration: seconds or a distribution; none: the kind's own."
    )


class FaultWindow(Section):
    """Faults of one kind at a scheduled time, in addition to random ones."""

    kind: str = Field(description="Kind of fault; see `dartsim config --list faults`.")
    at_seconds: Seconds = Field(description="When the window opens.")
    lasts_seconds: Seconds | None = Field(
        None, description="Duration of the window, or of the affected call; none: drawn."
    )
    target: int | None = Field(
        0, ge=0, description="Number of the affected desktop, host, worker or pair, modulo their count; none: all."
    )
    times: Positive | None = Field(
        1, description="How many of the next calls are affected; none: all calls until the window closes."
    )

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.times is None and self.lasts_seconds is None:
            raise ValueError("a fault window without `times` needs lasts_seconds")
        return self

    @property
    def end_seconds(self) -> float:
        """When the window closes; None unless its length is set."""
        return self.at_seconds + (self.lasts_seconds or 0.0)

    def includes(self, target: int, num_members: int) -> bool:
        """Return whether it affects a member of the kind's scope."""
        return self.target is None or self.target % num_members == target


class FaultsConfig(Section):
    """Faults of the modeled cluster; none by default, as in the calibration."""

    profile: Literal["none", "calm", "osworld", "hostile"] = Field(
        "none", description="Named rates of all kinds of faults; see `dartsim config --list faults`."
    )
    scale: float = Field(1.0, ge=0.0, description="Factor of the profile's rates.")
    heal_after_hours: float | None = Field(
        None, ge=0.0, description="After this time all faults end and no more are injected; none: never."
    )
    kinds: dict[str, FaultKindConfig] = Field(
        default_factory=dict, description="Rates of single kinds, one table per kind."
    )
    schedule: list[FaultWindow] = Field(default_factory=list, description="Faults at set times.")
