"""A request as a conversation: the task, earlier turns with the newest screenshots, the present screenshot.

Prompts in tokens (``prompts``) and messages to an endpoint (``dartsim.real.engines.endpoint``) are both made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from dartsim.core.types import Observation, Turn
from dartsim.real.vlm.config import PromptStyle
from dartsim.real.vlm.ui_tars import shown_parts, task_parts
from dartsim.real.vlm.vocabulary import Parts
from dartsim.rollout.history import first_reply, num_images


class Message(NamedTuple):
    """One message; ``turn`` is the turn whose reply it shows, of the assistant only."""

    role: Literal["system", "user", "assistant"]
    parts: Parts = ("",)
    screenshot: Any = None
    turn: Turn | None = None


def conversation(style: PromptStyle, observation: Observation, history: Sequence[Turn]) -> Iterator[Message]:
    """Yield the messages for an observation after the turns before it, oldest first."""
    if style.system:
        yield Message("system", (style.system,))
    screens = [*(turn.observation.screenshot for turn in history), observation.screenshot]
    present = len(history)
    images, after_cut = style.max_images, style.images_after_cut
    first_image = present + 1 - num_images(present, max_images=images, after_cut=after_cut)
    first_text = first_reply(present, max_images=images, max_texts=style.max_texts, after_cut=after_cut)
    with_task = style.image_with_task and first_image == 0
    yield Message("user", task_parts(style.task, observation.instruction), screens[0] if with_task else None)
    for turn in range(min(first_image, first_text), present + 1):
        if turn >= first_image and not (turn == 0 and with_task):
            yield Message("user", screenshot=screens[turn])
        if first_text <= turn < present:
            yield Message("assistant", turn=history[turn])


def earlier_reply(style: PromptStyle, text: str) -> Parts:
    """Return a reply as later prompts show it."""
    return shown_parts(text) if style.box_tokens else (text,)
