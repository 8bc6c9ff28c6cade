"""Reading a configuration: defaults, a preset, a TOML file, then ``--set`` overrides, in this order."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dartsim.config.rules import check, refuse_secrets
from dartsim.config.schema import AttemptsConfig, BatchConfig, Config, RolloutConfig
from dartsim.core.errors import ConfigError, did_you_mean, no_such
from dartsim.core.files import below
from dartsim.core.registry import (
    PARTIAL,
    TAG,
    Choice,
    check_plugins,
    trust_module,
    use_plugin,
    used_plugins,
)
from dartsim.core.section import NONE

Tree = dict[str, Any]

LISTED = 10
"""Maximum number of problems that one error names."""

SIMILARITY = 0.55
"""Similarity (``difflib``) of the last parts of two names at which one is suggested for the other."""


def presets() -> dict[str, Tree]:
    """Return every preset as a tree, by name; each has an ``[about]`` table with title, source and departures."""
    return deepcopy(_presets())


def preset(name: str) -> Tree:
    """Return one preset's settings.

    Raises:
        ConfigError: If no preset has that name.
    """
    known = _presets()
    if name not in known:
        raise no_such("preset", name, known)
    return deepcopy({key: value for key, value in known[name].items() if key != "about"})


@cache
def _presets() -> dict[str, Tree]:
    """Read every file of presets: one preset, or ``[variants]`` by name on top of shared settings.

    A variant with a ``preset`` builds on that other variant, and then lists only its own departures.
    """
    found: dict[str, Tree] = {}
    for name in _names("presets"):
        shared = _read_packaged("presets", name)
        for variant, own in shared.pop("variants", {name: {}}).items():
            base = found[own.pop("preset")] if "preset" in own else shared
            tree = merge(base, own)
            if base is shared and own:
                about = shared.get("about", {}), own["about"]
                tree["about"]["departures"] = [each for part in about for each in part.get("departures", ())]
            found[variant] = tree
    return dict(sorted(found.items()))


def scheduler(name: str) -> Tree:
    """Return the settings of a preset, or of a TOML file on top of its preset.

    Raises:
        ConfigError: If there is no such preset or file.
    """
    if not name.endswith(".toml"):
        return preset(name)
    own = _read(Path(name))
    return merge(preset(own.get("preset", "dart")), own)


def workloads() -> dict[str, Tree]:
    """Return every workload as a tree, by name: cluster, tasks and latencies, with an ``[about]`` table."""
    return {name: _read_packaged("workloads", name) for name in _names("workloads")}


CLUSTER = ("cluster", "rollout.num_envs", "rollout.num_workers")
WORKLOAD = (
    *("run.hours", "tasks", "surrogate", "rollout.max_turns"),
    *("curation.attempts.group_size", "curation.batch.max_groups"),
)
"""Settings of a configuration that make up its cluster and its workload; the rest is its scheduler."""

PROFILE = "profile.toml"
"""File in a run directory that `dartsim cluster` writes."""


def workload(name: str) -> Tree:
    """Return the settings of a cluster and its workload: machines, latencies, tasks.

    Args:
        name: A packaged workload; a preset, without its scheduler; a TOML file with only such settings, or with a
            ``preset`` and then without its scheduler; or a run directory, for its measured profile or else its
            configuration. After a ``+``, another of these, whose tasks and lengths are used instead
            (``cluster.toml+long-tail``), or a file of measured latencies (``dart+latencies.toml``).

    Raises:
        ConfigError: If there is no such workload, preset, file or directory.
    """
    cluster, plus, other = name.partition("+")
    if not plus or Path(name).exists():
        return _workload(name)
    if Path(other).is_file() and _only_latencies(latencies := _read(Path(other))):
        return apply_profile(_workload(cluster), latencies)
    tree: Tree = {}
    for source, keys in ((_workload(cluster), CLUSTER), (_workload(other), WORKLOAD)):
        for key in keys:
            tree = merge(tree, _part(source, key))
    return tree


def _workload(name: str) -> Tree:
    path = Path(name)
    is_preset, is_file = name in _presets(), path.is_file() or name.endswith(".toml")
    if name in _names("workloads"):
        return {key: value for key, value in _read_packaged("workloads", name).items() if key != "about"}
    if not (is_preset or is_file or path.is_dir()):
        known = _names("workloads")
        hint = did_you_mean(name, [*known, *_presets()])
        raise ConfigError(
            f"there is no workload {name!r}{hint}{' There' if hint else '; there'} are: {', '.join(known)}; a preset "
            "(`dartsim config`), a TOML file or the folder of a run are taken, too"
        )
    if path.is_dir() and not is_preset:
        path = next((below(path, file) for file in (PROFILE, "config.toml") if (path / file).is_file()), path / PROFILE)
    own = {} if is_preset else _read(path)
    if not is_preset and "preset" not in own:
        if is_file and _only_latencies(own):
            raise ConfigError(f"{path} has latencies of desktops and no cluster: write --on CLUSTER+{path}")
        return own
    whole = (load(preset_name=name) if is_preset else load(path)).model_dump()
    tree: Tree = {}
    for key in (*CLUSTER, *WORKLOAD):
        tree = merge(tree, _part(whole, key))
    return tree


def _only_latencies(tree: Mapping[str, Any]) -> bool:
    return tree.keys() - {"about"} == {"cluster"} and tree["cluster"].keys() == {"env"}


def _part(tree: Mapping[str, Any], key: str) -> Tree:
    """Return the part of a tree at a dotted key, as a tree; empty if the key is absent."""
    value: Any = tree
    for part in key.split("."):
        if part not in value:
            return {}
        value = value[part]
    return _tree(key, value)


def _names(folder: str) -> list[str]:
    entries = (resources.files("dartsim.config") / folder).iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))


def _read_packaged(folder: str, name: str) -> Tree:
    return tomllib.loads((resources.files("dartsim.config") / folder / f"{name}.toml").read_text("utf-8"))


def apply_workload(tree: Mapping[str, Any], name: str) -> Tree:
    """Return a scheduler's settings merged with a workload, on the workload's desktops.

    The scheduler's spare desktops are taken from the workload's, at most a tenth of them. A bound in attempts
    (``curation.max_ahead``) stays the same number of batches, and ``groups.min_size`` is at most the group size.
    """
    over = workload(name)
    laid: Any = apply_profile(tree, over)
    rollout = {"num_envs": RolloutConfig.model_fields["num_envs"].default, **laid.get("rollout", {})}
    base, given = tree.get("curation", {}), laid.get("curation", {})
    if isinstance(base.get("max_ahead"), int):
        laid["curation"] = {**given, "max_ahead": base["max_ahead"] * _batch_attempts(given) // _batch_attempts(base)}
    groups = tree.get("curation", {}).get("groups", {})
    batch: dict[str, int] = {name: BatchConfig.model_fields[name].default for name in ("min_groups", "max_groups")}
    batch |= given.get("batch", {})
    if batch["min_groups"] > batch["max_groups"]:
        laid["curation"] = {**laid["curation"], "batch": {**batch, "min_groups": batch["max_groups"]}}
    most = given.get("attempts", {}).get("group_size")
    if most is not None and groups.get("min_size", 0) > most:
        laid["curation"] = {**laid["curation"], "groups": {**laid["curation"]["groups"], "min_size": most}}
    if "num_envs" in over.get("rollout", {}):
        spares = min(rollout.get("warm_envs", 0), rollout["num_envs"] // 10)
        laid["rollout"] = {**rollout, "num_envs": rollout["num_envs"] - spares, "warm_envs": spares}
    return {**laid, "workload": name if name in _names("workloads") else NONE}


def _batch_attempts(curation: Mapping[str, Any]) -> int:
    """Return the attempts of a batch in a tree's curation, with the schema's defaults."""
    groups = curation.get("batch", {}).get("max_groups", BatchConfig.model_fields["max_groups"].default)
    attempts = curation.get("attempts", {}).get("group_size", AttemptsConfig.model_fields["group_size"].default)
    return int(groups * attempts)


def load(
    file: str | Path | None = None,
    *,
    preset_name: str | None = None,
    workload_name: str | None = None,
    overrides: Iterable[str] = (),
) -> Config:
    """Return the resolved configuration.

    Args:
        file: A TOML file, whose top-level ``preset`` names its preset; or the name of a preset.
        preset_name: The preset, if the file names none; by default ``dart``.
        workload_name: The workload (see ``workload``), which overrides both. One named in the file is overridden by the
            file's own settings.
        overrides: Settings as ``a.b=value``, the value in TOML syntax (bare words are strings).

    Raises:
        ConfigError: On an unknown key (with the nearest valid one), a wrong value, or a combination that cannot work;
            or if the file names another preset than ``preset_name``.
    """
    if file is not None and str(file) in _presets() and not Path(file).is_file():
        if preset_name not in (None, str(file)):
            raise ConfigError(f"two presets are named, {str(file)!r} and --preset {preset_name}; name one of them")
        file, preset_name = None, str(file)
    own = _read(Path(file)) if file is not None else {}
    named = own.get("preset")
    given: Tree = {}
    for override in overrides:
        given = merge(given, parse_override(override))
    _trust(given)
    name = {**own, **given}.get("preset", "dart") if preset_name is None else preset_name
    if not isinstance(name, str):
        raise ConfigError(f"preset must be the name of a preset, got {name!r}; there are: {', '.join(presets())}")
    if named is not None and name != named:
        raise ConfigError(
            f"{file} builds on preset {named!r}, and {name!r} was asked for; what the file sets would hold all the "
            f"same. Leave --preset out, or take the line `preset` and what should be {name!r}'s out of the file"
        )
    base: Tree = preset(name)
    laid = str({**own, **given}.get("workload", NONE)) if workload_name is None else workload_name
    if workload_name is not None:
        base, own = apply_workload(merge(base, own), laid), {}
        given.pop("workload", None)
    elif laid != NONE:
        base = apply_workload(base, laid)
    tree = merge(base, merge(own, given))
    if laid != NONE and (kind := tree.get("policy", {}).get("kind")) == "vlm":
        raise ConfigError(
            f"a workload goes over a preset with a surrogate policy, and {name!r} has policy.kind = {kind!r}; "
            f"leave --on {laid} out, or name another preset"
        )
    if file is not None:
        tree = merge({"run": {"name": Path(file).stem}}, tree)
    return from_tree({**tree, "preset": name})


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Return the configuration of a tree of settings.

    Raises:
        ConfigError: As ``load``.
    """
    refuse_secrets(tree)  # before an error message could quote one
    check_plugins(tree, "")
    return check(_validate({**tree, "plugin_modules": used_plugins()}))


