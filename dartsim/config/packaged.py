"""The presets and workloads that come with the package."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from importlib import resources

from dartsim.config.settings import Tree, merge
from dartsim.core.errors import no_such


def presets() -> dict[str, Tree]:
    """Return every preset as a tree, by name; each has an ``[about]`` table with title, source and departures."""
    return deepcopy(dict(_presets()))


def preset(name: str) -> Tree:
    """Return one preset's settings.

    Raises:
        ConfigError: If no preset has that name.
    """
    known = _presets()
    if name not in known:
        raise no_such("preset", name, known)
    return without_about(deepcopy(known[name]))


@cache
def _presets() -> Mapping[str, Tree]:
    """Read every file of presets: one preset, or ``[variants]`` by name on top of shared settings.

    A variant with a ``preset`` builds on that other variant, and then lists only its own departures.
    """
    found: dict[str, Tree] = {}
    for name, shared in _read_folder("presets").items():
        for variant, own in shared.pop("variants", {name: {}}).items():
            base = found[own.pop("preset")] if "preset" in own else shared
            tree = merge(base, own)
            if base is shared and own:
                about = shared.get("about", {}), own["about"]
                tree["about"]["departures"] = [each for part in about for each in part.get("departures", ())]
            found[variant] = tree
    return dict(sorted(found.items()))


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return list(_presets())


def workloads() -> dict[str, Tree]:
    """Return every workload as a tree, by name: cluster, tasks and latencies, with an ``[about]`` table."""
    return _read_folder("workloads")


def without_about(tree: Tree) -> Tree:
    """Return settings without the ``[about]`` table of packaged files, profiles, and copies of them."""
    return {key: value for key, value in tree.items() if key != "about"}


def _read_folder(name: str) -> dict[str, Tree]:
    files = (file for file in (resources.files("dartsim.config") / name).iterdir() if file.name.endswith(".toml"))
    return {
        file.name.removesuffix(".toml"): tomllib.loads(file.read_text("utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    }
