"""LoRA by peft: added in place, and merged into the weights that workers get."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dartsim.config.sections.trainer import LoraConfig

TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""Modules that get LoRA, as a regular expression over their names."""


def add_lora(model: Any, settings: LoraConfig, *, seed: int) -> None:
    """Add LoRA to a model in place; from then on only LoRA is trained."""
    import peft

    config = peft.LoraConfig(r=settings.rank or 0, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules=TARGETS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(config, model)


def has_lora(model: Any) -> bool:
    """Return whether a model has LoRA."""
    return any(".lora_" in name for name, _ in model.named_parameters())


@torch.no_grad()
def merged(model: Any) -> dict[str, Tensor]:
    """Return a copy of a model's weights with LoRA merged in, by the names it has without LoRA.

    The model itself is not merged and unmerged: that would round its weights.
    """
    weights: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if ".lora_" not in name:
            weights[name.replace(".base_layer.", ".")] = parameter.detach().clone()
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
            for adapter in module.active_adapters:
                weights[f"{name}.weight"] += module.get_delta_weight(adapter)
    return weights
