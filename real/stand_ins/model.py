"""A stand-in for a model that is not here: its prompts, screenshots and replies in tokens, with tiny weights."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from dartsim.config import Config
from dartsim.core.image_size import PUBLISHED, resize_rules
from dartsim.real.vlm import Vlm, build
from dartsim.real.vlm.config import WORDS
from dartsim.real.vlm.export import export
from dartsim.real.vlm.plan import vlm_config
from dartsim.real.vlm.ui_tars import reply_parts
from dartsim.real.vlm.vocabulary import GROUNDING, tiny_vocabulary, vocabulary_from

REPLY_TOKENS = 104
"""Mean length of a reply (DART's history)."""
REPLIES = 64
"""Different replies."""
FINISHED_SHARE = 1 / 14
"""Share of the replies that end an attempt: DART's attempts took 14.3 turns."""


def write_stand_in(config: Config, folder: Path) -> Path:
    """Write a folder that stands for the configured model, with vocabulary and image rules of that if it is here."""
    wanted = vlm_config(config)
    vocabulary, own = None, Path(str(wanted.folder))
    if (own / "tokenizer_config.json").is_file():
        rules, vocabulary = resize_rules(own), vocabulary_from(own)
    else:
        rules = PUBLISHED[wanted.family]
    model = replace(wanted, folder=None, **asdict(rules))
    return export(build(model, vocabulary=vocabulary or tiny_vocabulary((*WORDS, *GROUNDING), ())), folder)


def replies(vlm: Vlm, config: Config) -> list[list[int]]:
    """Return the tokens of replies that the configured grammar can read."""
    rng = np.random.default_rng(0)
    if config.policy.grammar == "ui_tars":
        return [_written(vlm, config, rng, last=i < REPLIES * FINISHED_SHARE) for i in range(REPLIES)]
    return [_walk(vlm, rng) for _ in range(REPLIES)]


def _written(vlm: Vlm, config: Config, rng: np.random.Generator, *, last: bool) -> list[int]:
    x, y = rng.integers(config.desktop.width), rng.integers(config.desktop.height)
    action = "finished(content='done')" if last else f"click(start_box='<|box_start|>({x},{y})<|box_end|>')"
    thought = " step" * REPLY_TOKENS
    call = vlm.vocabulary.spell(reply_parts(f"\nAction: {action}"))
    return [*vlm.vocabulary.encode(f"Thought:{thought}")[: REPLY_TOKENS - 1 - len(call)], *call, vlm.vocabulary.end]


def _walk(vlm: Vlm, rng: np.random.Generator) -> list[int]:
    """Return a reply by chance, token by token as the grammar allows."""
    tokens: list[int] = []
    while len(tokens) < vlm.decoding.max_new_tokens and not (tokens and vlm.grammar.ends[tokens[-1]]):
        tokens.append(int(rng.choice(np.flatnonzero(vlm.grammar.allowed))))
    return tokens
