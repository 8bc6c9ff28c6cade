"""``Vlm``: a vision-language model of a transformers class, with its prompts and grammar."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from dartsim.config.sections.trainer import LoraConfig
from dartsim.core.errors import ConfigError
from dartsim.real.vlm.config import Decoding, VlmConfig
from dartsim.real.vlm.grammar import TokenGrammar, action_grammar, free_grammar
from dartsim.real.vlm.images import ImageRules, Pictures
from dartsim.real.vlm.lora import (
    PREFIX,
    adapter_of,
    add_lora,
    has_lora,
    merged,
    own_name,
    own_weights,
    rank_of,
    save_adapter,
)
from dartsim.real.vlm.prompts import PromptBuilder
from dartsim.real.vlm.trunk import Trunk
from dartsim.real.vlm.vocabulary import Vocabulary, tiny_vocabulary, vocabulary_from

Snapshot = Mapping[str, Tensor]
"""Weights by their names in the transformers class, perhaps with an adapter (``lora.py``). Never changed."""

CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    "qwen2_5_vl": (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration),
    "qwen3_vl": (Qwen3VLConfig, Qwen3VLForConditionalGeneration),
}


class ReplyWriter(NamedTuple):
    """What writes a text as a model's tokens, without the model's weights."""

    config: VlmConfig
    vocabulary: Vocabulary
    grammar: TokenGrammar


def reply_writer(config: VlmConfig) -> ReplyWriter:
    """Return what a model writes with; of a checkpoint folder, only the small files are read.

    Raises:
        ConfigError: If the folder holds no model.
    """
    if config.folder is None:
        vlm = build(config)
        return ReplyWriter(vlm.config, vlm.vocabulary, vlm.grammar)
    settings = _folder_config(config)
    vocabulary = vocabulary_from(Path(config.folder))
    size = int(settings.get_text_config().vocab_size)
    return ReplyWriter(config, vocabulary, grammar_of(config, vocabulary, size))


class Vlm:
    """A model, its vocabulary, its prompts and its grammar."""

    def __init__(self, config: VlmConfig, model: nn.Module, vocabulary: Vocabulary) -> None:
        self.config = config
        self.model: Any = model
        self.vocabulary = vocabulary
        self.rules = ImageRules.of(config)
        self.prompts = PromptBuilder(vocabulary, Pictures(self.rules), config.prompts)
        self.trunk = Trunk(model, self.rules)
        size = int(self.trunk.num_outputs)
        self.grammar = grammar_of(config, vocabulary, size)
        self.allowed = torch.from_numpy(self.grammar.allowed)
        self.ends = torch.from_numpy(self.grammar.ends)
        model.eval()

    @property
    def decoding(self) -> Decoding:
        return self.config.decoding

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def snapshot(self, *, copy: bool = True) -> dict[str, Tensor]:
        """Return the weights, and the adapter if there is one."""
        return own_weights(self.model, copy=copy)

    def use(self, snapshot: Snapshot) -> None:
        """Use these weights, and this adapter, without copying them; the model must not be trained then.

        Raises:
            ValueError: If they are not this model's.
        """
        adapter = {name: tensor for name, tensor in snapshot.items() if name.startswith(PREFIX)}
        if adapter and not has_lora(self.model):
            rank = rank_of(adapter)
            add_lora(self.model, LoraConfig(rank=rank, alpha=rank), seed=0)
            self.model.eval()
        parameters = {own_name(name): parameter for name, parameter in self.model.named_parameters()}
        if not adapter:
            snapshot = {**snapshot, **{n: torch.zeros_like(p) for n, p in parameters.items() if n.startswith(PREFIX)}}
        if parameters.keys() != snapshot.keys():
            odd = sorted(parameters.keys() ^ snapshot.keys())
            raise ValueError(f"these are not the weights of this model; {len(odd)} names differ, first {odd[0]}")
        for name, parameter in parameters.items():
            parameter.data = snapshot[name]

    def save(self, folder: Path, *, dtype: str | None = None, merge: bool = True) -> None:
        """Write weights, vocabulary, image rules and configuration as transformers reads them.

        Args:
            folder: The folder.
            dtype: Of the written weights; None: the model's own.
            merge: Whether the adapter is merged in, and written beside the weights in ``adapter/``; or left out.
        """
        folder.mkdir(parents=True, exist_ok=True)
        more: dict[str, Any] = {}
        if dtype is not None or has_lora(self.model):
            weights = self.snapshot(copy=False)
            weights = merged(weights) if merge else {n: w for n, w in weights.items() if not n.startswith(PREFIX)}
            more = {"state_dict": {n: w if dtype is None else w.to(getattr(torch, dtype)) for n, w in weights.items()}}
        with _no_progress_bars():
            self.model.save_pretrained(str(folder), **more)
        if merge and has_lora(self.model):
            save_adapter(adapter_of(self.model), folder / "adapter", dtype=dtype)
        self.vocabulary.save(folder)
        text = json.dumps(self.rules.as_json(), indent=1)
        (folder / "preprocessor_config.json").write_text(text + "\n", encoding="utf-8")

    def twin(self) -> Vlm:
        """Return a copy of the model, with its adapter; only the vocabulary is shared."""
        config = self.model.config
        with torch.random.fork_rng(devices=[]):
            model = type(self.model)(config)
        model.to(next(self.model.parameters()).dtype)
        twin = Vlm(self.config, model, self.vocabulary)
        twin.use(self.snapshot(copy=False))
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
        return twin


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars: a run has its own."""
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def one_thread() -> None:
    """Compute on one thread: with small matrices on busy cores, more threads take many times as long."""
    torch.set_num_threads(1)


