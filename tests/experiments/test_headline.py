"""The headline's recorded figures against the published ones, and the runs that they come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.arms import arms_of, run_cluster, studies
from experiments.headline import DECLARED, PUBLISHED, prediction
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


def test_recorded_figures_say_what_made_them():
    figures = recorded("headline")
    assert {"seeds", "config", "commit", "versions", "machine", "published", "other_runs"} <= set(figures)
    assert set(figures["dart"]) >= {*DECLARED["figures"], "max_staleness"}
    named = [(run["name"], run["figure"], run["measured"]) for run in figures["other_runs"]]
    assert named == [
        (arm.names["name"], arm.keys["figure"], pytest.approx(arm.keys["known"], rel=1e-4)) for arm in arms("other")
    ]


@pytest.mark.parametrize("arm", arms("headline"), ids=lambda arm: arm.label)
def test_a_small_run_gives_the_recorded_picture(arm):
    """Three hours of one seed lie near the recorded means of three days."""
    found = run_cluster(replace(arm, hours=3.0).cluster(0))
    known = recorded("headline")[arm.names["arm"]]
    for figure in ("env_utilization", "gpu_utilization", "trajectories_per_minute"):
        assert found[figure] == pytest.approx(known[figure], rel=0.2), figure


def test_desktop_seconds_of_a_turn_follow_from_the_rates():
    arm = arms("other")[0]
    found = prediction(arm, {"generated_turns_per_minute": 190.0})
    assert found["predicted"] == 38 * 60.0 / 190.0
    assert found["error"] == pytest.approx(12.0 / 12.1 - 1.0)
