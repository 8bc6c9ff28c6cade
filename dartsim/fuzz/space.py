"""The space of cases: dimensions, each with its simplest value first; and the configuration of a case.

A dimension whose name is the key of a setting is that setting; the others decide several settings.

Clusters are tiny and their latencies short, so that a run is minutes of virtual time and milliseconds of real time.
Draws are swarms: each case varies only some dimensions and kinds of faults, which finds more failures than varying
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
from annotated_types import Ge
from pydantic.fields import FieldInfo

from dartsim.config import Config, merge, presets
from dartsim.config.load import CLUSTER, WORKLOAD, read_scheduler
from dartsim.config.rules import check, groups_of_publication, refuse_secrets
from dartsim.config.schema import FaultWindow
from dartsim.config.settings import MODELED, choices, fields, validate
from dartsim.core.errors import ConfigError, no_such
from dartsim.core.plugins import used_plugins
from dartsim.core.registry import TAG, built_in
from dartsim.core.section import Fuzzed
from dartsim.curation.rules.attempts import AttemptsBySuccess
from dartsim.fuzz.cases import Case, Choice, fault_window
from dartsim.sim.faults import KINDS, Place, fault_kinds

DRAWN = "drawn"
"""Name of a drawn scheduler, in place of a preset."""

BASE = "dart-measured"
"""Base of drawn schedulers."""

CONTROL = ("rollout", "curation", "trainer")
"""Sections of the control plane: those of their settings that have few values are drawn. Of the other sections, those
that name values are (``Fuzzed``)."""

REAL = ("trainer.objective", "trainer.optimizer", "trainer.lora", "trainer.fsdp")
"""Sections that a modeled trainer does not read."""

SHAPE = (
    *(*CLUSTER, *WORKLOAD, "desktop", "rollout.warm_envs", "curation.batch.min_groups"),
    "rollout.request_tries",
)
"""Settings that are drawn for presets, too; the others are the scheduler."""

SIMPLEST: Mapping[str, Any] = {
    "run": {"hours": 1.0, "max_segments": 0, "seed": 0, "updates": None, "target_success": None},
    "tasks": {"source": "generated", "held_out": 0, "folder": None},
    "policy": {"kind": "surrogate", "grammar": "clicks", "model": None},
    "surrogate.mean_success": None,
    "surrogate.success_turns_mean": 2.0,
    "surrogate.success_turns_sd": 1.0,
    "surrogate.failure_turns_mean": 3.0,
    "surrogate.failure_turns_sd": 1.5,
    "rollout.limits.start_seconds": 120.0,
    "rollout.limits.setup_seconds": 120.0,
    "rollout.limits.request_seconds": 300.0,
    "rollout.limits.step_seconds": 90.0,
    "rollout.limits.evaluate_seconds": 120.0,
    "rollout.limits.lease_seconds": 1200.0,
    "rollout.limits.load_seconds": 120.0,
    "curation.store": "memory",
    "curation.pool.file": None,
    "curation.pool.collected_per_task": 0,
    "cluster.engine": {"batch_seconds": 2.0, "request_seconds": 0.0, "batch_spread": 1.0},
    "cluster.learner.kilotoken_seconds": 0.0,
    "cluster.hosts": {"cores": 4.0, "memory_gib": 32.0},
    "desktop.states_gib": 1.0,
    **MODELED,
}
"""Settings of every case beside those that are drawn."""

COMBINED: Mapping[str, Sequence[Choice]] = {
    "success": (0.5, 1.0, 0.1),
    "latencies": ("even", "desktop-small", "dart"),
    "limits": ("all long", "short step", "short request", "short lease", "short start"),
    "fault_seconds": (60, 120, 300),
    "healed": (True, False),
    "delay_share": (0.0, 0.02, 0.1),
    "delay_seconds": (60.0, 10.0),
    "held_out": (0, 1, 2),
    "durability": ("batched", "each"),
    "hours": (0, 6, 24),
}
"""Dimensions that decide several settings, or none.

