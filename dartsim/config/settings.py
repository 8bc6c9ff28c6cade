"""The schema as a list of settings, and the sentences about keys and values that do not fit it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dartsim.config.schema import Config
from dartsim.core.errors import ConfigError, did_you_mean
from dartsim.core.registry import TAG, Choice
from dartsim.core.section import NONE

Tree = dict[str, Any]

MODELED: Tree = {
    "backend": {"desktops": "sim", "workers": "sim", "learner": "sim", "real_time": False},
    "ray": {"address": None},
}
"""Settings that make every part of a run modeled, in virtual time."""

LISTED = 10
"""Maximum number of problems that one error names."""

SIMILARITY = 0.55
"""Similarity (``difflib``) of the last parts of two names at which one is suggested for the other."""


class Setting(NamedTuple):
    """One setting of the schema: its dotted key, its default as TOML, and its meaning."""

    key: str
    default: str
    meaning: str


@cache
def fields() -> dict[str, FieldInfo]:
    """Return the fields of the schema by dotted key: plain settings, and tables that choose a component."""
    return dict(_fields(Config, ""))


def _fields(section: type[BaseModel], path: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        if _is_section(field.annotation) and not any(isinstance(item, Choice) for item in field.metadata):
            yield from _fields(field.annotation, f"{path}{name}.")  # type: ignore[arg-type]
        else:
            yield f"{path}{name}", field


@cache
def choices() -> dict[str, Choice]:
    """Return the tables that choose a component, by dotted key."""
    return {key: item for key, field in fields().items() for item in field.metadata if isinstance(item, Choice)}


def describe() -> list[Setting]:
    """Return every setting of the schema, in order; those of only some components name them."""
    settings: list[Setting] = []
    for table, field in fields().items():
        if table not in choices():
            settings.append(_setting(table, field))
            continue
        sections = choices()[table].sections()
        rules = " ".join(f"{name}: {_first_line(section)}" for name, section in sections.items())
        settings.append(Setting(f"{table}.{TAG}", f'"{choices()[table].default}"', f"{field.description} {rules}"))
        parameters = {name: item for section in sections.values() for name, item in section.model_fields.items()}
        for name, item in parameters.items():
            owners = [rule for rule, section in sections.items() if name in section.model_fields]
            of = "" if len(owners) == len(sections) else f"{', '.join(owners)}: "
            if name != TAG:
                settings.append(_setting(f"{table}.{name}", item, of))
    return settings


def _setting(key: str, field: FieldInfo, of: str = "") -> Setting:
    default = field.get_default(call_default_factory=True, validated_data={})
    toml = tomli_w.dumps({"value": NONE if default is None else default}).removeprefix("value = ").strip()
    return Setting(key, "{}" if default == {} else toml, f"{of}{field.description}")


def _first_line(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").partition("\n")[0].strip()


def valid_keys() -> list[str]:
    """Return all dotted keys of the schema: settings and tables."""
    paths = [setting.key.split(".") for setting in describe()]
    return list(dict.fromkeys(".".join(path[: end + 1]) for path in paths for end in range(len(path))))


def nested(key: str, value: Any) -> Tree:
    """Return a tree with one setting."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def merge(base: Mapping[str, Any], over: Mapping[str, Any], path: str = "") -> Tree:
    """Return ``base`` overridden by ``over``, table by table.

    Where ``over`` chooses another component than ``base``, parameters that only the old one has are removed.
    """
    merged = dict(base)
    for key, value in over.items():
        old, place = merged.get(key), f"{path}{key}"
        if not isinstance(old, dict) or not isinstance(value, dict):
            merged[key] = value
            continue
        if place in choices() and TAG in value:
            sections = choices()[place].sections()
            if chosen := sections.get(str(value[TAG])):  # an unknown name is refused during validation
                every = {name for section in sections.values() for name in section.model_fields}
                old = {name: each for name, each in old.items() if name not in every - chosen.model_fields.keys()}
        merged[key] = merge(old, value, f"{place}.")
    return merged


