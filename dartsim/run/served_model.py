"""``ServedModel``: a model that acts. ``Learning`` is one that is also trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import torch_missing
from dartsim.core.types import Attempt, Task, Trajectory, Version, Weights
from dartsim.envs.actions import make_grammar
from dartsim.envs.actions.grammar import ActionGrammar
from dartsim.envs.render import episode_gif
from dartsim.run.content import desktop_maker

try:
    from dartsim.real.evaluate import play
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

    def film(self, config: Config, task: Task, target: Path) -> Trajectory:
        """Play a task, and write the episode as a GIF."""
        weights = self.weights
        attempt = Attempt(0, task, 0, 0, 0, config.rollout.max_turns, weights.version)
        trajectory = play(self.model, [desktop_maker(config)()], [attempt], version=weights.version)[0]
        frames = [np.asarray(turn.observation.screenshot) for turn in trajectory.turns]
        actions = [turn.reply.action for turn in trajectory.turns]
        end = f"reward {trajectory.reward:g}"
        episode_gif(frames, actions, target, grammar=policy_grammar(config), end=end)
        return trajectory


def policy_grammar(config: Config) -> ActionGrammar:
    """Return the grammar of the configured policy's actions on the screen that it sees."""
    name, options = config.policy.action_grammar
    whole = config.backend.boots and config.policy.sees_whole_screen
    size = (config.desktop.width, config.desktop.height) if whole else (config.policy.screen,) * 2
    return make_grammar(name, *size, **options)


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
