"""The arms of the study of history screenshots, and its table."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.real.vlm.config import PromptStyle
from experiments.history_images import ARMS, arm_config


def test_the_arms_differ_in_what_a_prompt_shows_alone():
    made = {arm: arm_config(arm, 3, quick=False).model_dump() for arm in ARMS}
    shown = [config.pop("policy") for config in made.values()]
    assert made["slide"] == made["block"] == made["one image"]
    assert len({str(policy) for policy in shown}) == 3
    assert made["slide"]["run"]["seed"] == 3
    attempt = made["slide"]["rollout"]["max_turns"]
    assert ARMS["block"]["max_images"] < attempt, "nothing would be cut"


def test_the_setting_reaches_the_prompts():
    from dartsim.real.vlm.plan import vlm_config

    style = vlm_config(arm_config("block", 0, quick=False)).prompts
    assert style == PromptStyle(max_images=4, images_after_cut=2, max_texts=6, terse=True)
