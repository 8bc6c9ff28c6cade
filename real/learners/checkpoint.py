"""Checkpoints of several processes: each writes its part (torch's DCP), and any number of them can read it.

FOLDER/learner.json    updates, seed, number of ranks, whether there is optimizer state
FOLDER/parts/          a safetensors file of each rank, by ``torch.distributed.checkpoint``

DCP's default format describes the parts in a pickle; safetensors files describe themselves.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_parts
from torch.distributed.checkpoint.state_dict_saver import save as save_parts
from torch.distributed.tensor import DTensor, distribute_tensor

from dartsim.real.learners.fsdp.peers import Ranks
from dartsim.real.learners.gradient_steps import GradientSteps

ABOUT, PARTS = "learner.json", "parts"

_MOMENTS = ("exp_avg", "exp_avg_sq")


def save(steps: GradientSteps, folder: Path, peers: Ranks, *, seed: int) -> None:
    """Write weights, optimizer and progress; the folder appears whole or not at all. All processes call it."""
    partial = folder.with_name(folder.name + ".partial")
    if peers.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    peers.barrier()
    tensors, numbers = steps.state(copy=False)
    save_parts(tensors, storage_writer=HuggingFaceStorageWriter(str(partial / PARTS), save_distributed=True))
    if peers.rank == 0:
        stepped = any(name.startswith("step/") for name in tensors)
        about = {**numbers, "seed": seed, "ranks": peers.size, "stepped": stepped, "torch": torch.__version__}
        (partial / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    peers.barrier()


def load(steps: GradientSteps, folder: Path) -> None:
    """Resume from a checkpoint of any number of processes, or of ``TorchLearner``. All processes call it, if any.

    Raises:
        ValueError: If it is of another model, or no checkpoint.
    """
    numbers = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    if not (folder / PARTS).is_dir():
        steps.restore((_distributed(steps, folder), numbers))
        return
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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process may read it, too
        load_parts(tensors, storage_reader=reader, no_dist=not dist.is_initialized())
    steps.restore((tensors, numbers))


def _distributed(steps: GradientSteps, folder: Path) -> dict[str, Tensor]:
    """Return the state that one process wrote, distributed as the parameters are."""
    tensors = load_file(folder / "weights.safetensors") | load_file(folder / "optimizer.safetensors")
    state = {}
    for name, tensor in tensors.items():
        like = steps.parameters.get(name.partition("/")[2])
        state[name] = tensor if like is None else tensor.to(like.device)
        if isinstance(like, DTensor) and tensor.ndim:
            state[name] = distribute_tensor(state[name], like.device_mesh, like.placements)
    return state
