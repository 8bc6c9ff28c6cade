"""A ``Vlm`` whose weights are sharded over processes by torch's ``fully_shard``.

Three kinds of units are gathered for computing and released after: the vision tower as a whole, each layer of the
language model, and the rest (embeddings, output). The vision tower is one unit because processes must gather equally
often, and a micro-batch calls it once for each size of its screenshots.

``fully_shard`` gathers a module's weights when the module is called. ``Trunk`` calls none of these modules but reads
their parts; so the units' ``forward`` is set to what the trunk does with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from dartsim.config.sections.trainer import FsdpConfig
from dartsim.real.learners.gradient_steps import Scorer
from dartsim.real.vlm.lora import adapter_of, has_lora
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.packing import Packed, score
from dartsim.real.vlm.trunk import Grid, Seen, Trunk


class ShardedTrunk(Trunk):
    """A trunk that calls its units."""

    def see_all(self, pictures: Sequence[tuple[Grid, Tensor]]) -> Seen | None:
        """Return the embeddings of pictures of several sizes, in one call of the vision tower."""
        return self._visual[0](pictures)  # type: ignore[no-any-return]

    def own_see_all(self, pictures: Sequence[tuple[Grid, Tensor]]) -> Seen | None:
        """Compute the result of ``see_all``."""
        return super().see_all(pictures)

    def _text_layer(self, layer: Any, *values: Any) -> Tensor:
        return layer(layer, *values)  # type: ignore[no-any-return]

    def own_text_layer(self, layer: Any, *values: Any) -> Tensor:
        """Compute the result of a layer."""
        return super()._text_layer(layer, *values)


def shard(vlm: Vlm, mesh: DeviceMesh, settings: FsdpConfig) -> Scorer:
    """Shard a model over the processes of a one-dimensional mesh, and return a scorer of it."""
    model, device = vlm.model, torch.device(mesh.device_type)
    trunk = ShardedTrunk(model, vlm.rules).to(device)
    trunk.checkpointing = vlm.trunk.checkpointing
    vlm.trunk = trunk
    vlm.allowed = vlm.allowed.to(device)
    # Inputs of a unit have the right precision already; angles and positions must keep theirs.
    half = torch.bfloat16 if settings.precision == "bfloat16" else None
    policy = MixedPrecisionPolicy(
        param_dtype=half, reduce_dtype=None if half is None else torch.float32, cast_forward_inputs=False
    )

    def compute(packed: Packed) -> tuple[Tensor, Tensor]:
        logprobs, entropies = score(vlm, packed.to(device))
        return logprobs.cpu().clone(), entropies.cpu().clone()  # units must not return views

    visual, layers = model.model.visual, list(model.model.language_model.layers)
    visual.forward = trunk.own_see_all
    for layer in layers:
        layer.forward = trunk.own_text_layer
    model.forward = compute
    units = [visual, *layers, model]
    for unit in units:
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    for unit in units:
        # The loss of each process is a part of a sum, not of a mean.
        unit.set_force_sum_reduction_for_comms(True)
        unit.set_gradient_divide_factor(1.0)
    return model  # type: ignore[no-any-return]


@torch.no_grad()
def gathered(model: Any, *, keep: bool) -> dict[str, Tensor]:
    """Return a model's whole weights on the CPU, with LoRA only its adapter.

    Every process must call it; only those that ``keep`` the weights need the memory.
    """
    if has_lora(model):
        adapter = adapter_of(model)
        return {name: tensor.cpu() for name, tensor in adapter.items()} if keep else {}
    weights: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        whole = parameter.full_tensor()
        if keep:
            weights[name] = whole.to("cpu", copy=True)
    return weights
