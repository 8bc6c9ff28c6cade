"""The gate: how often the sequential test is wrong and what it costs, and that no failed run passes for a figure."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import dartsim
from dartsim.core.errors import NothingTrained
from dartsim.lab.comparison import student_t
from dartsim.lab.gate import ERROR, Comparison, write_junit

CONDITION = "trained_turns_per_minute < 10"


def drawn(values) -> Comparison:
    """Return a comparison of three seeds whose others are there already."""

    def with_seeds(count, names=("mine",)):
        rows = {"mine": [{"trained_turns_per_minute": float(value)} for value in values[:count]]}
        replay = {("mine", seed): f"run {seed}" for seed in range(count)}
        return Comparison(("mine",), tuple(range(count)), rows, replay, with_seeds)

    return with_seeds(3)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 19, 30])
@pytest.mark.parametrize("level", [0.5, 0.05, 0.0075, 1e-4])
def test_student_t_is_that_of_scipy(freedom, level):
    stats = pytest.importorskip("scipy.stats")
    assert student_t(level, freedom) == pytest.approx(stats.t.isf(level / 2.0, freedom), rel=1e-9)


@pytest.mark.parametrize(
    ("effect", "fails", "passes", "seeds"),
    [(0.0, 0.021, 0.022, 19.6), (-1.0, 0.969, 0.0, 12.8), (-2.0, 1.0, 0.0, 6.9), (2.0, 0.0, 1.0, 6.9)],
)
def test_decisions_are_as_often_wrong_as_stated_and_a_clear_difference_is_found(effect, fails, passes, seeds):
    """``effect``: the true difference in standard deviations of one seed's; at 0, either decision is wrong."""
    rng = np.random.default_rng(0)
    ended = [drawn(10.0 + effect + rng.standard_normal(20)).decide([CONDITION]) for _ in range(2000)]
    decisions = np.array([(result.holds, result.passed, len(now.seeds)) for now, (result,) in ended])
    found = decisions.mean(axis=0)
    assert found == pytest.approx([fails, passes, seeds], abs=0.01, rel=0.02)
    if effect == 0.0:
        assert found[0] + found[1] <= ERROR


def arms(values) -> Comparison:
    """Return a comparison of three seeds of each arm, whose others are there already."""
    rows = {name: [] for name in values}

    def with_seeds(count, names):
        for name in names:
            rows[name] = [{"trained_turns_per_minute": float(value)} for value in values[name][:count]]
        return Comparison(tuple(values), tuple(range(max(map(len, rows.values())))), dict(rows), {}, with_seeds)

    return with_seeds(3, values)


def test_a_decided_order_is_wrong_as_rarely_as_stated_and_arms_apart_from_all_others_stop():
    rng = np.random.default_rng(0)
    true = {"a": 14.0, "b": 10.0, "c": 9.0, "d": 9.0}
    wrong = []
    for _ in range(400):
        common = rng.standard_normal(20)
        noise = {name: 0.1 * rng.standard_normal(20) for name in true}
        now, undecided = arms({name: mean + common + noise[name] for name, mean in true.items()}).rank()
        order = [rank.scheduler for rank in now.ranking()]
        wrong.append(("c", "d") not in undecided or order[:2] != ["a", "b"])
        assert len(now.figures["a"]) <= 5 < len(now.figures["c"])
    assert np.mean(wrong) <= ERROR


def test_arms_with_fewer_seeds_are_ranked_by_those_that_they_share():
    easy_later = np.repeat([0.0, 50.0], [3, 17])
    noise = 0.1 * np.random.default_rng(0).standard_normal((3, 20))
    now, _ = arms(dict(zip("abc", easy_later + np.array([[14.0], [10.0], [10.0]]) + noise, strict=True))).rank()
    assert now.ranking()[0].scheduler == "a"
    assert now.mean("a", "trained_turns_per_minute") < now.mean("b", "trained_turns_per_minute")
    assert now.result("trained_turns_per_minute < b").passed


def test_an_undecided_condition_fails_a_test_and_its_case(tmp_path):
    even = drawn([9.0, 11.0] * 10)
    with pytest.raises(AssertionError, match="is not decided by 20 seeds"):
        even.fail_if(CONDITION)
    with pytest.raises(AssertionError, match="is not decided by 5 seeds"):
        even.fail_if(CONDITION, max_seeds=5)
    drawn([12.0, 12.1, 12.2] * 7).fail_if(CONDITION)
    now, results = even.decide([CONDITION])
    write_junit(now, results, tmp_path / "gate.xml")
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")


@dartsim.register("admission", "gate-never")
class Never(dartsim.AdmissionRule):
    """Never admits anything."""

    def blocked_by(self, counts):
        return "the moon is full"


def test_a_scheduler_that_trains_nothing_has_no_figures_and_fails_every_gate(tmp_path):
    short = {"run.hours": 0.2}
    never = dartsim.load("areal-eta4", admission=Never)
    with pytest.raises(NothingTrained, match=r"no attempt was admitted in .*: the moon is full") as failed:
        dartsim.simulate(never, on="laptop", overrides=short)
    assert failed.value.result.generated_turns_per_minute == 0.0
    for schedulers in ({"never": never, "good": "areal-eta4"}, {"good": "areal-eta4", "never": never}):
        comparison = dartsim.compare(schedulers, on="laptop", seeds=2, overrides=short)
        assert [rank.scheduler for rank in comparison.ranking()] == ["good", "never"]
        assert re.match("failed: never, seed 0: .*the moon is full", comparison.ranking()[1].verdict)
        with pytest.raises(NothingTrained, match="the moon is full"):
            comparison.mean("never", "env_utilization")
        other = comparison.schedulers[1]
        with pytest.raises(AssertionError, match="cannot be judged: never, seed 0: "):
            comparison.fail_if(f"trained_turns_per_minute < 0.1 * {other}")
        now, results = comparison.decide([f"trained_turns_per_minute < 0.1 * {other}"])
        write_junit(now, results, tmp_path / "gate.xml")
        assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("failures") == "2"