def merge(base: Mapping[str, Any], over: Mapping[str, Any], section: type[BaseModel] | None = Config) -> Tree:
    """Return ``base`` overridden by ``over``, table by table.

    Where ``over`` chooses another component than ``base``, parameters that only the old one has are removed.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        field = section.model_fields.get(key) if section is not None else None
        if not isinstance(old, dict) or not isinstance(value, dict):
            merged[key] = value
        elif (choice := _choice(field)) is not None:
            merged[key] = {**_shared_parameters(old, value, choice), **value}
        else:
            merged[key] = merge(old, value, _section(field, value))
    return merged


def _shared_parameters(old: Tree, new: Tree, choice: Choice) -> Tree:
    """Return ``old`` without the parameters that only its component has, if ``new`` chooses another component."""
    before, after = old.get(TAG, choice.default), new.get(TAG, old.get(TAG, choice.default))
    sections = choice.sections()
    if before == after or before not in sections or after not in sections:
        return old
    gone = sections[before].model_fields.keys() - sections[after].model_fields.keys()
    return {key: value for key, value in old.items() if key not in gone}


def apply_profile(tree: Mapping[str, Any], profile: Mapping[str, Any]) -> Tree:
    """Return ``tree`` overridden by a measured profile; distributions are replaced whole, not key by key."""
    merged: Any = merge(tree, profile)
    for section, name in (("env", "latency"), ("engine", "batch_spread")):
        measured = profile.get("cluster", {}).get(section, {}).get(name)
        if measured is not None:
            merged["cluster"][section][name] = measured
    return dict(merged)


def parse_override(text: str) -> Tree:
    """Return ``a.b=value`` as a tree.

    Raises:
        ConfigError: If there is no ``=`` or no key.
    """
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise ConfigError(f"an override is written section.key=value, got {text!r}")
    return _tree(".".join(parts), _value(value.strip()))


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


def _tree(key: str, value: Any) -> Tree:
    """Return a tree with one setting."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def check_setting(key: str, value: Any) -> None:
    """Refuse a setting that is invalid in every configuration.

    Raises:
        ConfigError: If the key is unknown (with the nearest valid one), or the value's type or range is wrong.
    """
    if key in valid_keys() and key not in {setting.key for setting in describe()}:
        raise ConfigError(f"{key} is a section, not a setting; name one of its settings")
    _validate(_tree(key, value), partial=True)


