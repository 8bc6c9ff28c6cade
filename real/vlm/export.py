"""A model as a folder that vLLM serves: what ``Vlm.save`` writes, plus a chat template.

config.json, model.safetensors, tokenizer*.json, generation_config.json, preprocessor_config.json   ``Vlm.save``
chat_template.jinja         for the chat routes and other clients; our own requests are tokens
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Container
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartsim.real.scratch import replaced_folder
from dartsim.real.vlm.lora import LORA, PREFIX, is_adapter, merged, save_adapter
from dartsim.real.vlm.model import Snapshot, Vlm

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen's, without its default system message."""


def export(vlm: Vlm, folder: Path, *, dtype: str | None = None, merge: bool = True) -> Path:
    """Write a model's folder for vLLM, which appears whole or not at all; return it. Arguments: as of ``Vlm.save``."""
    with replaced_folder(folder) as partial:
        vlm.save(partial, dtype=dtype, merge=merge)
        (partial / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return folder


def export_weights(weights: Snapshot, folder: Path, *, like: Path | None = None, dtype: str | None = None) -> Path:
    """Write weights as a folder of safetensors, which appears whole or not at all; return it.

    An adapter alone becomes a folder of its own kind; together with weights it is merged into them.

    Args:
        weights: By the names of the transformers class, or of an adapter.
        folder: The folder.
        like: Folder of the same model. Its other files are copied, so that the result can be served by itself, and its
            names of tensors are used: checkpoints have older names than the classes.
        dtype: Of the written weights, by torch's name; None: as they are.
    """
    if is_adapter(weights):
        return save_adapter(weights, folder, dtype=dtype)
    weights = merged(weights)
    with replaced_folder(folder) as partial:
        names = _names(like) if like is not None else frozenset()
        if like is not None:
            for file in like.iterdir():
                if file.is_file() and ".safetensors" not in file.name:
                    shutil.copy2(file, partial / file.name)
        target_dtype = None if dtype is None else getattr(torch, dtype)
        tensors = {
            stored_name(name, names): tensor.detach().to("cpu", target_dtype or tensor.dtype).contiguous()
            for name, tensor in weights.items()
        }
        save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
    return folder


def _names(folder: Path) -> frozenset[str]:
    """Return the names of a folder's tensors."""
    names: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(str(file), framework="pt") as tensors:
            names.update(tensors.keys())
    return frozenset(names)


def stored_name(name: str, names: Container[str]) -> str:
    """Return a tensor's name in a checkpoint with these names; the class's name if the checkpoint does not have it."""
    older = name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
    return older if name not in names and older in names else name


def read_weights(path: Path, like: Collection[str]) -> dict[str, Tensor]:
    """Return the tensors of a folder or a file of safetensors, an adapter's too.

    Args:
        path: Where they are; a checkpoint in several files is read whole.
        like: Names of the transformers class, which they get: checkpoints may have older ones.

    Raises:
        FileNotFoundError: If there is no file.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"{str(path)!r} holds no safetensors file")
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors |= load_file(str(file))
    newer = {stored_name(name, tensors): name for name in like}
    return {newer.get(name, name): tensor for name, tensor in tensors.items()}


def with_adapter(base: Path, adapter: Snapshot) -> dict[str, Tensor]:
    """Return the weights of a model's folder by the names they have there, and an adapter for them."""
    weights = read_weights(base, ())
    names = frozenset(weights)
    for name, tensor in adapter.items():
        module, part = name.removeprefix(PREFIX).split(LORA)
        module = stored_name(f"{module}.weight", names).removesuffix(".weight")
        weights[f"{PREFIX}{module}{LORA}{part}"] = tensor
    return weights
