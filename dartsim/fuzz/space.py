"""The space of cases: dimensions, each with its simplest value first; and the configuration of a case.

A dimension whose name is the key of a setting is that setting; the others decide several settings.

Clusters are tiny and their latencies short, so that a run is minutes of virtual time and milliseconds of real time.
Draws are swarms: each case varies only some dimensions and kinds of faults, which finds more failures than varying
all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dartsim.config import Config, from_tree, merge, presets
from dartsim.config.load import scheduler
from dartsim.config.schema import FaultWindow
from dartsim.config.settings import MODELED
from dartsim.core.errors import ConfigError, no_such
from dartsim.fuzz.cases import Case, Choice, fault_window
from dartsim.sim.faults import KINDS, Place, fault_kinds

DRAWN = "drawn"
"""Name of a drawn scheduler, in place of a preset."""

BASE = "dart-measured"
"""Base of drawn schedulers."""

SHAPE: Mapping[str, Sequence[Choice]] = {
    "rollout.num_envs": (1, 2, 3, 4, 6),
    "rollout.num_workers": (1, 2, 3),
    "cluster.hosts.count": (1, 2),
    "cluster.hosts.concurrent_starts": (2, 1),
    "rollout.warm_envs": (0, 1, 2),
    "rollout.max_turns": (2, 1, 4, 6),
    "tasks.count": (1, 2, 5),
    "groups": (1, 2),
    "more_groups": (0, 1),
    "curation.attempts.group_size": (2, 1, 3),
    "success": (0.5, 1.0, 0.1),
    "latencies": ("even", "desktop-small", "dart"),
    "cluster.engine.model": ("shared", "batch", "fluid"),
    "cluster.engine.overhead_seconds": (0.0, 1.0),
    "cluster.engine.control_seconds": (0.0, 0.5),
    "cluster.engine.reload_seconds": (10.0, 30.0, 1.0),
    "cluster.learner.fixed_seconds": (20.0, 60.0, 5.0),
    "limits": ("all long", "short step", "short request", "short lease", "short start"),
    "rollout.start_tries": (3, 1),
    "rollout.request_tries": (3, 1, 10),
    "fault_seconds": (60, 120, 300),
    "healed": (True, False),
    "delay_share": (0.0, 0.02, 0.1),
    "delay_seconds": (60.0, 10.0),
}
"""The cluster, its latencies, and the run."""

SCHEDULER: Mapping[str, Sequence[Choice]] = {
    "rollout.unit": ("rollout", "task", "batch"),
    "rollout.lockstep": (False, True),
    "rollout.sync.mode": ("drain", "keep", "restart"),
    "at_a_time": (1, 2, "all"),
    "routing": ("least_in_flight", "session_affine"),
    "curation.attempts.rule": ("fixed", "by_success"),
    "curation.attempts.max_replacements": (2, 0, 1),
    "filters": (False, True),
    "bound": (None, 0, 1, 2),
    "measured_by": ("oldest", "newest"),
    "curation.turn_limit.rule": ("fixed", "by_success"),
    "curation.pool.enabled": (False, True),
    "curation.task_filter.max_mean": (1.0, 0.7),
    "trainer.wait_for_sync": (False, True),
}
"""The scheduler, unless a preset defines it."""

SPARE: Mapping[str, Sequence[Choice]] = {"admission": (None, "open", "ready", "waiting", "ahead")}
"""A tight admission rule, which leaves slots idle."""

RULES: Mapping[str, Sequence[Choice]] = {
    "in_turn": (None, "round_robin", "group_round_robin"),
    "curation.batch.rule": ("ready", "started", "weights", "in_order"),
    "wait_age": (None, 1, 2),
    "trainer.publish_every": (1, 2),
    "trainer.publish_wait": ("nothing", "running"),
    "curation.staleness.requeue": (False, True),
    "cancel_stale": (False, True),
}
"""Rules of other systems: routing, order of a batch, publication, and treatment of stale groups."""

STORAGE: Mapping[str, Sequence[Choice]] = {"durability": ("batched", "each")}
"""When a database writes."""

REVERT: Mapping[str, Sequence[Choice]] = {"revert": ("boot", "fork", "snapshot")}
"""How desktops get ready for the next attempt."""

EVALUATION: Mapping[str, Sequence[Choice]] = {"held_out": (0, 1, 2)}
"""Held-out tasks, which are attempted among the others before every update."""

LENGTH: Mapping[str, Sequence[Choice]] = {"hours": (0, 6, 24)}
"""Hours with faults, in place of ``fault_seconds``; see ``long_case``."""

SPACE: Mapping[str, Sequence[Choice]] = {
    **SHAPE,
    **SCHEDULER,
    **SPARE,
    **RULES,
    **STORAGE,
    **REVERT,
    **EVALUATION,
    **LENGTH,
}

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

SHARES: Mapping[int, tuple[float, Mapping[str, Sequence[Choice]], int, bool]] = {
    2: (0.25, SPARE, 1, True),
    3: (0.25, RULES, 0, True),
    4: (0.2, REVERT, 1, False),
    5: (0.1, EVALUATION, 1, False),
}
"""By stream of a case's seed: share of the cases, dimensions, index of their first value, whether schedulers are drawn.

