"""Which groups are worth training on."""

import pytest

from dartsim.config.sections.curation import GroupsConfig
from dartsim.core.types import Drop
from dartsim.curation import GroupFilter

RULE = GroupFilter()


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        ([], Drop.TOO_SMALL),
        ([1.0], Drop.TOO_SMALL),
        ([0.0, 0.0], Drop.ALL_FAILED),
        ([1.0, 1.0], Drop.ALL_SOLVED),
        ([0.5, 0.5], Drop.NO_SIGNAL),
        ([0.0, 1.0], None),
        ([0.25, 0.5], None),
        ([0.3] * 7 + [0.1 + 0.2], Drop.NO_SIGNAL),
        ([0.3, 0.3 + 3e-8], Drop.NO_SIGNAL),  # as float32 has 0.1 + 0.2
        ([1e-17, 0.0], Drop.ALL_FAILED),
        ([sum([0.1] * 10), 1.0], Drop.ALL_SOLVED),
        ([0.3, 0.301], None),
    ],
)
def test_a_group_without_signal_is_dropped_for_a_reason(made, rewards, reason):
    assert RULE.reason_to_drop([made.trajectory(n, reward) for n, reward in enumerate(rewards)]) == reason


@pytest.mark.parametrize(
    ("change", "rewards"),
    [
        ({"min_size": 1}, [0.5]),
        ({"drop_all_failed": False}, [0.0, 0.0]),
        ({"drop_solved": False}, [1.0, 1.0]),
        ({"drop_equal": False}, [0.5, 0.5]),
    ],
)
def test_each_filter_can_be_switched_off(made, change, rewards):
    trajectories = [made.trajectory(n, reward) for n, reward in enumerate(rewards)]
    assert RULE.reason_to_drop(trajectories) is not None
    assert GroupFilter(GroupsConfig(**change)).reason_to_drop(trajectories) is None
