"""The configuration of a run's model; nothing is built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import torch_missing

try:
    from dartsim.real.vlm import VlmConfig
    from dartsim.real.vlm.config import Decoding, PromptStyle, tiny
    from dartsim.real.vlm.ui_tars import first_message
except ModuleNotFoundError as missing:
    raise torch_missing(missing) from None

SYSTEM = "You are a helpful assistant."
"""Qwen's default system message."""


def read_task(file: Path) -> str:
    """Return the user's first message from a file.

    Raises:
        ConfigError: If it cannot be read, or does not say where the instruction goes.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"policy.instructions = {str(file)!r} cannot be read: {error.strerror}") from None
    if "{instruction}" not in text:
        raise ConfigError(f"policy.instructions = {str(file)!r} does not say where the task goes: put {{instruction}}")
    return text.rstrip()


def vlm_config(config: Config) -> VlmConfig:
    """Return the model that the configuration describes."""
    policy = config.policy
    if policy.grammar == "ui_tars":
        return _ui_tars(config)
    vlm = tiny(
        policy.grammar,
        listed=policy.actions,
        columns=policy.grid,
        rows=policy.grid,
        family=policy.model_family,
        max_images=policy.max_images,
        max_texts=policy.max_texts,
    )
    vlm = replace(
        vlm,
        patch_size=policy.patch_size,
        merge_size=policy.merge_size,
        prompts=replace(vlm.prompts, images_after_cut=policy.images_after_cut),
        decoding=replace(vlm.decoding, temperature=policy.temperature),
    )
    return vlm if policy.model is None else replace(vlm, folder=policy.model, dtype=policy.dtype)


def _ui_tars(config: Config) -> VlmConfig:
    """Return a model from a checkpoint folder that writes free text in UI-TARS's form."""
    policy = config.policy
    absolute = bool(policy.action_grammar[1]["absolute"])
    text = first_message(policy.prompt, language=policy.language, absolute=absolute)
    if policy.instructions is not None:
        text = read_task(Path(policy.instructions))
    return VlmConfig(
        family=policy.model_family,
        folder=policy.model,
        dtype=policy.dtype,
        prompts=PromptStyle(
            system=SYSTEM,
            max_images=policy.max_images,
            images_after_cut=policy.images_after_cut,
            max_texts=policy.max_texts,
            task=text,
            box_tokens=policy.prompt != "plain",
            image_with_task=policy.prompt == "dart",
        ),
        decoding=Decoding(temperature=policy.temperature, max_new_tokens=policy.max_new_tokens, grammar="free"),
    )