``held_out`` tasks are attempted among the others before every update; ``durability`` is when a database writes;
``hours`` of faults replace ``fault_seconds``, see ``long_case``.
"""

RARE: Mapping[str, float] = {"hours": 0.0, "durability": 0.0, "desktop.revert": 0.2, "held_out": 0.1}
"""Largest share of the cases that vary a dimension: what is slow, or only concerns some cases."""


def of_field(field: FieldInfo) -> tuple[Choice, ...]:
    """Return the values that are tried for a setting: those it names, or those that follow from its type and bounds."""
    named = [item.values for item in field.metadata if isinstance(item, Fuzzed)]
    return named[0] if named else tuple(sorted(_of_type(field.annotation, field.metadata), key=lambda v: v is not None))


def _of_type(kind: Any, bounds: Sequence[Any]) -> Iterator[Choice]:
    """Yield the values of a type: all of them, or the three smallest of a number that is counted."""
    if kind is bool:
        yield from (False, True)
    elif kind is int:
        low: Any = next((bound.ge for bound in bounds if isinstance(bound, Ge)), None)
        yield from () if low is None else (0, 1, 2) if low == 0 else (low + 1, low, low + 2)  # one of them is no crowd
    elif kind is NoneType:
        yield None
    elif get_origin(kind) is Literal:
        yield from get_args(kind)
    elif get_origin(kind) is Annotated:
        inner, *marks = get_args(kind)
        yield from _of_type(inner, [bound for mark in marks for bound in getattr(mark, "metadata", ())])
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _of_type(member, bounds)


@cache
def space() -> dict[str, tuple[Choice, ...]]:
    """Return the values of every dimension."""
    found = {name: tuple(values) for name, values in COMBINED.items()}
    for key, field in fields().items():
        control = _within(key, CONTROL) and not _within(key, REAL)
        if (choice := choices().get(key)) is None:
            if control or any(isinstance(item, Fuzzed) for item in field.metadata):
                found[key] = of_field(field)
        elif control:
            known = built_in(choice.kind)
            sections = {name: section for name, section in choice.sections().items() if name in known}
            found[f"{key}.{TAG}"] = tuple(sections)
            for section in sections.values():
                found |= {f"{key}.{name}": of_field(f) for name, f in section.model_fields.items() if name != TAG}
    return {name: values for name, values in found.items() if len(values) > 1}


def _within(key: str, parts: Iterable[str]) -> bool:
    return any(f"{key}.".startswith(f"{part}.") for part in parts)


def is_shape(name: str) -> bool:
    """Return whether a dimension is part of the cluster, its latencies and the run, and not of the scheduler."""
    return name in COMBINED or _within(name, SHAPE)


MAX_TARGET = 4
"""Targets of windows, modulo the number of components."""

STORED = frozenset(name for name, kind in KINDS.items() if kind.place in (Place.STORE, Place.PROCESS))
"""Kinds of faults that require a database and several lives."""

MAX_FAULTS: Mapping[str, int] = {"none": 0, "calm": 2, "osworld": 6, "hostile": 10}
"""Largest number of faults of a case, by fault profile."""

LIMITS: Mapping[str, tuple[str, float]] = {
    "short step": ("step_seconds", 6.0),
    "short request": ("request_seconds", 15.0),
    "short lease": ("lease_seconds", 40.0),
    "short start": ("start_seconds", 15.0),
}
"""Short deadlines; longer where desktops are slow or in lockstep."""

STORED_SHARE = 0.1
"""Share of the hostile cases in which the process is killed or its store fails; they take four times as long."""

MAX_STORED = 4
"""Largest number of these faults."""

ENGINES_SHARE = 0.25
"""Share of the hostile cases whose engines fail more than others."""

ENGINE_KINDS = ("worker_crash", "worker_crash", "load_refused", "weights_torn", "request_failed", "reply_lost")
"""Their faults; a crash is twice as likely as each other kind."""

ENGINES: Mapping[str, Choice] = {
    "rollout.request_tries": 1,
    "rollout.lockstep": True,
    "rollout.num_envs": 3,
    "limits": "short request",
}
"""Choices of half of these cases: requests are not retried, and desktops in lockstep wait briefly for each other."""

LEARNS: Mapping[str, Choice] = {
    "durability": "each",
    "curation.pool.enabled": True,
    "curation.attempts.rule": "by_success",
    "curation.turn_limit.rule": "by_success",
}
"""Choices of half of the cases with crashes: rules that must not lose what they have learned."""

RATES_SHARE = 0.15
"""Share of the cases with faults at the rates of a profile, instead of single faults at set times."""

RATES_SCALE = 10.0
"""Factor of the rates of a fault profile in a run of minutes."""

SLOW, LOCKSTEP = 8.0, 4.0
"""Factors of deadlines for slow desktops, and for lockstep."""

EVEN = {"start": 1.0, "boot": 4.0, "setup": 3.0, "step": 2.0, "evaluate": 1.0, "teardown": 1.0}
"""Whole seconds, so that many events coincide and their order matters."""


@dataclass(frozen=True)
class CaseSettings:
    """A case's choices, with the simplest value of missing dimensions."""

    choices: Mapping[str, Choice]

    @property
    def fault_seconds(self) -> float:
        return 3600.0 * self["hours"] or float(self["fault_seconds"])

    def __getitem__(self, name: str) -> Any:
        values = space().get(name, ())
        value = self.choices.get(name, *values[:1])
        if name in COMBINED and value not in values:
            raise ConfigError(f"the case has {name} = {value!r}; wanted one of {', '.join(map(repr, values))}")
        return value


