"""A batch's tensors as files, from the driver to its ranks: safetensors and JSON, no code.

    turns.json           pictures (rows, columns, bytes a patch), prompts (length, pictures, …), examples
    turns.safetensors    what they are made of, one after the other, and the tensors of ``TurnData``

Every picture and every prompt is there once. Ranks map the file: a picture is read where it is needed.
"""

from __future__ import annotations

import json
from dataclasses import fields
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartsim.real.learners.turn_data import TurnData
from dartsim.real.vlm.images import Picture
from dartsim.real.vlm.packing import Example
from dartsim.real.vlm.prompts import VlmPrompt

ABOUT, TENSORS = "turns.json", "turns.safetensors"

_TENSORS = tuple(item.name for item in fields(TurnData) if item.name not in ("examples", "unwritable"))


def write_turns(data: TurnData, folder: Path) -> None:
    """Write a batch's tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[tuple[Any, ...], tuple[int, Picture]] = {}
    prompts: dict[tuple[Any, ...], tuple[int, VlmPrompt]] = {}
    used = []
    for example in data.examples:
        prompt = example.prompt
        for picture in prompt.pictures:
            pictures.setdefault((picture.grid, picture.key), (len(pictures), picture))
        used.append(prompts.setdefault(prompt.key, (len(prompts), prompt))[0])
    seen = [picture for _, picture in pictures.values()]
    asked = [prompt for _, prompt in prompts.values()]
    about = {
        "pictures": [[*p.grid, p.patches.shape[1], sha256(p.key).hexdigest()] for p in seen],
        "prompts": [
            {
                "length": len(p.tokens),
                "next_position": int(p.next_position),
                "pictures": [pictures[picture.grid, picture.key][0] for picture in p.pictures],
                "image_starts": [int(start) for start in p.image_starts],
            }
            for p in asked
        ],
        "examples": [[number, len(example.tokens)] for number, example in zip(used, data.examples, strict=True)],
        "unwritable": data.unwritable,
    }
    tensors = {name: getattr(data, name) for name in _TENSORS if getattr(data, name) is not None}
    tensors |= {
        "patches": _joined([p.patches.reshape(-1) for p in seen], np.uint8),
        "prompt_tokens": _joined([p.tokens for p in asked], np.int64),
        "prompt_positions": _joined([p.positions.reshape(-1) for p in asked], np.int64),
        "tokens": _joined([example.tokens for example in data.examples], np.int64),
        "states": _joined([example.states for example in data.examples], np.int64),
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / TENSORS)
    (folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def read_turns_from(folder: Path) -> TurnData:
    """Read what was written."""
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    tensors = load_file(folder / TENSORS)
    sizes = [rows * columns * width for rows, columns, width, _ in about["pictures"]]
    pictures = [
        Picture(patches.reshape(rows * columns, width), (rows, columns), bytes.fromhex(key))
        for patches, (rows, columns, width, key) in zip(_cut(tensors["patches"], sizes), about["pictures"], strict=True)
    ]
    lengths = [row["length"] for row in about["prompts"]]
    positions = _cut(tensors["prompt_positions"], [3 * length for length in lengths])
    prompts = [
        VlmPrompt(
            tokens,
            places.reshape(3, -1),
            row["next_position"],
            tuple(pictures[number] for number in row["pictures"]),
            tuple(row["image_starts"]),
        )
        for tokens, places, row in zip(
            _cut(tensors["prompt_tokens"], lengths), positions, about["prompts"], strict=True
        )
    ]
    sizes = [length for _, length in about["examples"]]
    said = zip(_cut(tensors["tokens"], sizes), _cut(tensors["states"], sizes), about["examples"], strict=True)
    examples = [Example(prompts[number], tokens, states) for tokens, states, (number, _) in said]
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
