"""Studies that are arms x seeds -> figures: read from ``studies.toml``, run on all cores, written with intervals.

A study is a module that calls ``arm_study``, with what it adds to the file. The file says what a study's keys mean.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from dartsim.config import Config, load
from dartsim.lab.comparison import over_seeds
from dartsim.lab.sweep import ArmRun
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from experiments.study import HALF_INTERVAL, Experiment, Figures, Options, Rows, StudyPicture, recorded_line

FILE = Path(__file__).with_name("studies.toml")


@cache
def declared() -> Mapping[str, Any]:
    """Return all tables of the file."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def studies() -> Mapping[str, Any]:
    """Return all studies of the file whose arms are clusters, by name."""
    return {name: table for name, table in declared().items() if "about" in table}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A simulated run: a preset, its hours, its seed, changes as ``--set`` takes them, and a workload."""

    preset: str
    hours: float
    seed: int = 0
    changes: tuple[str, ...] = ()
    workload: str | None = None

    @property
    def config(self) -> Config:
        """The resolved configuration, without timelines and without a database."""
        own = (
            f"run.hours={self.hours}",
            f"run.seed={self.seed}",
            "run.max_segments=0",
            'curation.store="memory"',
        )
        return load(self.preset, on=self.workload, overrides=[*self.changes, *own])


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration of a study.

    Attributes:
        family: Which arms it is one of.
        names: Its place on each axis, by the axis.
        keys: All keys of its entries, such as ``value``.
    """

    family: str
    names: Mapping[str, Any]
    keys: Mapping[str, Any]
    preset: str
    hours: float
    workload: str | None = None
    changes: tuple[str, ...] = ()

    def cluster(self, seed: int) -> Cluster:
        """Return its run with a seed."""
        return Cluster(self.preset, self.hours, seed, self.changes, self.workload)

    @property
    def label(self) -> str:
        return ", ".join(map(str, self.names.values()))


OF_TABLES = {
    "about",
    "seeds",
    "figures",
    "published",
    "arms",
    "axes",
    "quick_axes",
    "changes",
    "quick",
    "quick_hours",
}
"""Keys that belong to a table itself, not to its arms."""


def arms_of(study: Mapping[str, Any], *, quick: bool = False) -> list[Arm]:
    """Return the arms of a study of the file."""
    return [arm for family, table in study["arms"].items() for arm in _family(study, family, table, quick=quick)]


def _family(study: Mapping[str, Any], family: str, table: Mapping[str, Any], *, quick: bool) -> Iterator[Arm]:
    chosen = {**table["axes"], **(table.get("quick_axes", {}) if quick else {})}
    axes = [[(axis, *entry) for entry in _entries(axis, given)] for axis, given in chosen.items()]
    for places in product(*axes):
        tables = [study, table, *(entry for _, _, entry in places)]
        if quick and not all(one.get("quick", True) for one in tables):
            continue
        keys = {key: value for one in tables for key, value in one.items() if key not in OF_TABLES}
        names = {axis: name for axis, name, _ in places}
        words = {**names, **keys}
        shorter = [one["quick_hours"] for one in tables if "quick_hours" in one]
        yield Arm(
            family,
            {axis: Template(str(name)).safe_substitute(words) for axis, name in names.items()},
            keys,
            Template(keys["preset"]).substitute(words),
            shorter[-1] if quick and shorter else keys["hours"],
            keys.get("workload"),
            tuple(Template(change).substitute(words) for one in tables for change in one.get("changes", ())),
        )


