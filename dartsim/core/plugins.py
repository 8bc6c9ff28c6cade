"""Plug-ins: modules that register components, and which of them may be imported.

They are imported before names are looked up: those that ``--plugin`` or ``DARTSIM_PLUGINS`` names, never those that
only a file names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.plugin_errors import PLUGIN_MODULES, describe

VARIABLE = "DARTSIM_PLUGINS"
"""Environment variable with the modules of plug-ins, separated by commas."""

_trusted: set[str] = set()


@cache
def load_plugins() -> None:
    """Import the plug-ins, which register their components.

    Raises:
        ConfigError: If one cannot be imported.
    """
    for module in used_plugins():
        use_plugin(module)


def use_plugin(module: str) -> None:
    """Import a module that registers components, here and in every process started from here.

    The module may be in the working directory.

    Raises:
        ConfigError: If it cannot be imported.
    """
    _check_name(module, "--plugin")
    try:
        import_module_here(module)
    except ImportError as error:
        raise ConfigError(
            f"--plugin {module}: {error}; wanted a module that Python can import: install it, or start in its folder"
        ) from None
    except Exception as error:
        raise ConfigError(f"--plugin {module} cannot be imported: {describe(error)}") from error
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*used_plugins(), module]))


def used_plugins() -> list[str]:
    """Return the plug-in modules named to this process."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def trust_module(module: str) -> None:
    """Allow files to name a module, because the command line or a program has named it; it is imported later."""
    _trusted.add(module)


def check_plugins(tree: Mapping[str, Any], where: str, *, others: Iterable[str] = ()) -> None:
    """Refuse settings that name modules the user has not named: the file may be a stranger's.

    Args:
        tree: Settings, including ``plugin_modules``.
        where: Their file, for errors.
        others: Other modules that the settings name.

    Raises:
        ConfigError: If ``plugin_modules`` is not a list of modules, or a module is neither trusted nor imported yet.
    """
    modules = tree.get("plugin_modules", [])
    if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
        raise ConfigError(f"{where}plugin_modules = {modules!r}: wanted a list of modules' names")
    for module in modules:
        _check_name(module, f"{where}plugin_modules:")
    known = _trusted.union(used_plugins())
    new = [module for module in modules if module not in sys.modules]  # imported ones run no code again
    if unknown := [module for module in dict.fromkeys([*new, *others]) if module not in known]:
        options = " ".join(f"--plugin {module}" for module in unknown)
        raise ConfigError(
            f"{where}names code that would be imported, which no file may do by itself: {', '.join(unknown)}. If you "
            f"trust this code, give {options}"
        )


def _check_name(module: str, named_by: str) -> None:
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"{named_by} {module!r}: wanted a module's name, such as package.module")


def import_module_here(module: str) -> ModuleType:
    """Import a module named by the user, which may be in the working directory."""
    PLUGIN_MODULES.add(module)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return import_module(module)
