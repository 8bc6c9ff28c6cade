"""Files that a learner's driver and its ranks exchange: safetensors and JSON, no code.

    setup.json           description of the ranks, read at their start
    turns.json           pictures (rows, columns, bytes a patch), prompts (length, pictures, …), examples
    turns.patches        the patches of all pictures, one after the other
    turns.safetensors    the data of prompts and examples, and the tensors of ``TurnData``

Every picture and every prompt is stored once. Threads cut and write the pictures, a few at a time; ranks map the file
and read a picture when needed. So no process holds all pictures of an update, 6 MB each at 1920 × 1080.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartsim.config.sections.trainer import TrainerConfig
from dartsim.real.learners.turn_data import TurnData
from dartsim.real.vlm.config import VlmConfig
from dartsim.real.vlm.images import Picture
from dartsim.real.vlm.packing import Example
from dartsim.real.vlm.prompts import VlmPrompt

SETUP, ABOUT, TENSORS, PATCHES = "setup.json", "turns.json", "turns.safetensors", "turns.patches"
CUT_AT_ONCE = 16
"""Pictures that are cut at a time, by as many threads as the machine has cores."""

_TENSORS = tuple(item.name for item in fields(TurnData) if item.name not in ("examples", "unwritable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Description of the ranks, which each reads at its start."""

    model: VlmConfig
    trainer: TrainerConfig
    seed: int
    export_dtype: str | None = None

    def write(self, folder: Path) -> None:
        (folder / SETUP).write_bytes(TypeAdapter(Setup).dump_json(self, indent=1))

    @staticmethod
    def read(folder: Path) -> Setup:
        return TypeAdapter(Setup).validate_json((folder / SETUP).read_bytes())


def write_turns(data: TurnData, folder: Path) -> None:
    """Write a batch's tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    picture_of: dict[tuple[Any, ...], tuple[int, Picture]] = {}
    prompt_of: dict[tuple[Any, ...], tuple[int, VlmPrompt]] = {}
    examples = []
    for example in data.examples:
        prompt = example.prompt
        for picture in prompt.pictures:
            picture_of.setdefault((picture.grid, picture.key), (len(picture_of), picture))
        number = prompt_of.setdefault(prompt.key, (len(prompt_of), prompt))[0]
        examples.append([number, len(example.tokens)])
    pictures = [picture for _, picture in picture_of.values()]
    prompts = [prompt for _, prompt in prompt_of.values()]
    about = {
        "pictures": [[*p.grid, p.key.hex()] for p in pictures],
        "patch_bytes": _write_patches(pictures, folder / PATCHES),
        "prompts": [
            {
                "length": len(p.short_tokens),
                "pictures": [picture_of[picture.grid, picture.key][0] for picture in p.pictures],
                "image": p.image,
                "merge": p.merge,
            }
            for p in prompts
        ],
        "examples": examples,
        "unwritable": data.unwritable,
    }
    tensors = {name: getattr(data, name) for name in _TENSORS if getattr(data, name) is not None}
    tensors["prompt_tokens"] = _joined([np.array(p.short_tokens) for p in prompts], np.int64)
    tensors["tokens"] = _joined([example.tokens for example in data.examples], np.int64)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / TENSORS)
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def read_turns_from(folder: Path) -> TurnData:
    """Read what ``write_turns`` wrote."""
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    tensors = load_file(folder / TENSORS)
    width, start, pictures = about["patch_bytes"], 0, []
    patches = np.memmap(folder / PATCHES, dtype=np.uint8, mode="r") if about["pictures"] else np.zeros(0, np.uint8)
    for rows, columns, key in about["pictures"]:
        end = start + rows * columns * width
        pictures.append(Picture((rows, columns), bytes.fromhex(key), patches[start:end].reshape(-1, width).view))
        start = end
    prompts = [
        VlmPrompt(
            tuple(tokens.tolist()), tuple(pictures[number] for number in row["pictures"]), row["image"], row["merge"]
        )
        for tokens, row in zip(
            _cut(tensors["prompt_tokens"], [row["length"] for row in about["prompts"]]), about["prompts"], strict=True
        )
    ]
    sizes = [length for _, length in about["examples"]]
    replies = zip(_cut(tensors["tokens"], sizes), about["examples"], strict=True)
    examples = [Example(prompts[number], tokens) for tokens, (number, _) in replies]
    rest: dict[str, Any] = {name: tensors.get(name) for name in _TENSORS}
    return TurnData(examples, **rest, unwritable=about["unwritable"])


def _write_patches(pictures: Sequence[Picture], file: Path) -> int:
    """Write the patches of pictures one after the other; return the bytes of a patch."""
    width = 0
    with file.open("wb") as stream, ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in range(0, len(pictures), CUT_AT_ONCE):
            for patches in threads.map(Picture.cut, pictures[start : start + CUT_AT_ONCE]):
                width = patches.shape[1]
                stream.write(patches.data)
    return width


def write_tensor(tensor: Tensor, file: Path) -> None:
    """Write one tensor."""
    save_file({"tensor": tensor.contiguous()}, file)


def read_tensor(file: Path) -> Tensor:
    """Read one tensor."""
    return load_file(file)["tensor"]


def _joined(parts: list[Any], kind: Any) -> Tensor:
    return torch.from_numpy(np.concatenate([np.zeros(0, kind), *parts]))


def _cut(whole: Tensor, lengths: list[int]) -> list[Any]:
    """Return the parts of a tensor as numpy arrays, without copying."""
    ends = list(accumulate(lengths))
    return [whole[end - length : end].numpy() for length, end in zip(lengths, ends, strict=True)]