def to_toml(config: Config) -> str:
    """Return the resolved configuration as TOML, which ``load`` reads back."""
    return tomli_w.dumps(_without_null(config.model_dump()))


def _value(text: str) -> Any:
    """Return a TOML value; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def read_tree(file: Path) -> Tree:
    """Return a file's settings as they are written, without its ``about`` table.

    Raises:
        ConfigError: If it cannot be read or is not TOML.
    """
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        like = _nearest(str(file), _presets()) if file.suffix != ".toml" else ""
        hint = like or "; `dartsim config dart > my.toml` writes one to be edited"
        raise ConfigError(f"there is no configuration file or run {file}{hint}") from None
    except OSError as error:
        raise ConfigError(f"the configuration file {file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    tree.pop("about", None)  # present in profiles and in copies of preset files
    return tree


def _read(file: Path) -> Tree:
    """Return a file's settings.

    Raises:
        ConfigError: As ``read_tree``, or if it names untrusted code or has an unknown key.
    """
    tree = read_tree(file)
    check_plugins(tree, f"{file}: ", others=_env_modules(tree))
    try:
        Config.model_validate(tree, context=PARTIAL)
    except ValidationError as error:  # wrong values may still be overridden
        if unknown := _unknown_keys(error):
            raise ConfigError("\n".join(f"{file}: {sentence}" for sentence in unknown)) from None
    return tree


def _validate(tree: Mapping[str, Any], *, partial: bool = False) -> Config:
    """Return a tree's configuration; a ``partial`` tree may set a component's parameters without naming it.

    Raises:
        ConfigError: If a key is unknown, or otherwise if a value is wrong.
    """
    try:
        return Config.model_validate(tree, context=PARTIAL if partial else None)
    except ValidationError as error:
        if unknown := _unknown_keys(error):
            raise ConfigError("\n".join(unknown)) from None
        wrong = _first(_wrong_values(error))
        raise ConfigError("the configuration has wrong values:\n" + "\n".join(wrong)) from None


def _first(sentences: Sequence[str], number: int = 0) -> list[str]:
    """Return the first sentences and how many are omitted, of ``number`` in all."""
    more = max(number, len(sentences)) - LISTED
    return [*sentences[:LISTED], *([f"and {more:,} more"] if more > 0 else [])]


def _unknown_keys(error: ValidationError) -> list[str]:
    """Return one sentence for each key that neither the schema nor the chosen component has."""
    found = [item for item in error.errors() if item["type"] == "extra_forbidden"]
    return _first([_unknown(item["loc"], item["input"]) for item in found[:LISTED]], len(found))


def _unknown(location: tuple[int | str, ...], value: Any) -> str:
    key = ".".join(map(str, location))
    table, _, last = key.rpartition(".")
    settings = {setting.key for setting in describe()}
    if key in settings:
        rule, having = f"{table}.{TAG}", [name for name, known in _components(table).items() if last in known]
        return f"{key} is a parameter of {', '.join(having)}, and {rule} chooses another"
    known = valid_keys() if isinstance(value, Mapping) or not table else settings
    return f"unknown key {key!r}{_nearest(key, [each for each in known if each != table])}"


def _components(table: str) -> dict[str, Iterable[str]]:
    """Return the parameters' names of each component that a table may choose, by its name."""
    section: Any = Config
    *parts, last = table.split(".")
    for part in parts:
        section = section.model_fields[part].annotation
    choice = _choice(section.model_fields[last])
    assert choice is not None, "other tables have one set of keys"
    return {name: parameters.model_fields for name, parameters in choice.sections().items()}


