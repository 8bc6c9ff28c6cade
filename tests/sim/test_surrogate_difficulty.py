import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import ConfigError
from dartsim.core.types import Task
from dartsim.sim.task_difficulties import (
    ALWAYS_SOLVED,
    DECILES,
    DOMAINS,
    LENGTH_SD,
    NEVER_SOLVED,
    PUBLISHED,
    by_domain,
    deciles,
    difficulties,
)

# Tasks a domain in OSWorld's list without Google Drive, in the order of DOMAINS.
COUNTS = (46, 26, 47, 47, 23, 93, 24, 15, 17, 23)


def rng(seed=0):
    return np.random.default_rng(seed)


def osworld():
    return [
        Task(f"{domain}-{i}", "…", domain) for domain, count in zip(DOMAINS, COUNTS, strict=True) for i in range(count)
    ]


def test_181_tasks_have_the_measured_deciles_exactly():
    rates = np.array(deciles(181, rng()))
    counts = np.bincount(np.minimum((rates * 10).astype(int), 9), minlength=10)
    assert tuple(counts) == DECILES
    assert ((rates == 0).sum(), (rates == 1).sum()) == (NEVER_SOLVED, ALWAYS_SOLVED)
    assert rates.mean() == pytest.approx(0.559, abs=0.002)  # measured: .559
    assert (rates > 0.6).sum() == 96  # measured: 96


def test_only_the_order_is_left_to_chance():
    one, other = deciles(100, rng(1)), deciles(100, rng(2))
    assert one != other
    assert sorted(one) == sorted(other)
    assert one == deciles(100, rng(1))


@given(st.integers(100, 400), st.floats(0.2, 0.85))
def test_a_wanted_mean_is_met_and_the_extremes_stay(num_tasks, mean):
    natural, rates = np.array(deciles(num_tasks, rng())), np.array(deciles(num_tasks, rng(), mean))
    assert rates.mean() == pytest.approx(mean, abs=1e-9)
    assert ((rates == 0) == (natural == 0)).all()
    assert ((natural == 1) <= (rates == 1)).all()
    assert (np.argsort(rates) == np.argsort(natural)).mean() > 0.99


@pytest.mark.parametrize("mean", [0.0, 0.05, 0.95, 1.0])
def test_a_mean_out_of_reach_is_refused(mean):
    with pytest.raises(ConfigError, match=r"lies between 0\.116 and 0\.906"):
        deciles(181, rng(), mean)


def test_each_domain_has_its_published_mean():
    tasks = osworld()
    rates = by_domain(tasks, rng())
    for domain, published in zip(DOMAINS, PUBLISHED, strict=True):
        own = [rate for task, rate in zip(tasks, rates, strict=True) if task.domain == domain]
        assert np.mean(own) == pytest.approx(published / 100, abs=1e-9)
        assert np.std(own) > 0.15
    assert 0 <= min(rates) <= max(rates) <= 1


def test_a_tasks_rate_does_not_depend_on_the_order_of_the_list():
    tasks = osworld()
    forward = dict(zip([t.id for t in tasks], by_domain(tasks, rng()), strict=True))
    backward = dict(zip([t.id for t in reversed(tasks)], by_domain(tasks[::-1], rng()), strict=True))
    assert forward == backward


def test_difficulties_have_length_factors_of_mean_one():
    tasks = [Task(str(i), "…") for i in range(5000)]
    found = difficulties(tasks, rng(), mean=0.594)
    factors = np.array([found[task.id].length_factor for task in tasks])
    assert factors.mean() == pytest.approx(1, abs=0.02)
    assert factors.std() == pytest.approx(LENGTH_SD, abs=0.02)
    assert np.mean([d.success_rate for d in found.values()]) == pytest.approx(0.594, abs=1e-9)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ConfigError, match="'generated'"):
        by_domain([Task("a", "…")], rng())
    with pytest.raises(ConfigError, match="num_tasks"):
        deciles(0, rng())
