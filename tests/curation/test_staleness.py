"""How old a trajectory may be."""

import pytest

from dartsim.config.sections.curation import StalenessConfig
from dartsim.curation import StalenessRule


@pytest.mark.parametrize(
    ("bound", "measured_by", "fresh_until"),
    [(0, "oldest", 2), (1, "oldest", 3), (0, "newest", 4), (1, "newest", 5)],
)
def test_a_trajectory_is_fresh_up_to_the_bound(made, bound, measured_by, fresh_until):
    trajectory = made.trajectory(versions=[3, (2, 4), 4])
    rule = StalenessRule(StalenessConfig(max_staleness=bound, measured_by=measured_by))
    fresh = [version for version in range(4, 9) if rule.fresh(trajectory, version)]
    assert fresh == list(range(4, fresh_until + 1))


def test_the_start_counts_whatever_the_turns_were(made):
    trajectory = made.trajectory(versions=[4, 5], version=3)
    rule = StalenessRule(StalenessConfig(max_staleness=2, measured_by="start"))
    assert rule.fresh(trajectory, 5)
    assert not rule.fresh(trajectory, 6)


@pytest.mark.parametrize(
    ("bound", "measured_by", "hopeless"), [(2, "start", [6, 7]), (None, "start", []), (2, "oldest", [])]
)
def test_what_runs_is_hopeless_once_its_start_is_too_old(bound, measured_by, hopeless):
    rule = StalenessRule(StalenessConfig(max_staleness=bound, measured_by=measured_by))
    assert [version for version in range(3, 8) if rule.hopeless(3, version)] == hopeless
