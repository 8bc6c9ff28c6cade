"""LoRA by peft, added in place. The adapter is published and served separately from the weights.

It has the names of peft's files, which vLLM reads too: ``base_model.model.MODULE.lora_A.weight``, and ``lora_B``, which
includes the scale. Merged into bfloat16 weights it would be rounded away: at a learning rate of 1e-5, 3 % of the change
of outputs remains after the first update, and 16 % after five.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from dartsim.config.sections.trainer import LoraConfig
from dartsim.real.scratch import replaced_folder

logger = logging.getLogger(__name__)

TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""Modules that get LoRA, as a regular expression over their names."""
LORA = ".lora_"
"""Part of the names of LoRA's parameters, and of no others."""
PREFIX = "base_model.model."
"""What names in an adapter begin with."""
ADAPTER_FILE = "adapter_model.safetensors"
LEAST_MERGED = 0.99
"""Share of a change that should remain after a merge."""


def add_lora(model: Any, settings: LoraConfig, *, seed: int) -> None:
    """Add LoRA to a model in place, in float32; from then on only LoRA is trained."""
    import peft

    config = peft.LoraConfig(r=settings.rank or 0, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules=TARGETS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        if LORA in name:
            parameter.data = parameter.data.float()  # in less, steps of 1e-5 would round to nothing


def has_lora(model: Any) -> bool:
    """Return whether a model has LoRA."""
    return any(LORA in name for name, _ in model.named_parameters())


def is_adapter(names: Collection[str]) -> bool:
    """Return whether tensors with these names are an adapter."""
    return len(names) > 0 and all(name.startswith(PREFIX) for name in names)


def rank_of(adapter: Mapping[str, Tensor]) -> int:
    """Return the rank of an adapter."""
    return next(int(tensor.shape[0]) for name, tensor in adapter.items() if name.endswith(".lora_A.weight"))


def own_name(name: str) -> str:
    """Return the name that a parameter of a model with LoRA has without it, or in an adapter."""
    if LORA not in name:
        return name.replace(".base_layer.", ".")
    return PREFIX + name.replace(".default.", ".")


def adapter_of(model: Any) -> dict[str, Tensor]:
    """Return a copy of a model's adapter. If the model is sharded, every process must call it."""
    tensors = {}
    for name, module in model.named_modules():
        if hasattr(module, "scaling") and hasattr(module, "base_layer"):
            for part, scale in (("lora_A", 1.0), ("lora_B", module.scaling["default"])):
                weight = getattr(module, part)["default"].weight.detach()
                whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
                tensors[f"{PREFIX}{name}.{part}.weight"] = whole * scale
    return tensors


def blank_adapter(model: nn.Module, rank: int) -> dict[str, Tensor]:
    """Return an adapter that changes nothing, for a model without LoRA."""
    tensors = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and re.fullmatch(TARGETS, name):
            tensors[f"{PREFIX}{name}.lora_A.weight"] = torch.zeros(rank, module.in_features)
            tensors[f"{PREFIX}{name}.lora_B.weight"] = torch.zeros(module.out_features, rank)
    return tensors


def own_weights(model: Any, *, copy: bool = True) -> dict[str, Tensor]:
    """Return a model's weights by the names that they have without LoRA, and its adapter."""
    weights = {
        own_name(name): parameter.detach().clone() if copy else parameter.detach()
        for name, parameter in model.named_parameters()
        if LORA not in name
    }
    return weights | adapter_of(model)


def save_adapter(adapter: Mapping[str, Tensor], folder: Path, *, dtype: str | None = None) -> Path:
    """Write an adapter as a folder, as peft and vLLM read it, which appears whole or not at all; return it.

    ``dtype`` is that of the written tensors, by torch's name; None: as they are.
    """
    rank = rank_of(adapter)
    modules = sorted({name.removesuffix(".lora_A.weight").rpartition(".")[2] for name in adapter if "lora_A" in name})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": modules, "bias": "none"}
    target_dtype = None if dtype is None else getattr(torch, dtype)
    tensors = {name: tensor.to("cpu", target_dtype or tensor.dtype).contiguous() for name, tensor in adapter.items()}
    with replaced_folder(folder) as partial:
        save_file(tensors, partial / ADAPTER_FILE, metadata={"format": "pt"})
        (partial / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return folder


@torch.no_grad()
def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with the adapter among them added, summed in float32 and rounded to the weights' type.

    It warns if rounding takes more than a hundredth of the change.
    """
    result = {name: tensor for name, tensor in weights.items() if not name.startswith(PREFIX)}
    arrived = wanted = 0.0
    dtype = None
    for name, change in _changes(weights):
        before = result[name]
        dtype = before.dtype
        after = (before.float() + change).to(dtype)
        arrived += float(((after.float() - before.float()) * change).sum())
        wanted += float(change.square().sum())
        result[name] = after
    if arrived < LEAST_MERGED * wanted:
        logger.warning(
            "merged into weights of %s, %.0f %% of what LoRA changes is left; serve the adapter instead",
            str(dtype).removeprefix("torch."),
            100.0 * arrived / wanted,
        )
    return result


def _changes(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield what an adapter adds to each weight, in float32."""
    for name, first in weights.items():
        if name.startswith(PREFIX) and name.endswith(".lora_A.weight"):
            module = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
            second = weights[f"{PREFIX}{module}.lora_B.weight"]
            yield f"{module}.weight", second.float() @ first.float()
