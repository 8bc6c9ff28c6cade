"""The objective's settings: the paper's by default, the released code's in its preset."""

from typing import Any

import pytest

from dartsim.config import load
from dartsim.config.sections.trainer import ADVANTAGE, ObjectiveConfig


def test_the_defaults_are_the_paper_s():
    paper = ObjectiveConfig()
    assert load(preset_name="dart").trainer.objective == paper
    assert (paper.ratio, paper.clip_low, paper.clip_high) == ("token", 0.2, 0.28)
    assert (paper.kl_coefficient, paper.importance, paper.importance_cap) == (0.1, "token", 1.0)
    assert paper.aggregation == "turn"
    assert (paper.advantage.level, paper.advantage.spread) == ("turn", "biased")


def test_the_released_code_differs_from_the_paper_in_exactly_these():
    advantage = ADVANTAGE().replace(spread="unbiased", epsilon=1e-6, lone_sample="reward")
    released = ObjectiveConfig(ratio="sequence", clip_low=0.1, missing="one", advantage=advantage)
    assert load(preset_name="dart-released").trainer.objective == released


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_low": 1.5}, "less than or equal to 1"),
        ({"clip_high": -0.1}, "greater than or equal to 0"),
        ({"kl_coefficient": -1.0}, "greater than or equal to 0"),
        ({"importance_cap": 0.0}, "greater than 0"),
    ],
)
def test_a_value_out_of_range_is_refused(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        ObjectiveConfig().replace(**change)
