from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.cluster import RooflineConfig
from dartsim.sim.gpu import A100_80, H100, PROFILES, roofline_profile


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_table_agrees_with_the_formula(profile):
    for tokens in (1, 2, 63, 64, 65, 300, 4096, 4097, 8192):
        expected = profile.iteration_seconds(0, tokens, num_seqs=0)
        assert profile.base_seconds[tokens] == pytest.approx(expected, rel=1e-12)
    assert len(profile.base_seconds) == profile.token_budget + 1


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_a_larger_iteration_is_never_cheaper(profile):
    table = profile.base_seconds
    assert all(a < b for a, b in pairwise(table[1:]))


def test_linear_layers_meet_the_profiled_points():
    assert H100.linear_seconds(1) == 5.6e-3
    assert H100.linear_seconds(128) == 6.4e-3
    assert H100.linear_seconds(192) == pytest.approx((6.4e-3 + 9.3e-3) / 2)
    assert H100.linear_seconds(4096 + 1000) == pytest.approx(83.9e-3 + 20.4e-3)
    assert A100_80.linear_seconds(4096) == 260e-3


def test_terms_add_up():
    seconds = H100.iteration_seconds(3, 125, kv_tokens=10_000, prefill_pairs=1_000_000, num_images=2, num_seqs=4)
    parts = 6.4e-3 + 0.41e-3 + 10_000 * 22.8e-9 + 1e-3 + 84e-3 + 0.3e-3 + 4 * 12e-6
    assert seconds == pytest.approx(parts)
    assert H100.iteration_seconds(3, 125) == pytest.approx(H100.iteration_seconds(3, 125, num_seqs=4))


def test_peak_rate_is_the_best_batch_that_fits():
    crowded = H100.peak_tokens_per_second(14_800)
    largest = H100.kv_capacity_tokens // 14_800
    assert crowded == pytest.approx(largest / H100.iteration_seconds(largest, kv_tokens=largest * 14_800), rel=1e-12)
    assert crowded < H100.peak_tokens_per_second(1_000)
    with pytest.raises(ValueError, match="context_tokens"):
        H100.peak_tokens_per_second(0)


def roofline(**changes):
    numbers = {"iteration_seconds": 4e-3, "token_seconds": 2e-5, "kv_seconds": 1e-8, "pair_seconds": 1e-9}
    return roofline_profile(RooflineConfig(**numbers | changes))


def test_a_roofline_reads_weights_until_computing_takes_longer():
    profile = roofline()
    assert profile.linear_seconds(1) == profile.linear_seconds(100) == 4e-3
    assert profile.linear_seconds(4_000) == pytest.approx(4_000 * 2e-5)


@given(st.integers(1, 500), st.floats(0.0, 0.2), st.floats(0.0, 0.02))
def test_more_tokens_or_experts_never_take_less_time(tokens, share, seconds):
    profile = roofline(expert_seconds=seconds, expert_share=share)
    assert profile.linear_seconds(tokens) <= profile.linear_seconds(tokens + 1) + 1e-12
    assert profile.linear_seconds(tokens) >= roofline().linear_seconds(tokens) * 0.999
