"""What a real run needs of the driver's machine: disk space for weights and checkpoints, and memory; all in bytes.

It follows the folders of ``dartsim.real.learners.fsdp.learner``, ``dartsim.real.engines.weights`` and
``dartsim.trainer.checkpointed``, each at the moment when the next version is written and the oldest still exists.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dartsim.config import Config
from dartsim.lab.memory import BYTES, MASTER_BYTES, LearnerMemory
from dartsim.lab.model_shapes import ModelShape
from dartsim.real.containers.plan import desktop_gib, desktops_by_host, docker_hosts
from dartsim.real.engines.options import serves_adapters, weights_dtype
from dartsim.store.checkpoints import KEEP_CHECKPOINTS

PNG_SHARE = 0.2
"""Size of a screenshot's PNG file, as which it is held, of its pixels' bytes: 1.2 MB at 1920 x 1080, a busy screen."""
DECODED_FRAMES = 3
"""Screens of a desktop that are compared: the last two, and the one that is decoded."""
PROMPT_TOKEN_BYTES = 32
"""A token of a turn's prompt and its three positions, for the ranks; twice in memory while they are written."""
CUTTING_BYTES = 2**30
"""Screenshots that are cut for the ranks at the same time, on a machine of up to 64 cores."""
SPOOLED_VERSIONS = 4
"""Versions of a learner in the driver's process that are kept on disk for engines (``Spool``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNeeds:
    """Disk space by folder.

    Attributes:
        learner: The first model, published weights, checkpoints of the ranks, the turns of an update:
            ``trainer.fsdp.folder``.
        engines: The model that engines start with, versions written for them, and one that a start still reads: beside
            the learner's.
        run: Checkpoints of the run, and at its end the model and the learner's state: the run directory. Without the
            stored turns.
    """

    learner: int
    engines: int
    run: int

    @property
    def total(self) -> int:
        return self.learner + self.engines + self.run


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNeeds:
    """Memory of the driver's machine, with the desktops that it runs itself.

    Attributes:
        start: While every rank loads the model.
        update: While the turns of the largest batch are written for the ranks and new weights are gathered.
        turns: Part of ``update``: screenshots of desktops, of live attempts and of the batch, and its prompts.
    """

    start: int
    update: int
    turns: int


def trained_parameters(config: Config, shape: ModelShape) -> int:
    """Return the number of trained parameters."""
    rank = config.trainer.lora.rank
    return shape.text.lora_parameters(rank) if rank else shape.parameters


def published_bytes(config: Config, shape: ModelShape) -> int:
    """Return the size of a version of the weights: with LoRA, of the adapter."""
    return trained_parameters(config, shape) * BYTES[weights_dtype(config) or config.policy.dtype]


def takes_several_steps(config: Config) -> bool:
    """Return whether a failed step of an update must be taken back, from a copy of weights and moments."""
    return config.trainer.optimizer.minibatches * config.trainer.optimizer.epochs > 1


def disk_needs(config: Config, shape: ModelShape, screen: tuple[int, int]) -> DiskNeeds:
    """Estimate the disk space of a run."""
    held = BYTES[config.policy.dtype]
    whole = shape.parameters * BYTES[weights_dtype(config) or config.policy.dtype]
    served = published_bytes(config, shape)
    state = 3 * trained_parameters(config, shape) * MASTER_BYTES  # weights and both moments
    learner = 0
    if config.backend.learner == "fsdp":
        learner = shape.parameters * held + (config.trainer.fsdp.keep_weights + 1) * served
        learner += 2 * state + largest_update(config) * _picture_bytes(shape, screen)
    engines = 0
    if config.backend.workers == "vllm":
        spooled = 0 if config.backend.learner == "fsdp" else SPOOLED_VERSIONS + 1
        engines = 2 * whole + spooled * (served if serves_adapters(config) else whole)
    run = whole + state
    if config.storage.checkpoint_every_updates is not None:
        run += (KEEP_CHECKPOINTS + 1) * state
    return DiskNeeds(learner=learner, engines=engines, run=run)


def by_disk(config: Config, needs: DiskNeeds) -> list[tuple[Path, int, int]]:
    """Return each disk of a run: a folder there, the space that is needed, and the space that is free."""
    weights = Path(config.trainer.fsdp.folder or tempfile.gettempdir())
    found: dict[int, tuple[Path, int]] = {}
    for folder, size in ((Path.cwd(), needs.run), (weights, needs.learner + needs.engines)):
        while not folder.is_dir():
            folder = folder.parent
        disk = folder.stat().st_dev
        found[disk] = (folder, found.get(disk, (folder, 0))[1] + size)
    return [(folder, size, shutil.disk_usage(folder).free) for folder, size in found.values()]


def host_needs(
    config: Config, shape: ModelShape, learner: LearnerMemory | None, screen: tuple[int, int], prompt_tokens: int
) -> HostNeeds:
    """Estimate the memory of the driver's machine.

    Args:
        config: The configuration.
        shape: The model.
        learner: A rank on a GPU; None without.
        screen: Width and height of a screenshot, pixels.
        prompt_tokens: Of a full prompt.
    """
    held = BYTES[config.policy.dtype]
    driver = 2 * shape.parameters * held  # the model, and the policy that evaluates
    width, height = screen
    batch = largest_update(config)
    live = config.rollout.num_envs * config.rollout.max_turns
    pixels = 3 * width * height
    turns = round((batch + live) * PNG_SHARE * pixels) + DECODED_FRAMES * config.rollout.num_desktops * pixels
    turns += 2 * batch * PROMPT_TOKEN_BYTES * prompt_tokens
    start = update = driver
    if learner is not None:
        ranks = config.trainer.fsdp.ranks_per_node
        served, trained = BYTES[weights_dtype(config) or config.policy.dtype], trained_parameters(config, shape)
        gathered = held if config.trainer.lora.rank is None else MASTER_BYTES
        exported = trained * (gathered + (served if served != gathered else 0))
        copies = 3 * trained * MASTER_BYTES // config.trainer.fsdp.nodes
        start += ranks * learner.host
        update += exported + (copies if takes_several_steps(config) else 0)
    desktops = desktops_here_bytes(config)
    return HostNeeds(start=start + desktops, update=update + turns + CUTTING_BYTES + desktops, turns=turns)


def desktops_here_bytes(config: Config) -> int:
    """Return the memory of the desktops that the driver's own machine runs."""
    if not config.backend.boots:
        return 0
    hosts = docker_hosts(config.desktop)
    here = sum(count for name, count in desktops_by_host(config).items() if hosts[name].local)
    return round(here * desktop_gib(config) * 2**30)


def largest_update(config: Config) -> int:
    """Return the most turns of an update."""
    return config.curation.batch.max_groups * config.curation.attempts.group_size * config.rollout.max_turns


def _picture_bytes(shape: ModelShape, screen: tuple[int, int]) -> int:
    """Return the bytes of a screenshot cut into patches."""
    return shape.image_patches(*screen) * 3 * shape.vision.patch**2
