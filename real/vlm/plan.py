"""The configuration of a run's model; nothing is built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import torch_missing

try:
    from dartsim.real.vlm import VlmConfig
    from dartsim.real.vlm.config import Decoding, PromptStyle, tiny, tiny_agent, tiny_writer
except ModuleNotFoundError as missing:
    raise torch_missing(missing) from None


SYSTEM = "You are a helpful assistant."
"""Qwen's default system message."""

_TASK = """You work on a computer by mouse and keyboard. You are told a task, and see the newest screenshots and what
you said before. Choose the next action.

Write in this form:
Thought: ...
Action: ...

Actions, one in a reply; x and y are {unit}:
click(start_box='(x,y)')
left_double(start_box='(x,y)')
right_single(start_box='(x,y)')
drag(start_box='(x1,y1)', end_box='(x2,y2)')
scroll(start_box='(x,y)', direction='up')   up, down, left or right
type(content='...')   end with \\n to press enter
hotkey(key='ctrl c')
wait()
finished(content='...')   the task is done
call_user()   the task cannot be done

Plan in a sentence or two as your thought.

Task: {{instruction}}"""
"""The first message to a model that writes in UI-TARS's form. The words are ours; the form and the names of the actions
are UI-TARS's (``dartsim.envs.actions.ui_tars``). A model that was trained on other words does best with those:
``policy.instructions`` names a file with them."""


def ui_tars_task(absolute: bool) -> str:
    """Return the user's first message, with coordinates in pixels (``absolute``) or thousandths of the sides."""
    return _TASK.format(unit="pixels of the screenshot" if absolute else "thousandths of the screen's sides")


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
    make = {"clicks": tiny, "clicks_and_done": tiny_agent, "compact": tiny_writer}[policy.grammar]
    vlm = make(
        columns=policy.grid,
        rows=policy.grid,
        family=policy.family,
        max_images=policy.max_images,
        max_texts=policy.max_texts,
    )
    vlm = replace(vlm, prompts=replace(vlm.prompts, images_after_cut=policy.images_after_cut))
    return vlm if policy.model is None else replace(vlm, folder=policy.model, dtype=policy.dtype)


def _ui_tars(config: Config) -> VlmConfig:
    """Return a model from a checkpoint folder that writes free text in UI-TARS's form."""
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
