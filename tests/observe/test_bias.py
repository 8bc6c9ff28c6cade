"""Classes of tasks, what is trained of them, and which are starved: counts that can be worked out by hand."""

from __future__ import annotations

import pytest

from dartsim.core.types import Attempt, Batch, Drop, Ending, Group, Task, Trajectory
from dartsim.observe import Recorder
from dartsim.observe.bias import class_shares, judged_shares, least_trained, ordered, sum_counts, usable
from dartsim.observe.recorder_state import restore_state, save_state, undo_update

KEYS = ("offered", "judged", "kept", "trained", "trained_groups")


def table(**rows):
    """Counts by label, in the order of ``KEYS``."""
    return {label: dict(zip(KEYS, row, strict=True)) for label, row in rows.items()}


def test_a_class_is_measured_by_what_the_filter_leaves_of_it():
    """Of both 40 are usable; all of the short ones are trained, and a fifth of the long ones: 0.6 of all."""
    found = class_shares(table(long=(80, 40, 20, 8, 1), short=(80, 80, 40, 40, 5)))
    assert list(found) == ["short", "long"]
    assert [share.kept_share for share in found.values()] == [0.5, 0.5]
    assert [share.trained_share for share in found.values()] == [1.0, 0.2]
    assert [share.ratio for share in found.values()] == pytest.approx([1.0 / 0.6, 0.2 / 0.6])
    assert least_trained(found) == "long"


@pytest.mark.parametrize(("groups", "starved"), [(1, False), (10, True)])
def test_few_groups_starve_nobody(groups, starved):
    """A fifth of 5 usable groups may be chance (0.04 to 0.62 of them, of 0.6), a fifth of 50 is none."""
    rows = table(short=(80, 80, 40, 40, 5), long=(80, 80, 40, 8, 1))
    times = {label: {key: groups * number for key, number in row.items()} for label, row in rows.items()}
    found = class_shares(times)["long"]
    assert (found.starved, found.groups) == (starved, groups)
    assert found.low < found.ratio < found.high


def test_what_the_filter_drops_starves_nobody():
    """Of the hard tasks a tenth is left, and all of that is trained."""
    found = class_shares(table(hard=(800, 800, 80, 80, 10), middle=(800, 800, 800, 800, 100)))
    assert {label: share.ratio for label, share in found.items()} == {"hard": 1.0, "middle": 1.0}
    assert not any(share.starved for share in found.values())


def test_a_class_that_never_got_as_far_as_the_filter_is_starved_and_one_that_it_drops_whole_is_left_out():
    """Nothing was judged of the long ones, so they count as usable like the others."""
    rows = table(short=(800, 800, 400, 400, 50), middle=(80, 80, 0, 0, 0), long=(800, 0, 0, 0, 0))
    assert usable(rows) == pytest.approx({"short": 400.0, "middle": 0.0, "long": 800 * 400 / 880})
    found = class_shares(rows)
    assert {label: (share.ratio, share.starved) for label, share in found.items()} == {
        "short": (pytest.approx(1.0 + 80 / 88), False),
        "long": (0.0, True),
    }


def test_nothing_is_said_of_older_counts_nor_where_nothing_was_trained():
    assert class_shares({"long": {"offered": 3, "trained": 1}}) == {}
    assert class_shares(table(long=(8, 8, 8, 0, 0))) == {}
    assert judged_shares({"by task length": {}, "by something else": table(**{"0.1-0.2": (8, 8, 8, 8, 1)})}) == {}


def test_seeds_are_added_up_and_a_class_may_be_missing_in_one():
    one, two = table(chrome=(8, 8, 8, 8, 1)), table(chrome=(8, 8, 0, 0, 0), gimp=(4, 4, 4, 4, 1))
    assert sum_counts([{"by domain": one, "by task length": {}}, {"by domain": two}]) == {
        "by domain": table(chrome=(16, 16, 8, 8, 1), gimp=(4, 4, 4, 4, 1))
    }
    assert sum_counts([]) == {}


def test_labels_with_an_order_have_it():
    assert ordered(["easy", "hard", "middle"]) == ["hard", "middle", "easy"]
    assert ordered(["gimp", "chrome"]) == ["gimp", "chrome"]


def group(number, rewards):
    """A group of a task of its own."""
    task = Task(f"task-{number}", "do it")
    members = (
        Trajectory(Attempt(8 * number + k, task, number, k, 0, 30, 0), (), Ending.DONE, reward, None, 0.0, 1.0)
        for k, reward in enumerate(rewards)
    )
    return Group(number, task, tuple(members), 1.0)


def test_the_recorder_counts_what_was_judged_kept_and_trained():
    recorder = Recorder(lambda: 0.0, num_envs=1, num_engines=1)
    good, failed, small = group(0, (1.0, 0.0)), group(1, (0.0, 0.0)), group(2, (1.0,))
    for judged_group, reason in ((good, None), (failed, Drop.ALL_FAILED), (small, Drop.TOO_SMALL)):
        recorder.group_judged(judged_group.trajectories, reason)
    recorder.update_finished(Batch(1, 0, (good,)), {})
    assert (recorder.judged, +recorder.kept) == ({"task-0": 2, "task-1": 2}, {"task-0": 2})
    assert recorder.trained_groups == {"task-0": 1}
    again = Recorder(lambda: 0.0, num_envs=1, num_engines=1)
    restore_state(again, save_state(recorder))
    assert (again.judged, again.kept, again.trained_groups) == (recorder.judged, recorder.kept, recorder.trained_groups)
    undo_update(again, good.trajectories, 0)
    assert +again.trained_groups == {}
