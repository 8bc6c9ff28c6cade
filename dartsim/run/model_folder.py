"""``policy.model``: a folder, or an id of the Hugging Face hub, whose files are downloaded once."""

from __future__ import annotations

import re
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command

HUB_ID = re.compile(r"^(?!models/)[A-Za-z0-9][\w.-]*/[\w.-]+$")
"""An id of the hub; ``models/NAME`` is where our presets look for a folder."""
FILES = ("*.json", "*.jinja", "*.safetensors", "*.txt")
"""Files of a model that are downloaded: configuration, chat template, weights, tokenizer."""


def is_hub_id(name: str) -> bool:
    """Return whether a name can only be an id of the hub, not a folder, such as ``Qwen/Qwen3-VL-2B-Instruct``."""
    return HUB_ID.match(name) is not None and not Path(name).exists()


def with_model_folder(config: Config) -> Config:
    """Return a configuration whose model, if it has one, is a folder; errors as ``model_folder``."""
    policy = config.policy
    if policy.kind != "vlm" or policy.model is None or not is_hub_id(policy.model):
        return config
    return config.replace(policy={"model": str(model_folder(policy.model))})


def model_folder(name: str) -> Path:
    """Return the folder of a model; for an id of the hub, its folder in the hub's cache, downloaded if missing.

    Raises:
        ConfigError: If the hub cannot be reached, has no such model, or its client is not installed.
    """
    if not is_hub_id(name):
        return Path(name)
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        needed = install_command("train")
        raise ConfigError(f"policy.model = {name!r} is no folder, and the hub's client is missing: {needed}") from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except Exception as error:  # network, HTTP or disk: the client's errors have no common base class
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"policy.model = {name!r} is no folder here, and is not available from the Hugging Face hub ({reason}). "
            f"Give a folder; or, where there is a network: hf download {name} --local-dir FOLDER"
        ) from None
