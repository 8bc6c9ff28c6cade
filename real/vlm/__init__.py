"""Vision-language models that act: configuration, prompts, sampling, and the policy that workers serve.

    Request --PromptBuilder--> Prompt --sample--> Sampled --decode--> Content(action, tokens, logprobs, entropies)

``dartsim.real.learners`` trains them. Workers and learners compute log-probabilities with the same code (``packing``)
and the same grammar, so that at equal weights they agree to rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dartsim.real.vlm.config import Decoding, PromptStyle, VlmConfig, grid_clicks, tiny

if TYPE_CHECKING:
    from dartsim.real.vlm.model import Vlm, build
    from dartsim.real.vlm.policy import VlmPolicy

__all__ = [
    "Decoding",
    "PromptStyle",
    "Vlm",
    "VlmConfig",
    "VlmPolicy",
    "build",
    "grid_clicks",
    "tiny",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch only when it is asked for: prompts in text do not."""
    from importlib import import_module

    module = {"Vlm": "model", "build": "model", "VlmPolicy": "policy"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
