"""The headline's recorded figures against the published ones, and the runs that they come from."""

from __future__ import annotations

import pytest

from experiments.arms import arms_of, studies
from experiments.headline import PUBLISHED, prediction
from experiments.study import recorded

BAND = {"dart": 0.05, "coupled": 0.08}
"""Allowed distance from the published figures."""

UNDEFINED = ("coupled", "gpu_utilization")
"""Published without a definition; ours is given under each possible one."""


def arms(family):
    return [arm for arm in arms_of(studies()["headline"]) if arm.family == family]


def test_recorded_figures_meet_the_published_ones():
    figures = recorded("headline")
    for preset, published in PUBLISHED.items():
        for name, known in published.items():
            if (preset, name) != UNDEFINED:
                assert figures[preset][name] == pytest.approx(known, rel=BAND[preset]), (preset, name)
    assert figures["dart"]["max_staleness"] == 1
    assert figures["coupled"]["max_staleness"] == 0


def test_desktop_seconds_of_a_turn_follow_from_the_rates():
    arm = arms("other")[0]
    found = prediction(arm, {"generated_turns_per_minute": 190.0})
    assert found["predicted"] == 38 * 60.0 / 190.0
    assert found["error"] == pytest.approx(12.0 / 12.1 - 1.0)
