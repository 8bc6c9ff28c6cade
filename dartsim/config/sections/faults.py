"""Faults of the modelled cluster."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dartsim.core.section import Positive, Seconds, Section, Share


class FaultKindConfig(Section):
    """Another rate or length of one kind of fault than its profile's."""

    share: Share | None = Field(None, description="Of the calls that it can strike; none: the profile's.")
    per_hour: float | None = Field(
        None, ge=0.0, description="Of each part that it can strike (`dartsim faults` says which); none: the profile's."
    )
    lasts_seconds: dict[str, Any] | Seconds | None = Field(
        None, description="How long it lasts: seconds or a distribution; none: the kind's own."
    )


class StrikeConfig(Section):
    """One fault at a set time, in addition to those that are drawn."""

    kind: str = Field(description="Which; see `dartsim faults`.")
    at_seconds: Seconds = Field(description="When: the next calls after it, or the moment in which it begins.")
    lasts_seconds: Seconds | None = Field(None, description="How long it lasts; none: drawn.")
    target: int = Field(0, ge=0, description="Which desktop, host, worker or pair of parts, modulo their number.")
    times: Positive = Field(1, description="Calls that it strikes, if it strikes calls.")


class FaultsConfig(Section):
    """Faults of the modelled cluster; none by default, as in the calibration."""

    profile: Literal["none", "calm", "osworld", "hostile"] = Field(
        "none", description="Named rates of all kinds of faults; see `dartsim faults`."
    )
    scale: float = Field(1.0, ge=0.0, description="What the profile's rates are multiplied with.")
    heal_after_hours: float | None = Field(
        None, ge=0.0, description="When nothing strikes any more and what lasts ends; none: never."
    )
    kinds: dict[str, FaultKindConfig] = Field(
        default_factory=dict, description="Other rates of single kinds, a table each by name."
    )
    schedule: list[StrikeConfig] = Field(default_factory=list, description="Single faults at set times.")
    start_failure_share: Share = Field(0.0, description="Starts of a desktop that fail.")
    step_failure_share: Share = Field(0.0, description="Actions on which the desktop breaks.")
    score_failure_share: Share = Field(0.0, description="Scores that the evaluator cannot give.")
    load_failure_share: Share = Field(0.0, description="Weight loads that fail.")
    update_failure_share: Share = Field(0.0, description="Updates that fail half-way.")
    outage_every_hours: float | None = Field(None, gt=0, description="Mean time between trainer outages.")
    outage_hours: float = Field(1.0, gt=0, description="Length of an outage (DART history: 1.7 to 4.3 h).")
