"""``ModelShape``: the sizes of a Qwen-VL model, and its parameter and token counts; needs no weights.

Sources: the published ``config.json`` of Qwen/Qwen2.5-VL-7B-Instruct (UI-TARS-1.5-7B has the same shape) and
Qwen/Qwen3-VL-8B-Instruct; the tests compare the counts with the modules of transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.image_size import PUBLISHED, ResizeRules, has_processor, resize_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShape:
    """The language model; its MLPs are gated.

    ``tied``: the output matrix is the embedding. ``qkv_bias``: queries, keys and values have biases (Qwen2.5).
    ``qk_norm``: queries and keys are normalized (Qwen3).
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False
    qkv_bias: bool = True
    qk_norm: bool = False

    @property
    def layer_parameters(self) -> int:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (queries + 2 * keys) + queries * self.hidden
        attention += (queries + 2 * keys) * self.qkv_bias + 2 * self.head_dim * self.qk_norm
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def rest_parameters(self) -> int:
        """Parameters of embedding, last norm and output."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Return the parameters of LoRA on the seven matrices of each layer: rank x (rows + columns)."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = 2 * (self.hidden + queries) + 2 * (self.hidden + keys) + 3 * (self.hidden + self.intermediate)
        return self.layers * rank * sides


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionShape:
    """The vision tower.

    Attributes:
        depth: Number of blocks.
        hidden: Width.
        intermediate: Width of a block's MLP.
        out: Width of its output.
        patch: Side of a patch, pixels.
        merge: Side of the square of patches that become one token.
        gated: Whether MLPs are gated and norms have no bias (Qwen2.5).
        positions: Rows of the learned table of positions; 0 if there is none (Qwen2.5).
        deepstack: Number of layers with additional outputs to the language model (Qwen3).
        window: Side of the attention window of most layers, patches; 0: all layers attend to the whole picture (Qwen3).
        whole_layers: Number of layers that attend to the whole picture while the others have windows.
    """

    depth: int
    hidden: int
    intermediate: int
    out: int
    patch: int
    merge: int = 2
    gated: bool = True
    positions: int = 0
    deepstack: int = 0
    window: int = 0
    whole_layers: int = 0

    @property
    def parameters(self) -> int:
        h, i, merged = self.hidden, self.intermediate, self.hidden * self.merge**2
        norm = h if self.gated else 2 * h
        mlp = 3 * h * i + 2 * i + h if self.gated else 2 * h * i + i + h
        block = 4 * h * h + 4 * h + mlp + 2 * norm
        head = merged * merged + merged + merged * self.out + self.out
        embedding = 3 * 2 * self.patch**2 * h + (0 if self.gated else h) + self.positions * h
        return embedding + self.depth * block + norm + head + self.deepstack * (2 * merged + head)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model: its name, language model, vision tower, and how it resizes screenshots."""

    name: str
    text: TextShape
    vision: VisionShape
    resizing: ResizeRules = PUBLISHED["qwen2_5_vl"]

    @property
    def parameters(self) -> int:
        return self.text.layers * self.text.layer_parameters + self.text.rest_parameters + self.vision.parameters

    def kv_bytes_per_token(self, value_bytes: int = 2) -> int:
        """Return the bytes of keys and values of one token in all layers."""
        return 2 * self.text.layers * self.text.kv_heads * self.text.head_dim * value_bytes

    def image_patches(self, width: int, height: int) -> int:
        """Return the patches of a screenshot after the model's image processor has resized it."""
        return self.image_tokens(width, height) * self.resizing.merge_size**2

    def image_tokens(self, width: int, height: int) -> int:
        return self.resizing.num_tokens(width, height)


QWEN2_5_VL_7B = ModelShape(
    name="Qwen2.5-VL-7B",
    text=TextShape(layers=28, hidden=3584, intermediate=18944, heads=28, kv_heads=4, head_dim=128, vocabulary=152_064),
    vision=VisionShape(depth=32, hidden=1280, intermediate=3420, out=3584, patch=14, window=8, whole_layers=4),
)
"""Also UI-TARS-1.5-7B's shape."""

QWEN3_VL_8B = ModelShape(
    name="Qwen3-VL-8B",
    text=TextShape(
        layers=36,
        hidden=4096,
        intermediate=12288,
        heads=32,
        kv_heads=8,
        head_dim=128,
        vocabulary=151_936,
        qkv_bias=False,
        qk_norm=True,
    ),
    vision=VisionShape(
        depth=27, hidden=1152, intermediate=4304, out=4096, patch=16, gated=False, positions=2304, deepstack=3
    ),
    resizing=PUBLISHED["qwen3_vl"],
)

OF_FAMILY: Mapping[str, ModelShape] = {"qwen2_5_vl": QWEN2_5_VL_7B, "qwen3_vl": QWEN3_VL_8B}
"""The default shape of a family, without a checkpoint."""


def read_shape(folder: Path) -> ModelShape:
    """Read the shape of a checkpoint from its ``config.json`` and the settings of its image processor.

    Raises:
        ConfigError: If ``config.json`` is missing, the family is unknown, or the two files contradict each other.
    """
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(folder)!r} has no readable config.json: {error}") from None
    family = str(config.get("model_type"))
    if family not in OF_FAMILY:
        raise ConfigError(f"{str(folder)!r} contains a {family!r}; wanted one of {', '.join(OF_FAMILY)}")
    text, vision = config.get("text_config", config), config["vision_config"]
    return ModelShape(
        name=folder.resolve().name,
        text=_text(text, config, newer=family == "qwen3_vl"),
        vision=_vision(vision, text, newer=family == "qwen3_vl"),
        resizing=resize_rules(folder) if has_processor(folder) else PUBLISHED[family],
    )


def _text(text: Mapping[str, Any], whole: Mapping[str, Any], *, newer: bool) -> TextShape:
    return TextShape(
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        intermediate=text["intermediate_size"],
        heads=text["num_attention_heads"],
        kv_heads=text["num_key_value_heads"],
        head_dim=text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"],
        vocabulary=text["vocab_size"],
        tied=bool(whole.get("tie_word_embeddings", False)),
        qkv_bias=not newer,
        qk_norm=newer,
    )


def _vision(vision: Mapping[str, Any], text: Mapping[str, Any], *, newer: bool) -> VisionShape:
    return VisionShape(
        depth=vision["depth"],
        hidden=vision["hidden_size"],
        intermediate=vision["intermediate_size"],
        out=vision.get("out_hidden_size") or text["hidden_size"],
        patch=vision.get("patch_size", 14),
        merge=vision.get("spatial_merge_size", 2),
        gated=not newer,
        positions=vision["num_position_embeddings"] if newer else 0,
        deepstack=len(vision["deepstack_visual_indexes"]) if newer else 0,
        window=0 if newer else vision.get("window_size", 112) // vision.get("patch_size", 14),
        whole_layers=0 if newer else len(vision.get("fullatt_block_indexes", [7, 15, 23, 31])),
    )
