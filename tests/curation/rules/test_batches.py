"""When there is a batch, and what it takes."""

from dataclasses import replace

from dartsim.core.registry import parameters
from dartsim.curation import RunningGroup


def batch_rule(order="ready", **sizes):
    return parameters("batch", order)(**sizes).build()


def numbers(chosen):
    return [group.id for group in chosen]


def ready_in_order(made, *ids, versions=None):
    """Groups that became ready in this order, of these versions."""
    return [
        replace(
            made.group(number),
            trajectories=(made.trajectory(number, versions=[versions[number] if versions else 0]),),
            ready=float(place),
        )
        for place, number in enumerate(ids)
    ]


def test_the_oldest_weights_come_first_then_what_was_begun_first(made):
    rule = batch_rule("weights", min_groups=1, max_groups=3)
    versions = {1: 5, 2: 4, 3: 5, 4: 6}
    assert numbers(rule.select(ready_in_order(made, 4, 3, 1, 2, versions=versions))) == [2, 1, 3]


def test_in_order_waits_for_every_group_that_began_before(made):
    rule = batch_rule("in_order", min_groups=2, max_groups=2)
    eligible = ready_in_order(made, 2, 0, 3)
    assert numbers(rule.select(eligible, [RunningGroup(1, 0)])) == []
    assert numbers(rule.select(eligible, [RunningGroup(3, 0)])) == [0, 2]
    assert numbers(rule.select(eligible)) == [0, 2]


def test_a_batch_waits_for_running_groups_of_an_age(made):
    rule = batch_rule(min_groups=1, max_groups=1, wait_age=3)
    eligible = ready_in_order(made, 0)
    assert numbers(rule.select(eligible, [RunningGroup(1, 4)], version=6)) == [0]
    assert numbers(rule.select(eligible, [RunningGroup(1, 4)], version=7)) == []
    assert rule.looks_at_running
    assert not batch_rule().looks_at_running