def build(config: VlmConfig, *, seed: int = 0, vocabulary: Vocabulary | None = None) -> Vlm:
    """Return a model, with the weights of its folder or random ones by seed.

    Args:
        config: The model.
        seed: Of random weights.
        vocabulary: Of a model with random weights; by default the tiny one, with the configured words.

    Raises:
        ConfigError: If the folder holds another family.
    """
    if config.folder is not None:
        return from_folder(config)
    if vocabulary is None:
        vocabulary = tiny_vocabulary(config.words, config.actions)
    config_class, model_class = CLASSES[config.family]
    settings = config_class(**_settings(config, vocabulary))
    settings._attn_implementation = "sdpa"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(settings)
    with torch.no_grad():
        model.lm_head.weight.mul_(config.output_scale)
    return Vlm(config, model.to(getattr(torch, config.dtype)), vocabulary)


def from_folder(config: VlmConfig) -> Vlm:
    """Return the model of a checkpoint folder, such as UI-TARS-1.5-7B's.

    Raises:
        ConfigError: If the folder holds another family.
    """
    folder = Path(str(config.folder))
    family = _folder_config(config).model_type
    with _no_progress_bars():
        model = CLASSES[family][1].from_pretrained(
            str(folder), dtype=getattr(torch, config.dtype), attn_implementation="sdpa", local_files_only=True
        )
    return Vlm(replace(config, family=family), model, vocabulary_from(folder))


def _folder_config(config: VlmConfig) -> Any:
    folder = str(config.folder)
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"VlmConfig.folder = {folder!r} holds no config.json; wanted a checkpoint folder")
    found = AutoConfig.from_pretrained(folder, local_files_only=True)
    if found.model_type not in CLASSES:
        raise ConfigError(
            f"{folder!r} holds a {found.model_type!r}; only {' and '.join(CLASSES)} can learn here. `dartsim eval "
            "--endpoint URL` measures any chat model that a server offers"
        )
    return found


def _settings(config: VlmConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the arguments of the transformers configuration class."""
    head = config.hidden_size // config.num_heads
    half = head // 2
    third = half // 3
    text: dict[str, Any] = {
        "vocab_size": vocabulary.size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "max_position_embeddings": 32_768,
        "initializer_range": config.initializer_range,
        "bos_token_id": None,
        "eos_token_id": vocabulary.end,
        "pad_token_id": vocabulary.pad,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "mrope_section": [half - 2 * third, third, third],
        },
    }
    vision: dict[str, Any] = {
        "depth": config.vision_layers,
        "hidden_size": config.vision_hidden_size,
        "intermediate_size": config.vision_intermediate_size,
        "num_heads": config.vision_heads,
        "out_hidden_size": config.hidden_size,
        "patch_size": config.patch_size,
        "spatial_merge_size": config.merge_size,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "initializer_range": config.initializer_range,
    }
    if config.family == "qwen2_5_vl":
        vision |= {"window_size": config.window_size, "fullatt_block_indexes": [config.vision_layers - 1]}
    else:
        text["head_dim"] = head
        text["rope_parameters"]["mrope_interleaved"] = True
        vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    return {
        "text_config": text,
        "vision_config": vision,
        "image_token_id": vocabulary.image,
        "video_token_id": vocabulary.video,
        "vision_start_token_id": vocabulary.vision_start,
        "vision_end_token_id": vocabulary.vision_end,
        "tie_word_embeddings": False,
    }


def grammar_of(config: VlmConfig, vocabulary: Vocabulary, size: int) -> TokenGrammar:
    """Return the configured grammar; ``size`` is the width of the model's output."""
    if config.decoding.grammar == "actions":
        return action_grammar(vocabulary, config.actions, size=size)
    return free_grammar(vocabulary, size=size)
