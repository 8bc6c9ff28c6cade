"""``Language``: a model's vocabulary, prompts, images and grammar, without its weights: all that asking it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dartsim.core.errors import ConfigError
from dartsim.real.vlm.config import Decoding, VlmConfig
from dartsim.real.vlm.grammar import TokenGrammar
from dartsim.real.vlm.images import ImageRules, Pictures
from dartsim.real.vlm.model import grammar_of
from dartsim.real.vlm.prompts import PromptBuilder
from dartsim.real.vlm.vocabulary import Vocabulary, vocabulary_from


@dataclass(frozen=True, slots=True)
class Language:
    """What a worker has to know of a model that computes elsewhere; see ``Vlm`` for the fields."""

    config: VlmConfig
    vocabulary: Vocabulary
    rules: ImageRules
    prompts: PromptBuilder
    grammar: TokenGrammar

    @property
    def decoding(self) -> Decoding:
        """What is sampled."""
        return self.config.decoding


def language_of(config: VlmConfig) -> Language:
    """Return the language of the model in a checkpoint folder.

    Raises:
        ConfigError: If there is no folder, or it holds no model.
    """
    path = Path(config.folder or "") / "config.json"
    if config.folder is None or not path.is_file():
        raise ConfigError(f"VlmConfig.folder = {config.folder!r} holds no config.json; wanted a checkpoint folder")
    settings = json.loads(path.read_text(encoding="utf-8"))
    size = int(settings.get("text_config", settings)["vocab_size"])
    vocabulary, rules = vocabulary_from(Path(config.folder)), ImageRules.of(config)
    prompts = PromptBuilder(vocabulary, Pictures(rules), config.prompts)
    return Language(config, vocabulary, rules, prompts, grammar_of(config, vocabulary, size))
