"""Which form of dartsim runs: wheels contain some modules both compiled and as Python source.

``pyproject.toml`` lists them, ``hatch_build.py`` compiles them. ``DARTSIM_PURE_PYTHON=1`` runs the source.
"""

from __future__ import annotations

import ast
import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**options: Any) -> Any:
        """Return the class unchanged; mypyc reads the options when it compiles the class."""
        return lambda cls: cls


PURE_PYTHON = "DARTSIM_PURE_PYTHON"
"""Environment variable that selects the Python source where compiled modules are installed."""


class SourceFinder:
    """Finds the source of dartsim's modules, never the compiled form."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("dartsim."):
            return None
        finders = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)) for folder in path or ())
        return next((spec for finder in finders if (spec := finder.find_spec(fullname))), None)


def choose() -> None:
    """Select the source if the environment asks for it; call before importing any other module."""
    if os.environ.get(PURE_PYTHON, "0") not in ("", "0"):
        sys.meta_path.insert(0, SourceFinder())


def is_compiled() -> bool:
    """Return whether the compiled modules are in use."""
    spec = find_spec("dartsim.sim.event_heap")
    return spec is not None and not str(spec.origin).endswith(".py")


def form() -> str:
    """Return the name of the form in use."""
    return "compiled" if is_compiled() else "pure Python"


def documented(value: Any) -> Any:
    """Return a value; a class gets the docstring of its source, which mypyc leaves out of what it compiles."""
    if isinstance(value, type) and not value.__doc__ and value.__module__.startswith("dartsim."):
        source = Path(__file__).parents[2] / (value.__module__.replace(".", "/") + ".py")
        tree = ast.parse(source.read_text(encoding="utf-8"))
        nodes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == value.__name__)
        value.__doc__ = ast.get_docstring(next(nodes))
    return value