def known_presets() -> list[str]:
    """Return the presets that a case may have."""
    return sorted(presets())


def shuffled_presets(seed: int) -> list[str]:
    """Return the presets in an order drawn by seed, so that short searches do not always begin with the same ones."""
    return [str(name) for name in np.random.Generator(np.random.PCG64(seed)).permutation(known_presets())]


def draw_case(rng: np.random.Generator, preset: str = DRAWN, faults: str = "hostile") -> Case:
    """Draw a case.

    Raises:
        ConfigError: If there is no such preset or fault profile.
    """
    if preset != DRAWN:
        _preset(preset)
    if faults not in MAX_FAULTS:
        raise no_such("fault profile", faults, MAX_FAULTS)
    vary = rng.random()
    choices: dict[str, Choice] = {}
    for name, values in space().items():
        if (preset == DRAWN or is_shape(name)) and rng.random() < min(vary, RARE.get(name, 1.0)):
            value = values[int(rng.integers(len(values)))]
            if value != values[0]:
                choices[name] = value
    if faults == "none":
        choices.pop("delay_share", None)
    seed = int(rng.integers(2**31))
    horizon = int(CaseSettings(choices)["fault_seconds"])
    if faults != "none" and rng.random() < RATES_SHARE:
        case = Case(preset, seed, choices, profile=faults)
    else:
        case = Case(preset, seed, choices, _draw_faults(rng, horizon, faults))
    return _draw_stored(_draw_engines(case, horizon), horizon) if faults == "hostile" else case


def long_case(preset: str, seed: int, *, hours: int = 24) -> Case:
    """Return a case of hours on a small cluster with DART's latencies and hostile fault rates."""
    sizes: dict[str, Choice] = {"rollout.num_envs": 2 + seed % 2, "rollout.num_workers": 1 + seed % 2}
    limits: dict[str, Choice] = {
        "rollout.max_turns": 6,
        "tasks.count": 5,
        "cluster.learner.fixed_seconds": 60.0,
        "cluster.engine.reload_seconds": 30.0,
    }
    return Case(preset, seed, {"latencies": "dart", "hours": hours, **sizes, **limits}, profile="hostile")


def _draw_faults(rng: np.random.Generator, horizon: int, faults: str) -> tuple[FaultWindow, ...]:
    """Draw fault windows of a few kinds, all closed by ``horizon``."""
    drawable = drawn_kinds(faults)
    places = list(drawable)
    number = int(rng.integers(MAX_FAULTS[faults] + 1))
    swarm = []
    for _ in range(1 + int(rng.integers(4))):
        kinds = drawable[places[int(rng.integers(len(places)))]]
        swarm.append(kinds[int(rng.integers(len(kinds)))])
    drawn = []
    for _ in range(number):
        kind = swarm[int(rng.integers(len(swarm)))]
        start = int(rng.integers(horizon))
        seconds = min((1, 5, 20, 60, 150)[int(rng.integers(5))], horizon - start)
        target = int(rng.integers(MAX_TARGET + 1))
        drawn.append(fault_window(kind, start, seconds, None if target == MAX_TARGET else target))
    return in_order(drawn)


