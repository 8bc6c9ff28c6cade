"""``VlmConfig``: the vision-language model that acts, its prompts, and what it may answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dartsim.core.errors import ConfigError

Family = Literal["qwen2_5_vl", "qwen3_vl"]

_COMMON = """the a an in on to of and with into from for it is then button box field list menu window dialog item
text file name red green blue yellow orange purple grey black white"""
_VERBS = """press click double right move drag type open close select check uncheck scroll rename delete save cancel
key wait done fail up down left enter tab esc backspace space Press Click Drag Type Open Close Select Check Uncheck
Scroll user assistant system"""

WORDS = (*(f" {word}" for word in _COMMON.split()), *_VERBS.split(), "\n")
"""Single tokens of the tiny vocabulary, in addition to bytes, special tokens and actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStyle:
    """How a request becomes a prompt.

    Attributes:
        system: Text before the instruction; empty for none.
        max_images: Most screenshots in a prompt, including the present one (DART: 5).
        images_after_cut: Screenshots kept when there would be more; None: all but the oldest (DART). See
            ``dartsim.rollout.history``.
        max_texts: Most earlier replies in a prompt (DART: 35); with ``images_after_cut`` dropped when images are.
        terse: Leave out the chat template's role names and line breaks: half the tokens of a short prompt.
        task: The user's first message; ``{instruction}`` stands for the task's instruction.
        box_tokens: Show earlier replies as OSWorld's agent of UI-TARS-1.5 does, see ``dartsim.real.vlm.ui_tars``.
        image_with_task: While the first screenshot is shown, it is part of the user's first message (DART).
    """

    system: str = ""
    max_images: int = 5
    images_after_cut: int | None = None
    max_texts: int = 35
    terse: bool = False
    task: str = "{instruction}"
    box_tokens: bool = False
    image_with_task: bool = False

    def __post_init__(self) -> None:
        if "{instruction}" not in self.task:
            raise ConfigError(f"the user's first message lacks {{instruction}}: {self.task[:200]!r}")
        if self.max_images < 1 or self.max_texts < 0:
            raise ConfigError(
                f"a prompt needs max_images >= 1 and max_texts >= 0, got {self.max_images} and {self.max_texts}"
            )
        if self.images_after_cut is not None and not 1 <= self.images_after_cut <= self.max_images:
            raise ConfigError(
                f"images_after_cut must be in [1, max_images={self.max_images}], got {self.images_after_cut}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How replies are sampled. The learner computes log-probabilities of the same distribution.

    Attributes:
        temperature: Divides the logits; 1 is the model's own distribution, 0 takes the likeliest tokens.
        max_new_tokens: Limit of a reply.
        grammar: ``free``: any text up to the end-of-turn token, with grounding tokens. ``actions``: one of
            ``VlmConfig.actions``.
    """

    temperature: float = 1.0
    max_new_tokens: int = 32
    grammar: Literal["free", "actions"] = "free"

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.max_new_tokens < 1:
            raise ConfigError(
                f"wanted temperature >= 0 and max_new_tokens >= 1, got {self.temperature} and {self.max_new_tokens}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VlmConfig:
    """One model of a transformers class.

    Sizes and vocabulary are for random weights; with ``folder`` they come from there.

    Attributes:
        family: The transformers class.
        folder: A checkpoint folder as transformers saves it, or None for random weights.
        hidden_size: Width of the language model.
        intermediate_size: Width of its MLP; likewise ``vision_…`` for the vision transformer.
        num_heads: Attention heads; vLLM's CPU kernels want a head size of 32 or more.
        vision_layers: The last one attends over the whole image.
        patch_size: Pixels a side.
        merge_size: Patches a side that become one token.
        window_size: Pixels a side of a vision attention window (Qwen2.5-VL only).
        initializer_range: Standard deviation of random weights. The usual 0.02 wastes 80 updates at chance on
            such small widths (measured); 0.1 does not.
        output_scale: Factor of random output weights. At 0.1 the first policy is nearly uniform over the allowed tokens
            and tries everything; at 1 it prefers a few actions and learns later (measured).
        min_pixels: Smaller screenshots are enlarged.
        max_pixels: Larger screenshots are shrunk.
        image_mean: Mean of the three channels, in [0, 1].
        image_std: Standard deviation of the three channels.
        words: Single tokens of the vocabulary, in addition to bytes.
        actions: Whole actions that are single tokens.
    """

    family: Family = "qwen2_5_vl"
    folder: str | None = None
    hidden_size: int = 64
    intermediate_size: int = 192
    num_layers: int = 2
    num_heads: int = 2
    num_kv_heads: int = 1
    vision_hidden_size: int = 64
    vision_intermediate_size: int = 192
    vision_layers: int = 2
    vision_heads: int = 2
    patch_size: int = 14
    merge_size: int = 2
    window_size: int = 112
    initializer_range: float = 0.1
    output_scale: float = 0.1
    min_pixels: int = 28 * 28
    max_pixels: int = 1280 * 28 * 28
    image_mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    image_std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)
    words: tuple[str, ...] = WORDS
    actions: tuple[str, ...] = ()
    prompts: PromptStyle = field(default_factory=PromptStyle)
    decoding: Decoding = field(default_factory=Decoding)
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        if self.decoding.grammar == "actions" and not self.actions:
            raise ConfigError("decoding.grammar = 'actions' wants the list of actions; set VlmConfig.actions")


def grid_clicks(columns: int, rows: int) -> tuple[str, ...]:
    """Return a click on each cell of a grid, row by row, in the compact grammar of ``dartsim.envs.actions``."""
    return tuple(f"click {column} {row}" for row in range(rows) for column in range(columns))


def tiny(
    grammar: Literal["clicks", "clicks_and_done", "clicks_done_fail", "listed"] = "clicks",
    *,
    listed: Sequence[str] = (),
    columns: int = 3,
    rows: int = 3,
    family: Family = "qwen2_5_vl",
    max_images: int = 1,
    max_texts: int = 0,
) -> VlmConfig:
    """Return a model of 0.4 M parameters, for 112 x 112 pixels.

    It clicks on the cells of a grid, and says ``done`` where tasks have several turns (``clicks_and_done``), and
    ``fail`` where some are infeasible (``clicks_done_fail``); or it gives the replies of a list (``listed``). From
    random weights it learns to click by reinforcement alone, in half a minute on one core.
    """
    prompts = PromptStyle(max_images=max_images, max_texts=max_texts, terse=True)
    ends = {"clicks_and_done": ("done",), "clicks_done_fail": ("done", "fail")}
    actions = tuple(listed) if grammar == "listed" else grid_clicks(columns, rows) + ends.get(grammar, ())
    decoding = Decoding(grammar="actions", max_new_tokens=1)
    return VlmConfig(family=family, actions=actions, prompts=prompts, decoding=decoding)