def check_setting(key: str, value: Any) -> None:
    """Refuse a setting that is invalid in every configuration.

    Raises:
        ConfigError: If the key is unknown (with the nearest valid one), or the value's type or range is wrong.
    """
    if key in valid_keys() and key not in {setting.key for setting in describe()}:
        raise ConfigError(f"{key} is a section, not a setting; name one of its settings")
    check_keys(nested(key, value))
    table, _, name = key.rpartition(".")
    tree = {name: value}
    if table in choices() and name != TAG:
        sections = choices()[table].sections()
        tree[TAG] = next(component for component, section in sections.items() if name in section.model_fields)
    validate(nested(table, tree) if table else tree)


def check_keys(tree: Mapping[str, Any], where: str = "") -> None:
    """Refuse keys that neither the schema nor any component has.

    Args:
        tree: Settings.
        where: Their file, for errors.

    Raises:
        ConfigError: Naming each, with the nearest valid key.
    """
    known = valid_keys()
    settings = {setting.key for setting in describe()}

    def unknown(table: Mapping[str, Any], path: str) -> Iterator[str]:
        for name, value in table.items():
            key = f"{path}{name}"
            if key not in known:
                near = known if isinstance(value, Mapping) or not path else settings
                yield f"{where}unknown key {key!r}{_nearest(key, [each for each in near if f'{each}.' != path])}"
            elif key not in settings and isinstance(value, Mapping):
                yield from unknown(value, f"{key}.")

    if sentences := _first(list(unknown(tree, ""))):
        raise ConfigError("\n".join(sentences))


def validate(tree: Mapping[str, Any]) -> Config:
    """Return a tree's configuration.

    Raises:
        ConfigError: If a key is unknown; or naming each wrong value: what was found, what is allowed, and what the
            setting means.
    """
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        errors = error.errors()
    check_keys(tree)
    misplaced = [item["loc"] for item in errors if item["type"] == "extra_forbidden"]
    if misplaced:
        raise ConfigError("\n".join(_first([_misplaced(location) for location in misplaced])))
    raise ConfigError("the configuration has wrong values:\n" + "\n".join(_first(_wrong_values(errors))))


def _misplaced(location: tuple[int | str, ...]) -> str:
    """Return the sentence about a key of another component, or about an unknown one in the tables of a setting."""
    key = ".".join(map(str, location))
    table, _, name = key.rpartition(".")
    if table in choices():
        owners = [rule for rule, section in choices()[table].sections().items() if name in section.model_fields]
        return f"{key} is a parameter of {', '.join(owners)}, and {table}.{TAG} chooses another"
    members = get_args(fields()[_key(location)].annotation)
    known = [each for section in members if _is_section(section) for each in section.model_fields]
    return f"unknown key {key!r}{did_you_mean(name, known) or f'; there are: {known}'}"


def _wrong_values(errors: Sequence[Any]) -> list[str]:
    values: dict[str, Any] = {}
    wanted: dict[str, list[str]] = {}
    for item in errors:
        key = _key(item["loc"])
        values[key] = NONE if item["input"] is None else item["input"]
        what = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
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


def _first(sentences: Sequence[str]) -> list[str]:
    """Return the first sentences and how many are omitted."""
    more = len(sentences) - LISTED
    return [*sentences[:LISTED], *([f"and {more:,} more"] if more > 0 else [])]


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest key: one with the same last part, or else a similar one."""
    by_last: dict[str, list[str]] = {}
    for key in known:
        by_last.setdefault(key.rpartition(".")[2], []).append(key)
    last = name.rpartition(".")[2]
    like = [key for part in get_close_matches(last, by_last, len(by_last) or 1, SIMILARITY) for key in by_last[part]]
    close = get_close_matches(name, by_last.get(last) or like, 1, 0.0)
    return f"; did you mean {close[0]!r}?" if close else ""


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
