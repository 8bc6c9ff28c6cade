"""What trains a model as a configuration describes it: in this process, in several, or where Ray places it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shutil import rmtree
from weakref import finalize

from safetensors.torch import load_file, save_file

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.types import Batch, Weights
from dartsim.curation.rules.selection import AllTurns, TurnSelection
from dartsim.real.learners.fsdp.learner import FsdpLearner
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.ray_cluster.backend import placed, ray_learner
from dartsim.real.ray_cluster.learner import RayLearner
from dartsim.real.scratch import scratch
from dartsim.real.vlm import Vlm, build
from dartsim.real.vlm.model import one_thread
from dartsim.real.vlm.plan import vlm_config

RealLearner = TorchLearner | FsdpLearner | RayLearner
"""A learner whose state can be written and read."""

_FIRST = "first.safetensors"
"""Weights that a learner on another node begins with."""


def configured_learner(config: Config, vlm: Vlm) -> RealLearner:
    """Return what trains the model: here, or where Ray places it."""
    if not placed(config, "learner"):
        return _trainer_here(config, vlm)
    folder = scratch("learner", config.ray.folder)
    snapshot = vlm.snapshot()
    save_file(snapshot, folder / _FIRST)
    try:
        learner = ray_learner(config, partial(trainer_there, config, folder), folder, Weights(0, snapshot))
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    finalize(learner, rmtree, folder, ignore_errors=True)
    return learner


def trainer_there(config: Config, folder: Path) -> TorchLearner | FsdpLearner:
    """Return the configured learner as it is at the very beginning; called where Ray placed it.

    Raises:
        ConfigError: If the folder of its first weights is not there.
    """
    if not (folder / _FIRST).is_file():
        raise ConfigError(
            f"there is no {_FIRST} in {str(folder)!r} on the node of the learner; set ray.folder to a folder of a disk "
            "that all nodes share"
        )
    one_thread()
    vlm = build(vlm_config(config), seed=config.run.seed)
    vlm.use(load_file(folder / _FIRST))
    return _trainer_here(config, vlm, folder)


def _trainer_here(config: Config, vlm: Vlm, folder: Path | None = None) -> TorchLearner | FsdpLearner:
    """Return what trains: in this process, or in several that share files below ``folder``."""
    backend = config.backend.learner_backend
    learner: TorchLearner | FsdpLearner = backend.train(
        config, vlm, folder, seed=config.run.seed, select=_selector(config)
    )
    return learner


def _selector(config: Config) -> Callable[[Batch], Sequence[bool]] | None:
    rule: TurnSelection = config.curation.selection.build()
    if isinstance(rule, AllTurns):
        return None

    def select(batch: Batch) -> Sequence[bool]:
        kept = (rule.select(group).kept for group in batch.groups)
        return [flag for group in kept for trajectory in group for flag in trajectory]

    return select
