"""What a learner's driver and its ranks exchange as files: safetensors and JSON, no code.

    setup.json           what the ranks are, read at their start
    turns.json           pictures (rows, columns, bytes a patch), prompts (length, pictures, …), examples
    turns.safetensors    their data, one after the other, and the tensors of ``TurnData``

Every picture and every prompt is stored once. Ranks map the file: a picture is read where it is needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from hashlib import sha256
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

SETUP, ABOUT, TENSORS = "setup.json", "turns.json", "turns.safetensors"

_TENSORS = tuple(item.name for item in fields(TurnData) if item.name not in ("examples", "unwritable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a rank reads at its start.

    Attributes:
        model: The model, with the folder of its first weights.
        trainer: How it is trained, and by how many ranks.
        seed: The learner's seed.
        socket: Where the driver listens.
        export_dtype: Type of exported weights, by torch's name; None: the model's.
    """

    model: VlmConfig
    trainer: TrainerConfig
    seed: int
    socket: str
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
        "pictures": [[*p.grid, p.patches.shape[1], sha256(p.key).hexdigest()] for p in pictures],
        "prompts": [
            {
                "length": len(p.tokens),
                "next_position": int(p.next_position),
                "pictures": [picture_of[picture.grid, picture.key][0] for picture in p.pictures],
                "image_starts": [int(start) for start in p.image_starts],
            }
            for p in prompts
        ],
        "examples": examples,
        "unwritable": data.unwritable,
    }
    tensors = {name: getattr(data, name) for name in _TENSORS if getattr(data, name) is not None}
    tensors |= {
        "patches": _joined([p.patches.reshape(-1) for p in pictures], np.uint8),
        "prompt_tokens": _joined([p.tokens for p in prompts], np.int64),
        "prompt_positions": _joined([p.positions.reshape(-1) for p in prompts], np.int64),
        "tokens": _joined([example.tokens for example in data.examples], np.int64),
        "states": _joined([example.states for example in data.examples], np.int64),
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / TENSORS)
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def read_turns_from(folder: Path) -> TurnData:
    """Read what ``write_turns`` wrote."""
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    tensors = load_file(folder / TENSORS)
    sizes = [rows * columns * width for rows, columns, width, _ in about["pictures"]]
    pictures = [
        Picture(patches.reshape(rows * columns, width), (rows, columns), bytes.fromhex(key))
        for patches, (rows, columns, width, key) in zip(_cut(tensors["patches"], sizes), about["pictures"], strict=True)
    ]
    lengths = [row["length"] for row in about["prompts"]]
    parts = zip(
        _cut(tensors["prompt_tokens"], lengths),
        _cut(tensors["prompt_positions"], [3 * length for length in lengths]),
        about["prompts"],
        strict=True,
    )
    prompts = [
        VlmPrompt(
            tokens,
            positions.reshape(3, -1),
            row["next_position"],
            tuple(pictures[number] for number in row["pictures"]),
            tuple(row["image_starts"]),
        )
        for tokens, positions, row in parts
    ]
    sizes = [length for _, length in about["examples"]]
    replies = zip(_cut(tensors["tokens"], sizes), _cut(tensors["states"], sizes), about["examples"], strict=True)
    examples = [Example(prompts[number], tokens, states) for tokens, states, (number, _) in replies]
    rest: dict[str, Any] = {name: tensors.get(name) for name in _TENSORS}
    return TurnData(examples, **rest, unwritable=about["unwritable"])


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
