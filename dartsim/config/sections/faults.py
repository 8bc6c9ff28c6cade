"""Faults of the modeled cluster."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dartsim.core.section import Positive, Seconds, Section, Share


class FaultKindConfig(Section):
    """Another rate or length of one kind of fault than its profile's."""

    share: Share | None = Field(None, description="Of the calls that it can affect; none: the profile's.")
    per_hour: float | None = Field(
        None, ge=0.0, description="Of each member of its scope (`dartsim faults` says which); none: the profile's."
    )
    lasts_seconds: dict[str, Any] | Seconds | None = Field(
        None, description="How long it lasts: seconds or a distribution; none: the kind's own."
    )


class FaultWindow(Section):
    """Faults of one kind at a set time, in addition to those at a rate."""

    kind: str = Field(description="Which; see `dartsim faults`.")
    at_seconds: Seconds = Field(description="When the window opens.")
    lasts_seconds: Seconds | None = Field(
        None, description="How long the window, or the call that it affects, lasts; none: drawn."
    )
    target: int | None = Field(
        0, ge=0, description="Which desktop, host, worker or pair of components, modulo their number; none: all."
    )
    times: Positive | None = Field(
        1, description="Calls that it affects, the next ones; none: all calls in the window, until it closes."
    )

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.times is None and self.lasts_seconds is None:
            raise ValueError("a fault window without `times` needs lasts_seconds")
        return self

    @property
    def end_seconds(self) -> float:
        """When the window closes, if its length is set."""
        return self.at_seconds + (self.lasts_seconds or 0.0)

    def includes(self, target: int, num_members: int) -> bool:
        """Whether it affects a member of the kind's scope."""
        return self.target is None or self.target % num_members == target


class FaultsConfig(Section):
    """Faults of the modeled cluster; none by default, as in the calibration."""

    profile: Literal["none", "calm", "osworld", "hostile"] = Field(
        "none", description="Named rates of all kinds of faults; see `dartsim faults`."
    )
    scale: float = Field(1.0, ge=0.0, description="What the profile's rates are multiplied by.")
    heal_after_hours: float | None = Field(
        None, ge=0.0, description="When all faults end, and no more are injected; none: never."
    )
    kinds: dict[str, FaultKindConfig] = Field(
        default_factory=dict, description="Other rates of single kinds, a table each by name."
    )
    schedule: list[FaultWindow] = Field(default_factory=list, description="Windows of faults at set times.")