def _choice(field: FieldInfo | None) -> Choice | None:
    """Return a field's ``Choice``, if its table chooses a component."""
    return next((item for item in field.metadata if isinstance(item, Choice)), None) if field is not None else None


def _section(field: FieldInfo | None, value: Any) -> type[BaseModel] | None:
    """Return the section class of a field's table, or of each of its named tables; None for a plain setting."""
    if field is None:
        return None
    if (choice := _choice(field)) is not None:
        try:
            return choice.section(value)
        except (KeyError, TypeError):  # an unknown name is refused during validation
            return None
    return next((t for t in (field.annotation, *get_args(field.annotation)) if _is_section(t)), None)


def valid_keys() -> list[str]:
    """Return all dotted keys of the schema: settings and tables."""
    paths = [setting.key.split(".") for setting in describe()]
    return list(dict.fromkeys(".".join(path[: end + 1]) for path in paths for end in range(len(path))))


class Setting(NamedTuple):
    """One setting of the schema: its dotted key, its default as TOML, and its meaning."""

    key: str
    default: str
    meaning: str


def describe(model: type[BaseModel] = Config, path: tuple[str, ...] = ()) -> list[Setting]:
    """Return every setting of the schema, in order."""
    settings: list[Setting] = []
    for name, field in model.model_fields.items():
        if (choice := _choice(field)) is not None:
            settings += _describe_choice(choice, field, (*path, name))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            settings += describe(field.annotation, (*path, name))
        else:
            settings.append(_setting(field, (*path, name)))
    return settings


