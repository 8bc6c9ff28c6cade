"""The named settings, and what differs between them. Needs no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dartsim.trainer.objective_config import (
    DART_PAPER,
    DART_RELEASED,
    DART_RELEASED_PPO,
    ObjectiveConfig,
    differences,
)


def test_the_papers_settings():
    assert (DART_PAPER.ratio, DART_PAPER.clip_low, DART_PAPER.clip_high) == ("token", 0.2, 0.28)
    assert (DART_PAPER.kl_coefficient, DART_PAPER.importance, DART_PAPER.importance_cap) == (0.1, "token", 1.0)
    assert (DART_PAPER.aggregation, DART_PAPER.mask_covers_kl) == ("turn", True)
    assert (DART_PAPER.advantage.level, DART_PAPER.advantage.spread) == ("turn", "biased")


def test_the_released_code_differs_from_the_paper_in_exactly_these():
    assert differences(DART_PAPER, DART_RELEASED) == {
        "ratio": ("token", "sequence"),
        "clip_low": (0.2, 0.1),
        "missing": ("mask", "one"),
        "advantage.spread": ("biased", "unbiased"),
        "advantage.epsilon": (0.0, 1e-6),
        "advantage.lone_sample": ("zero", "reward"),
    }


def test_the_released_alternative_is_ppo_with_a_dual_clip():
    assert differences(DART_RELEASED, DART_RELEASED_PPO) == {
        "ratio": ("sequence", "token"),
        "dual_clip": (None, 10.0),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_low": 1.5}, r"clip_low must be in \[0, 1\], got 1.5"),
        ({"clip_high": -0.1}, "clip_high must be at least 0"),
        ({"dual_clip": 1.0}, "dual_clip must be more than 1, or None, got 1.0"),
        ({"kl_coefficient": -1.0}, "kl_coefficient must be at least 0"),
        ({"importance_cap": 0.0}, "importance_cap must be positive"),
        ({"log_ratio_limit": 0.0}, "log_ratio_limit must be positive"),
    ],
)
def test_a_value_out_of_range_is_refused(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        replace(ObjectiveConfig(), **change)
