"""Reading a configuration: defaults, a preset, a TOML file, then ``--set`` overrides, in this order."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import tomli_w

from dartsim.config.packaged import preset, preset_names, without_about, workloads
from dartsim.config.rules import check, refuse_secrets
from dartsim.config.schema import Config
from dartsim.config.settings import Tree, check_keys, merge, nested, validate
from dartsim.core.errors import ConfigError, did_you_mean
from dartsim.core.files import below
from dartsim.core.plugins import check_plugins, trust_module, use_plugin, used_plugins
from dartsim.core.section import NONE

CLUSTER = ("cluster", "rollout.num_envs", "rollout.num_workers")
WORKLOAD = (
    *("run.hours", "tasks", "surrogate", "rollout.max_turns"),
    *("curation.attempts.group_size", "curation.batch.max_groups"),
)
"""Settings of a configuration that make up its cluster and its workload; the rest is its scheduler."""

PROFILE = "profile.toml"
"""File in a run directory that `dartsim cluster` writes."""


Scheduler = str | Path | Config
"""A preset's name, a TOML file, or a configuration."""


def load(scheduler: Scheduler = "dart", *, on: str | Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Return the resolved configuration of a scheduler.

    Args:
        scheduler: A preset's name; a TOML file, whose top-level ``preset`` names its preset; or a configuration.
        on: Cluster, tasks and latencies (see ``workload``), in place of its own.
        overrides: Settings as ``a.b=value``, the value in TOML syntax (bare words are strings), which come last.

    Raises:
        ConfigError: On an unknown key (with the nearest valid one), a wrong value, or a combination that cannot work.
    """
    tree = scheduler.model_dump() if isinstance(scheduler, Config) else read_scheduler(scheduler)
    if on is not None:
        tree = apply_workload(tree, str(on))
    given: Tree = {}
    for override in overrides:
        given = merge(given, parse_override(override))
    _trust(given)
    if given.get("preset", tree["preset"]) != tree["preset"]:
        raise ConfigError(f"these are settings of the preset {tree['preset']!r}; name another scheduler to change it")
    tree = merge(tree, given)
    if on is not None and tree.get("policy", {}).get("kind") == "vlm":
        raise ConfigError(
            f"workload {str(on)!r} (--on) is for surrogate policies, and {tree['preset']!r} has policy.kind = 'vlm'. "
            "Leave out --on, or choose another preset"
        )
    return from_tree(tree)


def read_scheduler(scheduler: str | Path) -> Tree:
    """Return the settings of a preset, or of a TOML file on top of its preset.

    Raises:
        ConfigError: If there is no such preset or file.
    """
    file = Path(scheduler)
    if str(scheduler) in preset_names() and not file.is_file():
        return {**preset(str(scheduler)), "preset": str(scheduler)}
    own = _read(file)
    name = str(own.get("preset", "dart"))
    return merge(merge({"run": {"name": file.stem}}, preset(name)), {**own, "preset": name})


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Return the configuration of a tree of settings.

    Raises:
        ConfigError: As ``load``.
    """
    refuse_secrets(tree)  # before an error message could quote one
    check_plugins(tree, "")
    return check(validate({**tree, "plugin_modules": used_plugins()}))


def to_toml(config: Config) -> str:
    """Return the resolved configuration as TOML, which ``load`` reads back."""
    return tomli_w.dumps(_without_null(config.model_dump()))


def _without_null(value: Any) -> Any:
    """Return a tree with ``NONE`` in place of each None."""
    if isinstance(value, Mapping):
        return {key: _without_null(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_null(each) for each in value]
    return NONE if value is None else value


def parse_override(text: str) -> Tree:
    """Return ``a.b=value`` as a tree; a value that is not TOML is a string.

    Raises:
        ConfigError: If there is no ``=`` or no key.
    """
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise ConfigError(f"an override is written section.key=value, got {text!r}")
    try:
        read = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        read = value.strip()
    return nested(".".join(parts), read)


def _trust(given: Tree) -> None:
    """Trust the code that overrides name: unlike a file's settings, they are the caller's own."""
    modules = given.get("plugin_modules", [])
    for module in modules if isinstance(modules, list) else ():
        use_plugin(str(module))
    for module in _env_modules(given):
        trust_module(module)


def _env_modules(tree: Tree) -> list[str]:
    """Return the modules of the environment and adapter named in settings (``gym``)."""
    gym = tree.get("gym", {})
    names = [gym.get(key) for key in ("env", "wrapper")] if isinstance(gym, Mapping) else []
    return [name.partition(":")[0] for name in names if isinstance(name, str) and ":" in name]


# -- files ----------------------------------------------------------------------------------------


def read_tree(file: Path) -> Tree:
    """Return a file's settings as they are written, without its ``about`` table.

    Raises:
        ConfigError: If it cannot be read or is not TOML.
    """
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        like = did_you_mean(str(file), preset_names()) if file.suffix != ".toml" else ""
        hint = like or "; to start from a preset: `dartsim config dart > my.toml`"
        raise ConfigError(f"there is no configuration file or run {file}{hint}") from None
    except OSError as error:
        raise ConfigError(f"the configuration file {file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    return without_about(tree)


def _read(file: Path) -> Tree:
    """Return a file's settings.

    Raises:
        ConfigError: As ``read_tree``, or if it names untrusted code or has an unknown key.
    """
    tree = read_tree(file)
    check_plugins(tree, f"{file}: ", others=_env_modules(tree))
    check_keys(tree, f"{file}: ")  # wrong values may still be overridden
    return tree


# -- workloads and profiles -----------------------------------------------------------------------


def apply_profile(tree: Mapping[str, Any], profile: Mapping[str, Any]) -> Tree:
    """Return ``tree`` overridden by a measured profile; distributions are replaced whole, not key by key."""
    merged: Any = merge(tree, profile)
    for section, name in (("env", "latency"), ("engine", "batch_spread")):
        measured = profile.get("cluster", {}).get(section, {}).get(name)
        if measured is not None:
            merged["cluster"][section][name] = measured
    return dict(merged)


def workload(name: str) -> Tree:
    """Return the settings of a cluster and its workload: machines, latencies, tasks.

    Args:
        name: A packaged workload; a preset, without its scheduler; a TOML file with only such settings, or with a
            ``preset`` and then without its scheduler; or a run directory, for its measured profile or else its
            configuration. After a ``+``, another of these, whose tasks and lengths are used instead
            (``cluster.toml+long-tail``), or a file of measured times (``dart+latencies.toml``).

    Raises:
        ConfigError: If there is no such workload, preset, file or directory.
    """
    cluster, plus, other = name.partition("+")
    if not plus or Path(name).exists():
        return _workload(name)
    if Path(other).is_file() and _only_measured(measured := _read(Path(other))):
        return apply_profile(_workload(cluster), measured)
    return _parts(_workload(other), WORKLOAD, _parts(_workload(cluster), CLUSTER))


def _workload(name: str) -> Tree:
    path, known = Path(name), workloads()
    if name in known:
        return without_about(known[name])
    if name in preset_names():
        return _parts(load(name).model_dump(), (*CLUSTER, *WORKLOAD))
    if path.is_dir():
        path = next((below(path, file) for file in (PROFILE, "config.toml") if (path / file).is_file()), path / PROFILE)
    elif not path.is_file() and path.suffix != ".toml":
        hint = did_you_mean(name, [*known, *preset_names()]).replace("?", "? ") or "; "
        raise ConfigError(
            f"there is no workload {name!r}{hint}allowed: {', '.join(known)}, a preset (`dartsim config --list "
            "presets`), a TOML file, or a run's folder"
        )
    own = _read(path)
    if "preset" in own:
        return _parts(load(path).model_dump(), (*CLUSTER, *WORKLOAD))
    if path.name != PROFILE and _only_measured(own):
        raise ConfigError(f"{path} has measured times but no cluster: write --on CLUSTER+{path}")
    return own


def _only_measured(tree: Mapping[str, Any]) -> bool:
    """Whether these are only times of desktops or of an engine."""
    return tree.keys() == {"cluster"} and tree["cluster"].keys() <= {"env", "engine"}


def _parts(tree: Mapping[str, Any], keys: Iterable[str], base: Mapping[str, Any] = {}) -> Tree:
    """Return ``base`` with the parts of a tree at dotted keys, as far as the tree has them."""
    parts = dict(base)
    for key in keys:
        value: Any = tree
        for part in key.split("."):
            value = value.get(part, {}) if isinstance(value, Mapping) else {}
        if value != {}:
            parts = merge(parts, nested(key, value))
    return parts


def apply_workload(tree: Mapping[str, Any], name: str) -> Tree:
    """Return a scheduler's settings merged with a workload, on the workload's desktops.

    The scheduler's spare desktops are taken from the workload's, at most a tenth of them. The smallest batch and group
    are at most the largest.
    """
    over = workload(name)
    laid = apply_profile(tree, over)
    groups, attempts = _value(laid, "curation.batch.max_groups"), _value(laid, "curation.attempts.group_size")
    changes = {
        "curation.batch.min_groups": min(_value(laid, "curation.batch.min_groups"), groups),
        "curation.groups.min_size": min(_value(laid, "curation.groups.min_size"), attempts),
    }
    if "num_envs" in over.get("rollout", {}):
        desktops = _value(laid, "rollout.num_envs")
        spares = min(_value(laid, "rollout.warm_envs"), desktops // 10)
        changes |= {"rollout.num_envs": desktops - spares, "rollout.warm_envs": spares}
    for key, value in changes.items():
        laid = merge(laid, nested(key, value))
    return laid


def _value(tree: Mapping[str, Any], key: str) -> Any:
    """Return a setting of a tree, or else its default."""
    value: Any = tree
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return reduce(getattr, key.split("."), Config())
        value = value[part]
    return value
