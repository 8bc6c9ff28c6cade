"""``ServedModel``: a model that acts. ``Learning`` is one that is also trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import torch_missing
from dartsim.core.types import Version, Weights

try:
    from dartsim.real.pool_files import token_meaning
    from dartsim.real.vlm import Vlm, VlmPolicy, build
    from dartsim.real.vlm.model import one_thread
    from dartsim.real.vlm.plan import vlm_config
except ModuleNotFoundError as missing:
    raise torch_missing(missing) from None


@dataclass(kw_only=True)
class ServedModel:
    """A model that acts."""

    model: VlmPolicy
    vlm: Vlm

    @property
    def weights(self) -> Weights:
        newest = self.model.versions[-1]
        return Weights(newest, self.vlm.snapshot())

    def token_meaning(self, config: Config) -> dict[str, Any]:
        """Return the meaning of its tokens, for a pool of its successes."""
        return token_meaning(self.vlm, config.policy.screen)


def served_model(config: Config, version: Version = 0) -> ServedModel:
    """Return the configured model, read from its folder, whose weights have a given version.

    Raises:
        ConfigError: If the folder contains no model.
    """
    one_thread()
    try:
        vlm = build(vlm_config(config), seed=config.run.seed)
    except (OSError, ValueError) as error:
        raise ConfigError(f"policy.model = {config.policy.model!r} cannot be read as a model: {error}") from None
    policy = VlmPolicy(vlm.twin())
    policy.add(Weights(version, vlm.snapshot()))
    return ServedModel(model=policy, vlm=vlm)
