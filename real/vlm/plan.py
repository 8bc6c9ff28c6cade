"""The model and its training as a configuration describes them; nothing is built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dartsim.config import Config
from dartsim.core.install import torch_missing

try:
    from dartsim.real.vlm import VlmConfig
    from dartsim.real.vlm.config import Decoding, PromptStyle, tiny, tiny_agent, tiny_writer
    from dartsim.real.vlm.ui_tars import SYSTEM, read_task, ui_tars_task
except ModuleNotFoundError as missing:
    raise torch_missing(missing) from None


def vlm_config(config: Config) -> VlmConfig:
    """Return the model that the configuration describes."""
    policy = config.policy
    if policy.grammar == "ui_tars":
        return _writer(config)
    make = {"clicks": tiny, "clicks_and_done": tiny_agent, "compact": tiny_writer}[policy.grammar]
    made = make(
        columns=policy.grid,
        rows=policy.grid,
        family=policy.family,
        max_images=policy.max_images,
        max_texts=policy.max_texts,
    )
    made = replace(made, prompts=replace(made.prompts, images_after_cut=policy.images_after_cut))
    return made if policy.model is None else replace(made, folder=policy.model, dtype=policy.dtype)


def _writer(config: Config) -> VlmConfig:
    """Return a model of a checkpoint's folder that writes free text in UI-TARS's form."""
    policy = config.policy
    absolute = bool(policy.action_grammar[1]["absolute"])
    text = ui_tars_task(absolute) if policy.instructions is None else read_task(Path(policy.instructions))
    return VlmConfig(
        family=policy.family,
        folder=policy.model,
        dtype=policy.dtype,
        prompts=PromptStyle(
            system=SYSTEM,
            max_images=policy.max_images,
            images_after_cut=policy.images_after_cut,
            max_texts=policy.max_texts,
            task=text,
        ),
        decoding=Decoding(temperature=policy.temperature, max_new_tokens=policy.max_new_tokens, grammar="free"),
    )
