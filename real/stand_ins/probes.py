"""What this machine's disk, network and scorers deliver, each measured alone."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from dartsim.config import Config
from dartsim.core.types import Task
from dartsim.real.engines.ledger import read_folder
from dartsim.real.osworld.backend import open_scorer_pool
from dartsim.real.scoring import FileInput
from dartsim.real.scoring.sandbox import SupervisedSandbox
from dartsim.real.scratch import scratch_folder
from dartsim.real.stand_ins.desktops import SCORE
from dartsim.real.vlm.config import Family
from dartsim.real.vlm.export import export_weights
from dartsim.real.vlm.model import CLASSES

CONNECTIONS = 8
"""Transfers at a time."""
BLOCK_VALUES = 2**24
"""Random values that a synthetic checkpoint repeats."""
SENT_BYTES = 8 * 2**20
"""Sent to an engine at once: about a prompt with five screenshots."""


def meta_tensors(
    family: Family, text: Mapping[str, Any], vision: Mapping[str, Any], folder: Path
) -> dict[str, torch.Tensor]:
    """Return the parameters of a model without their values, by the names of the transformers class."""
    config_class, model_class = CLASSES[family]
    config = (
        AutoConfig.from_pretrained(str(folder), local_files_only=True)
        if (folder / "config.json").is_file()
        else config_class(text_config=_text(text), vision_config=_vision(vision), tie_word_embeddings=text["tied"])
    )
    with torch.device("meta"):
        return dict(model_class(config).named_parameters())


def _text(text: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "vocab_size": text["vocabulary"],
        "hidden_size": text["hidden"],
        "intermediate_size": text["intermediate"],
        "num_hidden_layers": text["layers"],
        "num_attention_heads": text["heads"],
        "num_key_value_heads": text["kv_heads"],
        "head_dim": text["head_dim"],
    }


def _vision(vision: Mapping[str, Any]) -> dict[str, Any]:
    newer = {
        "num_position_embeddings": vision["positions"],
        "deepstack_visual_indexes": list(range(vision["deepstack"])),
    }
    return {
        "depth": vision["depth"],
        "hidden_size": vision["hidden"],
        "intermediate_size": vision["intermediate"],
        "num_heads": 16,
        "out_hidden_size": vision["out"],
        "patch_size": vision["patch"],
        **({} if vision["gated"] else newer),
    }


def checkpoint_rates(
    tensors: Mapping[str, torch.Tensor], folder: Path, *, dtype: str, max_bytes: int, on_step: Callable[[str], None]
) -> dict[str, float]:
    """Write, hash and load the first tensors of a model as a run does; return bytes per second by step, and ``bytes``.

    What was written is forced to the disk and dropped from memory before it is read.

    Args:
        tensors: Of the model, without values.
        folder: On the disk that is measured; what is written there is removed.
        dtype: Of the written weights, by torch's name.
        max_bytes: Most to write; the last tensor may exceed it.
        on_step: Told each step's name.
    """
    weights: dict[str, torch.Tensor] = {}
    block, size = torch.randn(BLOCK_VALUES, dtype=getattr(torch, dtype)), 0
    for name, like in tensors.items():
        if size >= max_bytes:
            break
        weights[name] = block.repeat(-(-like.numel() // BLOCK_VALUES))[: like.numel()].view(like.shape)
        size += weights[name].nbytes
    with scratch_folder("checkpoint", folder) as place:
        file = place / "version" / "model.safetensors"

        def write() -> None:
            export_weights(weights, file.parent, dtype=dtype)
            _dropped(file)

        def digest() -> None:
            with file.open("rb") as stream:
                hashlib.file_digest(stream, "sha256")

        def load() -> None:
            read_folder(file.parent)
            for tensor in load_file(file).values():
                tensor.clone()

        rates = {"bytes": float(size)}
        for step, work in (("write", write), ("hash", digest), ("load", load)):
            on_step(step)
            began = time.perf_counter()
            work()
            rates[step] = size / (time.perf_counter() - began)
            weights.clear()
            _dropped(file)
    return rates


def _dropped(file: Path) -> None:
    """Force a file to its disk, and let no copy of it stay in memory."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


async def received_rate(server: str, seconds: float) -> float:
    """Return the bytes per second of screenshots from a stand-in desktop."""

    async def fetch(client: httpx.AsyncClient) -> int:
        return len((await client.get(f"{server}/screenshot")).raise_for_status().content)

    return await _rate(fetch, seconds)


async def sent_rate(server: str, seconds: float) -> float:
    """Return the bytes per second that a stand-in desktop takes."""
    body = os.urandom(SENT_BYTES)

    async def send(client: httpx.AsyncClient) -> int:
        (await client.post(f"{server}/setup/upload", content=body)).raise_for_status()
        return len(body)

    return await _rate(send, seconds)


async def _rate(transfer: Callable[[httpx.AsyncClient], Awaitable[int]], seconds: float) -> float:
    began, moved = time.perf_counter(), 0

    async def repeat(client: httpx.AsyncClient) -> None:
        nonlocal moved
        while time.perf_counter() - began < seconds:
            moved += await transfer(client)

    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        await asyncio.gather(*(repeat(client) for _ in range(CONNECTIONS)))
    return moved / (time.perf_counter() - began)


async def score_rate(config: Config, tasks: Sequence[Task], folder: Path, seconds: float) -> float:
    """Return the scores per second of the configured sandboxes, asked by all desktops at once.

    Every second score compares texts, the others files of 100 KB.
    """
    result, gold = folder / "result.txt", folder / "gold.txt"
    for file in (result, gold):
        file.write_text("a line of a document\n" * 5_000, encoding="utf-8")
    files = [FileInput(result, result.name), FileInput(gold, gold.name)]
    calls: list[tuple[str, list[Any]]] = [("exact_match", [SCORE, {"expected": SCORE}]), ("compare_text_file", files)]
    async with open_scorer_pool(config, tasks) as pool:
        began, done = time.perf_counter(), 0

        async def desktop(number: int) -> None:
            nonlocal done

            def score(sandbox: SupervisedSandbox) -> Awaitable[float]:
                return sandbox.metric(*calls[(done + number) % 2], {})

            while time.perf_counter() - began < seconds:
                await pool.run(score)
                done += 1

        await asyncio.gather(*map(desktop, range(config.rollout.num_envs)))
        return done / (time.perf_counter() - began)