def drawn_kinds(faults: str) -> dict[Place, list[str]]:
    """Return the kinds of single faults of a fault profile, by place; messages only have faults at rates."""
    drawn: dict[Place, list[str]] = {place: [] for place in Place if place not in (Place.NETWORK, Place.MESSAGE)}
    for name, kind in fault_kinds().items():
        if name not in STORED and kind.place in drawn:
            drawn[kind.place].append(name)
    desktops = faults == "osworld"
    return {p: names for p, names in drawn.items() if names and (not desktops or p.value.startswith(Place.DESKTOP))}


def in_order(faults: Iterable[FaultWindow]) -> tuple[FaultWindow, ...]:
    """Return windows in the order of a case."""
    return tuple(sorted(faults, key=lambda fault: (fault.at_seconds, fault.kind)))


def _draw_engines(case: Case, horizon: int) -> Case:
    """Let the engines of a share of the cases fail while weights and lockstep turns depend on them.

    The faults come from the case's own seed, so they change no other draw.
    """
    rng = np.random.Generator(np.random.PCG64([case.seed, 6]))
    if rng.random() >= ENGINES_SHARE:
        return case
    choices = {**case.choices, "rollout.num_workers": 2 + int(rng.integers(2)), **_some(rng, ENGINES, case.preset)}
    faults = list(case.faults)
    for _ in range(1 + int(rng.integers(3))):
        kind, start = ENGINE_KINDS[int(rng.integers(len(ENGINE_KINDS)))], int(rng.integers(horizon))
        seconds = min((20, 60)[int(rng.integers(2))], horizon - start)
        faults.append(fault_window(kind, start, seconds, int(rng.integers(MAX_TARGET))))
    return replace(case, choices=choices, faults=in_order(faults))


def _some(rng: np.random.Generator, wanted: Mapping[str, Choice], preset: str) -> dict[str, Choice]:
    """Return each of these choices with probability 1/2, without those of the scheduler if a preset defines it."""
    return {n: value for n, value in wanted.items() if rng.random() < 0.5 and (preset == DRAWN or is_shape(n))}


def _draw_stored(case: Case, horizon: int) -> Case:
    """Add faults of the process and its store to a share of the cases.

    They come from the case's own seed, so they change no other draw.
    """
    rng = np.random.Generator(np.random.PCG64([case.seed, 1]))
    if rng.random() >= STORED_SHARE:
        return case
    kinds, drawn = sorted(STORED), []
    for _ in range(1 + int(rng.integers(MAX_STORED))):
        start = int(rng.integers(horizon))
        seconds = min((1, 5, 20, 60)[int(rng.integers(4))], horizon - start)
        drawn.append(fault_window(kinds[int(rng.integers(len(kinds)))], start, seconds))
    stored = _some(rng, LEARNS, case.preset)
    return replace(case, choices={**case.choices, **stored}, faults=in_order((*case.faults, *drawn)))


@lru_cache(maxsize=64)
def _config(preset: str, chosen: tuple[tuple[str, Choice], ...], profile: str) -> Config:
    settings = CaseSettings(dict(chosen))
    if unknown := settings.choices.keys() - space().keys():
        raise ConfigError(f"the case has {', '.join(sorted(unknown))}, which `dartsim fuzz` does not vary")
    base = _preset(preset)
    drawn = [name for name in space() if name not in COMBINED and (preset == DRAWN or is_shape(name))]
    rules = [name for name in drawn if name.endswith(f".{TAG}")]
    tree = merge(base, _tree({name: settings[name] for name in rules}))
    parameters = {name: settings[name] for name in drawn if name not in rules and _has(tree, name)}
    tree = merge(tree, _tree(parameters | _combined(settings, profile, lockstep=tree["rollout"].get("lockstep"))))
    return check(_possible(validate({**tree, "plugin_modules": used_plugins()})))


