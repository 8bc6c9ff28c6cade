"""Vision-language models that act: configuration, prompts, sampling, and the policy that workers serve.

    Request --PromptBuilder--> Prompt --sample--> Sampled --decode--> Content(action, tokens, logprobs, entropies)

``dartsim.real.learners`` trains them. Workers and learners compute log-probabilities with the same code (``packing``)
and the same grammar, so that at equal weights they agree to rounding.
"""

from dartsim.real.vlm.config import Decoding, PromptStyle, VlmConfig, grid_clicks, tiny
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