The groups of dimensions: idle slots that add attempts to groups in which all failed; rules of other systems; desktops
that return to saved states; held-out tasks.
"""

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
        value = self.choices.get(name, SPACE[name][0])
        if value not in SPACE[name]:
            raise ConfigError(f"the case has {name} = {value!r}; wanted one of {', '.join(map(repr, SPACE[name]))}")
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
    space = {**SHAPE, **SCHEDULER} if preset == DRAWN else SHAPE
    vary = rng.random()
    choices: dict[str, Choice] = {}
    for name, values in space.items():
        if rng.random() < vary:
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
    case = _draw_shares(case)
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


def _draw_shares(case: Case) -> Case:
    """Draw the dimensions of ``SHARES`` for some of the cases.

    Each group has its own stream of the case's seed, so adding one changes no other draw.
    """
    choices = dict(case.choices)
    for stream, (share, dimensions, first, drawn_only) in SHARES.items():
        rng = np.random.Generator(np.random.PCG64([case.seed, stream]))
        if (drawn_only and case.preset != DRAWN) or rng.random() >= share:
            continue
        for name, values in dimensions.items():
            value = values[first + int(rng.integers(len(values) - first))]
            if value != values[0]:
                choices[name] = value
    return replace(case, choices=choices)


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
    return {n: value for n, value in wanted.items() if rng.random() < 0.5 and (preset == DRAWN or n not in SCHEDULER)}


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
    stored: dict[str, Choice] = {name: values[1] for name, values in STORAGE.items() if rng.random() < 0.3}
    stored |= _some(rng, LEARNS, case.preset)
    return replace(case, choices={**case.choices, **stored}, faults=in_order((*case.faults, *drawn)))


@lru_cache(maxsize=64)
def _config(preset: str, choices: tuple[tuple[str, Choice], ...], profile: str) -> Config:
    settings = CaseSettings(dict(choices))
    tree = merge(_preset(BASE if preset == DRAWN else preset), _cluster(settings))
    if preset == DRAWN:
        tree = merge(tree, _scheduler(settings))
    tree = merge(tree, _deadlines(settings, bool(tree["rollout"].get("lockstep"))))
    tree = merge(tree, {"cluster": {"faults": _rates(settings, profile)}})
    if settings["revert"] != "boot":
        kept = {"revert": settings["revert"], "states_gib": 1.0}
        tree = merge(tree, {"desktop": kept, "rollout": {"warm_envs": 0}})
    if tree["curation"]["attempts"].get("rule") == "by_success":
        tree = merge(tree, {"curation": {"attempts": {"min_group_size": 1}}})
    return from_tree(tree)


def config_of(case: Case) -> Config:
    """Return the configuration of a case.

    Raises:
        ConfigError: If the case is invalid.
    """
    return _config(case.preset, tuple(sorted(case.choices.items())), case.profile)


def _cluster(settings: CaseSettings) -> dict[str, Any]:
    """Return the settings of every case, without the scheduler."""
    groups = settings["groups"]
    even = settings["latencies"] == "even"
    most_lengths = {"success_turns_mean": 2.0, "success_turns_sd": 1.0}
    most_lengths |= {"failure_turns_mean": 3.0, "failure_turns_sd": 1.5}
    tree: dict[str, Any] = {
        "run": {"hours": 1.0, "max_segments": 0, "seed": 0, "updates": None, "target_success": None},
        "tasks": {"source": "generated", "held_out": 0, "folder": None},
        "policy": {"kind": "surrogate", "grammar": "clicks", "model": None},
        "surrogate": {"mean_success": None, **most_lengths},
        "rollout": {
            "limits": {
                "start_seconds": 120.0,
                "setup_seconds": 120.0,
                "request_seconds": 300.0,
                "step_seconds": 90.0,
                "evaluate_seconds": 120.0,
                "lease_seconds": 1200.0,
                "load_seconds": 120.0,
            },
        },
        "curation": {
            "groups": {"min_size": 1},
            "batch": {"min_groups": groups, "max_groups": groups + settings["more_groups"]},
            "store": "memory",
            "pool": {"file": None, "collected_per_task": 0},
        },
        "trainer": {
            "evaluation": {"every_updates": 1 if settings["held_out"] else None},
        },
        "cluster": {
            "env": {"profile": "desktop-small" if even else settings["latencies"], "latency": EVEN if even else {}},
            "engine": {
                "batch_seconds": 2.0,
                "request_seconds": 0.0,
                "batch_spread": 1.0,
            },
            "learner": {"kilotoken_seconds": 0.0},
            "hosts": {"cores": 4.0, "memory_gib": 32.0},
        },
        **MODELED,
    }
    return _with(tree, settings, SHAPE)


def _with(tree: dict[str, Any], settings: CaseSettings, dimensions: Iterable[str]) -> dict[str, Any]:
    """Return a tree with the settings among these dimensions, whose names are their keys."""
    for key in dimensions:
        *path, name = key.split(".")
        if path:
            table = tree
            for part in path:
                table = table.setdefault(part, {})
            table[name] = settings[key]
    return tree


def _scheduler(settings: CaseSettings) -> dict[str, Any]:
    """Return the settings of a drawn scheduler."""
    lockstep = settings["rollout.lockstep"]
    filters = settings["filters"]
    bound, every = settings["bound"], settings["trainer.publish_every"]
    if bound is not None:
        bound = max(bound, every - 1)  # the trainer gets that far ahead of the workers
    cancels = settings["cancel_stale"] and bound is not None
    age = settings["wait_age"]
    router = settings["in_turn"] or settings["routing"]
    tree: dict[str, Any] = {
        "rollout": {
            "sync": {"workers_at_a_time": "all" if lockstep else settings["at_a_time"]},
            "routing": {"rule": router, **({"max_excess": 1} if router == "session_affine" else {})},
        },
        "curation": {
            "groups": dict.fromkeys(("drop_all_failed", "drop_solved", "drop_equal"), filters),
            "batch": {"wait_age": None if age is None else max(age, every)},
            "staleness": {
                "max_staleness": bound,
                "measured_by": "start" if cancels else settings["measured_by"],
                "cancel_running": cancels,
            },
            "admission": _admission(settings),
            "task_filter": {"window": 2},
        },
    }
    return _with(tree, settings, (*SCHEDULER, *RULES))


def _admission(settings: CaseSettings) -> dict[str, float]:
    """Return the admission rule: one running group, or as many as a batch needs."""
    kind = settings["admission"]
    if kind is None:
        return {}
    most, needed = settings["groups"] + settings["more_groups"], settings["groups"]
    if kind == "ahead":  # until the next publication
        needed += (settings["trainer.publish_every"] - 1) * most
    return {f"{kind}_batches": (1 if kind == "open" else needed) / most}


def _rates(settings: CaseSettings, profile: str) -> dict[str, Any]:
    """Return the fault rates of a profile, raised for a run of minutes, and the time when all faults end."""
    heals = settings.fault_seconds / 3600.0 if settings["healed"] else None
    return {"profile": profile, "scale": 1.0 if settings["hours"] else RATES_SCALE, "heal_after_hours": heals}


def _deadlines(settings: CaseSettings, lockstep: bool) -> dict[str, Any]:
    """Return the case's short deadline, if any; attempts usually meet it."""
    if settings["limits"] not in LIMITS:
        return {}
    name, seconds = LIMITS[settings["limits"]]
    factor = SLOW if settings["latencies"] == "dart" else LOCKSTEP if lockstep else 1.0
    return {"rollout": {"limits": {name: seconds * factor}}}


_preset = lru_cache(maxsize=64)(scheduler)