def config_of(case: Case) -> Config:
    """Return the configuration of a case.

    Raises:
        ConfigError: If the case is invalid.
    """
    return _config(case.preset, tuple(sorted(case.choices.items())), case.profile)


@lru_cache(maxsize=64)
def _preset(name: str) -> dict[str, Any]:
    """Return a scheduler on the simplest cluster.

    Raises:
        ConfigError: If there is no such preset or file.
    """
    tree = merge(read_scheduler(BASE if name == DRAWN else name), _tree(SIMPLEST))
    refuse_secrets(tree)
    return tree


def _tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted key as a tree."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *path, name = key.split(".")
        table = tree
        for part in path:
            table = table.setdefault(part, {})
        table[name] = value
    return tree


def _has(tree: Mapping[str, Any], key: str) -> bool:
    """Return whether a setting exists: a component's parameter does if the component is chosen."""
    table, _, name = key.rpartition(".")
    if table not in choices():
        return True
    for part in table.split("."):
        tree = tree.get(part, {})
    return name in choices()[table].sections()[tree.get(TAG, choices()[table].default)].model_fields


def _combined(settings: CaseSettings, profile: str, *, lockstep: bool) -> dict[str, Any]:
    """Return the settings that the combined dimensions decide."""
    even = settings["latencies"] == "even"
    found = {
        "trainer.evaluation.every_updates": 1 if settings["held_out"] else None,
        "cluster.env.profile": "desktop-small" if even else settings["latencies"],
        "cluster.env.latency": EVEN if even else {},
        "cluster.faults.profile": profile,
        "cluster.faults.scale": 1.0 if settings["hours"] else RATES_SCALE,
        "cluster.faults.heal_after_hours": settings.fault_seconds / 3600.0 if settings["healed"] else None,
    }
    if settings["limits"] in LIMITS:  # attempts usually meet it
        name, seconds = LIMITS[settings["limits"]]
        factor = SLOW if settings["latencies"] == "dart" else LOCKSTEP if lockstep else 1.0
        found[f"rollout.limits.{name}"] = seconds * factor
    return found


def _possible(config: Config) -> Config:
    """Return a configuration without combinations that could not work."""
    curation, every = config.curation, config.trainer.publish_every
    attempts, stale, age = curation.attempts, curation.staleness, curation.batch.wait_age
    if isinstance(attempts, AttemptsBySuccess.Parameters):
        attempts = attempts.replace(min_group_size=min(attempts.min_group_size, attempts.group_size))
    # The trainer gets this far ahead of the workers.
    bound = None if stale.max_staleness is None else max(stale.max_staleness, every - 1)
    cancels = stale.cancel_running and bound is not None
    by = "start" if cancels else stale.measured_by
    size = max(curation.batch.min_groups, curation.batch.max_groups)
    curation = curation.replace(
        attempts=attempts,
        groups={"min_size": min(curation.groups.min_size, attempts.smallest_group)},
        batch={"max_groups": size, "wait_age": None if age is None else max(age, every)},
        staleness={"max_staleness": bound, "cancel_running": cancels, "measured_by": by},
    )
    rollout = config.rollout
    if config.desktop.revert != "boot":
        rollout = rollout.replace(warm_envs=0)
    if rollout.lockstep and not config.trainer.wait_for_sync:
        rollout = rollout.replace(sync={"workers_at_a_time": "all"})
    config = config.replace(curation=curation, rollout=rollout)
    least = curation.batch.min_groups * (every if rollout.lending.engines else 1)
    config = _admitting(config, waiting_batches=least, ready_batches=least, open_batches=1)
    return _admitting(config, ahead_batches=groups_of_publication(config))


def _admitting(config: Config, **least: int) -> Config:
    """Return a configuration whose bounds of admission, where there are any, admit these numbers of groups."""
    admission, size = config.curation.admission, config.curation.batch.max_groups
    bounds = {name: getattr(admission, name) for name in least}
    low = {name for name, bound in bounds.items() if bound is not None and round(bound * size) < least[name]}
    return config.replace(curation={"admission": {name: least[name] / size for name in low}})
