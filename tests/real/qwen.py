"""A tokenizer with Qwen2.5-VL's special tokens at their real ids, and models that read and write with it."""

from functools import lru_cache

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dartsim.real.vlm import Decoding, PromptStyle, VlmConfig, build
from dartsim.real.vlm.vocabulary import Vocabulary

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
FIRST = 151_643
"""Id of the first special token; those before it are text."""
BOX_START, BOX_END, IMAGE = 151_648, 151_649, 151_655


@lru_cache(maxsize=1)
def qwen_vocabulary() -> Vocabulary:
    """Return a vocabulary of single bytes, of tokens that no text uses, and of Qwen's special tokens and one more."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(f"unused {number}" for number in range(FIRST - len(alphabet)))]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])  # not special, as in Qwen's file
    return Vocabulary(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token="<|endoftext|>",
            eos_token="<|im_end|>",
            additional_special_tokens=list(SPECIAL[1:]),
            clean_up_tokenization_spaces=False,
        )
    )


def qwen_model(style: PromptStyle, *, max_new_tokens: int = 200, seed: int = 0, **fields):
    """Return a tiny model with random weights and Qwen's special tokens that writes free text."""
    decoding = Decoding(grammar="free", max_new_tokens=max_new_tokens)
    config = VlmConfig(prompts=style, decoding=decoding, hidden_size=32, num_heads=1, num_kv_heads=1, **fields)
    return build(config, seed=seed, vocabulary=qwen_vocabulary())