def _describe_choice(choice: Choice, field: FieldInfo, path: tuple[str, ...]) -> list[Setting]:
    """Return the settings of all components of a kind; those of only some components name them."""
    sections = choice.sections()
    rules = " ".join(f"{name}: {summary(section)}" for name, section in sections.items())
    settings = {TAG: Setting(".".join((*path, TAG)), f'"{choice.default}"', f"{field.description} {rules}")}
    for section in sections.values():
        for key, item in section.model_fields.items():
            if key not in settings:
                having = [name for name, other in sections.items() if key in other.model_fields]
                setting = _setting(item, (*path, key))
                some = "" if len(having) == len(sections) else f"{', '.join(having)}: "
                settings[key] = setting._replace(meaning=some + setting.meaning)
    return list(settings.values())


def summary(section: type[BaseModel]) -> str:
    """Return the first sentence of a component's docstring."""
    return (section.__doc__ or "").partition("\n")[0].strip()


def _setting(field: FieldInfo, path: tuple[str, ...]) -> Setting:
    default = field.get_default(call_default_factory=True, validated_data={})
    toml = tomli_w.dumps({"value": NONE if default is None else default})
    toml = "{}" if default == {} else toml.removeprefix("value = ").strip()
    return Setting(".".join(path), toml, field.description or "")


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest name: one with the same last part, or else a similar one."""
    known = list(known)
    last = name.rsplit(".", 1)[-1]
    by_last: dict[str, list[str]] = {}
    for key in known:
        by_last.setdefault(key.rsplit(".", 1)[-1], []).append(key)
    like = [key for part in get_close_matches(last, by_last, len(by_last) or 1, SIMILARITY) for key in by_last[part]]
    close = get_close_matches(name, by_last.get(last) or like, 1, 0.0)
    return f"; did you mean {close[0]!r}?" if close else ""


def _wrong_values(error: ValidationError) -> list[str]:
    """Return one sentence for each wrong value: the value, what was expected, and what the setting means."""
    values: dict[str, Any] = {}
    wanted: dict[str, list[str]] = {}
    for item in error.errors():
        key = _key(item["loc"])
        values[key] = NONE if item["input"] is None else item["input"]
        what = item["msg"].removeprefix("Input should be ")
        wanted.setdefault(key, []).append("a table" if item["type"] in ("model_type", "is_instance_of") else what)
    # Descriptions of rules are too long here; `dartsim config --list settings` prints them.
    meanings = {setting.key: setting.meaning for setting in describe() if not setting.key.endswith(f".{TAG}")}
    return [
        f"  - {key} = {values[key]!r}: wanted {' or '.join(whats)}. {meanings.get(key, '')}".rstrip()
        for key, whats in wanted.items()
    ]


def _key(location: tuple[int | str, ...]) -> str:
    """Return the dotted key of an error's location, to which pydantic appends members of unions."""
    known = valid_keys()
    parts = [str(part) for part in location]
    while parts and ".".join(parts) not in known:
        parts.pop()
    return ".".join(parts)


def _without_null(value: Any) -> Any:
    """Return a tree with ``NONE`` in place of each None."""
    if isinstance(value, Mapping):
        return {key: _without_null(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_null(each) for each in value]
    return NONE if value is None else value
