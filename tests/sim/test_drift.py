"""Factors that drift keep their distribution, and their memory comes back from them."""

import numpy as np
import pytest

from dartsim.sim.fitting import drifting_sampler, fit_memory
from dartsim.sim.latency import Quantiles

FACTORS = Quantiles(((0.0, 0.5), (0.5, 0.9), (1.0, 1.7)))


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_memory_and_distribution_come_back(memory):
    draw = drifting_sampler(FACTORS, memory, np.random.default_rng(1))
    drawn = [draw() for _ in range(20_000)]
    assert fit_memory(drawn) == pytest.approx(memory, abs=0.03)
    assert np.mean(drawn) == pytest.approx(FACTORS.mean, rel=0.05)
    assert np.median(drawn) == pytest.approx(0.9, rel=0.05)


def test_two_values_say_nothing_of_memory_and_alternation_is_none():
    assert fit_memory([1.0, 2.0]) == 0.0
    assert fit_memory([1.0, 2.0] * 50) == 0.0
