"""``Vocabulary``: text to tokens and back, with the special tokens of Qwen's vision-language models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
GROUNDING = tuple(f"<|{name}_{side}|>" for name in ("object_ref", "box", "quad") for side in ("start", "end"))
"""Special tokens that models write: UI-TARS-1.5 puts coordinates between box tokens."""

Parts = tuple[str, ...]
"""Text, control token, text, and so on; elements at odd indices are names of control tokens."""


class Vocabulary:
    """A tokenizer of the transformers library, and the special tokens of a prompt.

    Invariant: no text, whatever it spells, is encoded as a control token; only ``spell`` writes those that it is given.

    Attributes:
        size: Number of tokens.
        special: Tokens of the chat template and of images, which no reply holds.
        grounding: Tokens of ``GROUNDING``, which replies may hold although tokenizers call them special.
        pad, start, end, vision_start, vision_end, image, video: Single tokens, by Qwen's names.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._backend = _text_only(tokenizer.backend_tokenizer)
        self._known = known = tokenizer.get_vocab()
        self.size = max(known.values()) + 1
        ids = [tokenizer.convert_tokens_to_ids(token) for token in SPECIAL]
        self.pad, self.start, self.end, self.vision_start, self.vision_end, self.image, self.video = ids
        self.grounding = frozenset(known[token] for token in GROUNDING if token in known)
        self.special = (frozenset(tokenizer.all_special_ids) | frozenset(ids)) - self.grounding
        self.encode = lru_cache(maxsize=4_096)(self._encode)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def spell(self, parts: Parts) -> tuple[int, ...]:
        """Return the tokens of text and control tokens; one that the tokenizer does not have becomes text."""
        tokens: list[int] = []
        for place, part in enumerate(parts):
            tokens += (self._known[part],) if place % 2 and part in self._known else self.encode(part)
        return tuple(tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens without special ones; grounding tokens stay."""
        kept = [number for token in tokens if (number := int(token)) not in self.special]
        return str(self._backend.decode(kept, skip_special_tokens=False))

    def texts(self) -> list[str]:
        """Return each token's text, by number: that of one in the middle of a character is a replacement character."""
        return self._backend.decode_batch([[token] for token in range(self.size)], skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(str(folder))


def _text_only(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that reads no control token in a text: no special one, and no other that is written ``<…>``.

    Models also have such tokens that tokenizers do not call special, as ``<tool_call>``.
    """
    copy = Tokenizer.from_str(tokenizer.to_str())
    names = [token.content for token in copy.get_added_tokens_decoder().values()]
    copy.add_special_tokens([AddedToken(n, normalized=False) for n in names if n[:1] == "<" and n[-1:] == ">"])
    copy.encode_special_tokens = True
    return copy


def tiny_vocabulary(words: Sequence[str], actions: Sequence[str]) -> Vocabulary:
    """Return a vocabulary of the special tokens, the 256 bytes, and one token a word or action."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *alphabet]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(w, normalized=False) for w in dict.fromkeys((*words, *actions)) if w])
    return Vocabulary(
        PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=tokenizer,
            pad_token="<|endoftext|>",
            eos_token="<|im_end|>",
            additional_special_tokens=list(SPECIAL[1:]),
            clean_up_tokenization_spaces=False,
        )
    )


def vocabulary_from(folder: Path) -> Vocabulary:
    """Return the vocabulary of a checkpoint folder."""
    return Vocabulary(AutoTokenizer.from_pretrained(str(folder), local_files_only=True))
