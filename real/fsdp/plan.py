"""How the ranks of a configuration's learner are spread over processes and machines; it needs no extra."""

from __future__ import annotations

from dartsim.config import Config
from dartsim.real.fsdp.spread import FsdpSettings


def fsdp_settings(config: Config) -> FsdpSettings:
    """Return how the learner is spread."""
    fsdp = config.trainer.fsdp
    return FsdpSettings(
        ranks=fsdp.ranks,
        nodes=fsdp.nodes,
        address=fsdp.address or "",
        interface=fsdp.interface or "",
        device=fsdp.device,
        gpus=tuple(fsdp.gpus),
        precision=fsdp.precision,
        checkpoint_every=fsdp.checkpoint_every_updates,
        keep_weights=fsdp.keep_weights,
        start_seconds=fsdp.start_seconds,
        update_seconds=fsdp.update_seconds,
    )
