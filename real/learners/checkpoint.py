"""Checkpoints of a learner: each process writes its part (torch's DCP), and any number of processes can read them.

FOLDER/learner.json    updates, seed, number of ranks, whether there is optimizer state
FOLDER/parts/          a safetensors file of each rank, by ``torch.distributed.checkpoint``

DCP's default format describes the parts in a pickle; safetensors files describe themselves.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_parts
from torch.distributed.checkpoint.state_dict_saver import save as save_parts

from dartsim.real.learners.gradient_steps import GradientSteps
from dartsim.real.learners.ranks import Ranks

ABOUT, PARTS = "learner.json", "parts"

_MOMENTS = ("exp_avg", "exp_avg_sq")


def save(steps: GradientSteps, folder: Path, ranks: Ranks, *, seed: int) -> None:
    """Write weights, optimizer and progress; the folder appears whole or not at all. All processes call it."""
    partial = folder.with_name(folder.name + ".partial")
    if ranks.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    ranks.barrier()
    tensors, numbers = steps.state(copy=False)
    writer = HuggingFaceStorageWriter(str(partial / PARTS), save_distributed=True)
    with _alone():
        save_parts(tensors, storage_writer=writer, no_dist=not dist.is_initialized())
    if ranks.rank == 0:
        stepped = any(name.startswith("step/") for name in tensors)
        about = {**numbers, "seed": seed, "ranks": ranks.size, "stepped": stepped, "torch": torch.__version__}
        (partial / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    ranks.barrier()


def read_about(folder: Path) -> dict[str, Any]:
    """Return the updates and the seed of a checkpoint, among others."""
    about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    return about


def refuse_other_seed(folder: Path, seed: int) -> None:
    """Check the seed of a checkpoint.

    Raises:
        ValueError: If it is of another seed.
    """
    found = read_about(folder)["seed"]
    if found != seed:
        raise ValueError(f"checkpoint {folder} has seed {found}, this learner {seed}")


def load(steps: GradientSteps, folder: Path) -> None:
    """Resume from a checkpoint of any number of processes. All processes call it.

    Raises:
        ValueError: If it is not a checkpoint of this model.
    """
    numbers = read_about(folder)
    tensors = {f"weight/{name}": torch.empty_like(p) for name, p in steps.parameters.items()}
    if numbers["stepped"]:
        for name, parameter in steps.parameters.items():
            tensors |= {f"{key}/{name}": torch.zeros_like(parameter) for key in _MOMENTS}
            tensors[f"step/{name}"] = torch.zeros((), device=parameter.device)
    reader = HuggingFaceStorageReader(str(folder / PARTS))
    try:
        stored = set(reader.read_metadata().state_dict_metadata)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PARTS} is no checkpoint: {error}") from None
    if odd := sorted(tensors.keys() ^ stored):
        raise ValueError(f"the checkpoint is of another model: {len(odd)} names differ, first {odd[0]}")
    with _alone():
        load_parts(tensors, storage_reader=reader, no_dist=not dist.is_initialized())
    steps.restore((tensors, numbers))


@contextmanager
def _alone() -> Iterator[None]:
    """Keep torch from warning that there is one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
