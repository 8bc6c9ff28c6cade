"""What is said where a model is asked for and torch is not installed."""

from __future__ import annotations

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command


def torch_missing(missing: ModuleNotFoundError) -> ConfigError:
    """Return the error for a module that a real model needs and that is not there."""
    return ConfigError(
        f"policy.kind = 'vlm' trains a real model and needs {missing.name}, which is not installed: "
        f"{install_command('train')}; or take a preset whose policy is a surrogate, such as --preset dart"
    )
