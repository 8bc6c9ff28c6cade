"""When there is a batch, and what it takes."""

from dartsim.curation import BatchRule


def test_a_batch_waits_for_enough_groups_and_takes_the_longest_ready():
    rule = BatchRule(min_groups=2, max_groups=3)
    assert list(rule.select([])) == []
    assert list(rule.select(["a"])) == []
    assert list(rule.select(["a", "b"])) == ["a", "b"]
    assert list(rule.select(["a", "b", "c", "d"])) == ["a", "b", "c"]