def _entries(axis: str, given: Mapping[str, Any] | Sequence[Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the name and the keys of each entry of an axis; a list gives values of the key that the axis is named."""
    if not isinstance(given, Mapping):
        yield from ((value, {axis: value}) for value in given)
        return
    before: list[str] = []
    for name, entry in given.items():
        if name == "cumulative":
            continue
        if given.get("cumulative"):
            before += entry.get("changes", ())
            yield name, {**entry, "changes": list(before)}
        else:
            yield name, entry


def run_cluster(cluster: Cluster) -> Figures:
    """Run one and return its figures, with its event hash."""
    result = run_prepared(prepare(cluster.config))
    return {**result.figures, "event_hash": result.event_hash}


def run_arm(arm: Arm, seed: int) -> Figures:
    """Run an arm with a seed and return its figures."""
    return run_cluster(arm.cluster(seed))


def run_arms(
    arms: Sequence[Arm], options: Options, run: Callable[[Arm, int], Figures] = run_arm
) -> list[list[Figures]]:
    """Run all arms with all seeds, and return the figures of each arm by seed."""
    wanted = [ArmRun(arm.label, seed, (arm, seed)) for arm in arms for seed in range(options.seeds)]
    done = options.sweep(partial(_run_seed, run), wanted)
    return [done[number * options.seeds : (number + 1) * options.seeds] for number in range(len(arms))]


def _run_seed(run: Callable[[Arm, int], Figures], job: tuple[Arm, int]) -> Figures:
    return run(*job)


@dataclass(frozen=True, slots=True)
class ArmStudy:
    """How a study of the file runs.

    Attributes:
        study: Its tables of the file.
        run: Runs an arm with a seed.
        more: Returns what else is written of an arm, from its runs.
        whole: Returns what else is written of all, from the written arms.
    """

    study: Mapping[str, Any]
    run: Callable[[Arm, int], Figures] = run_arm
    more: Callable[[Arm, Sequence[Figures]], Figures] = field(default=lambda arm, runs: {})
    whole: Callable[[Sequence[Figures]], Figures] = field(default=lambda arms: {})

    def measure(self, options: Options) -> Figures:
        """Run every arm with every seed."""
        arms = arms_of(self.study, quick=options.quick)
        runs = run_arms(arms, options, self.run)
        written = [
            {
                "family": arm.family,
                **arm.names,
                **({"value": arm.keys["value"]} if "value" in arm.keys else {}),
                "figures": over_seeds(own, self.study["figures"]),
                **self.more(arm, own),
                "event_hashes": [run["event_hash"] for run in own],
            }
            for arm, own in zip(arms, runs, strict=True)
        ]
        hours = {arm.family: sorted({one.hours for one in arms if one.family == arm.family}) for arm in arms}
        return {"arms": written, **self.whole(written), "config": {"hours": hours}}


def provenance(recorded: Figures) -> str:
    """Return with which seeds, hours and commit arms were recorded."""
    hours = recorded["config"]["hours"]
    shown = {family: "/".join(f"{one:g}" for one in own) for family, own in hours.items()}
    if len(set(shown.values())) == 1:
        words = f"{next(iter(shown.values()))} simulated hours each"
    else:
        words = f"simulated hours of a run: {', '.join(f'{family} {own}' for family, own in shown.items())}"
    return recorded_line(recorded, words, *([HALF_INTERVAL] if len(recorded["seeds"]) > 1 else []))


def arm_study(
    name: str,
    *,
    tables: Mapping[str, Callable[[Figures], Rows | str]] | None = None,
    pictures: Mapping[str, StudyPicture] | None = None,
    **hooks: Any,
) -> Experiment:
    """Return a study of the file, with ``tables``, ``pictures`` and hooks of ``ArmStudy``."""
    study = studies()[name]
    return Experiment(
        name=name,
        about=study["about"],
        measure=ArmStudy(study, **hooks).measure,
        tables={f"{name.replace('_', '-')}-provenance": provenance, **(tables or {})},
        pictures=pictures or {},
        seeds=study.get("seeds", 3),
    )


def select(arms: Iterable[Figures], **wanted: Any) -> list[Figures]:
    """Return the recorded arms that have these names."""
    return [arm for arm in arms if all(arm.get(key) == value for key, value in wanted.items())]


def pick(arms: Iterable[Figures], **wanted: Any) -> Figures:
    """Return the one recorded arm that has these names.

    Raises:
        LookupError: If there is none, or more than one.
    """
    found = select(arms, **wanted)
    if len(found) != 1:
        raise LookupError(f"wanted one arm with {wanted}, found {len(found)}")
    return found[0]


def mean(arm: Figures, figure: str) -> float:
    """Return the mean over seeds of a figure of a recorded arm."""
    return float(arm["figures"][figure]["mean"])
