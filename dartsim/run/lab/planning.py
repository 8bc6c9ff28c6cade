"""A plan for given machines: how many desktops, rollout and trainer GPUs, which sync; and what one more of each buys.

First every split is looked at in closed form (``dartsim.run.lab.closed``), then the best few are simulated, and their
neighbours; last, the plan is simulated with one more, or one less, of each resource.

GPUs of the trainer share the turns of an update evenly: its time a turn is the configuration's times its GPUs over the
plan's. That is an assumption, and the first thing to measure on real machines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dartsim.config import Config
from dartsim.errors import ConfigError
from dartsim.run.lab.closed import Predicted, predict
from dartsim.run.lab.jobs import Figures, Job, Runner, outcomes
from dartsim.run.lab.prices import Prices
from dartsim.run.lab.virtual import changed
from dartsim.run.models import models

HOSTS = re.compile(r"^(?P<count>\d+)x(?P<memory>\d+(?:\.\d+)?)GiB(?:x(?P<cores>\d+(?:\.\d+)?)cores)?$", re.IGNORECASE)
ENOUGH = 0.98
"""Desktops are added until the closed form reaches this share of what any number of them would give."""
SIMULATED = 6
"""Candidates of the closed form that are simulated."""
ROUNDS = 3
"""Most times that the neighbours of the best plan so far are simulated."""
SYNCS: Mapping[str, Mapping[str, Any]] = {
    "keep, one worker at a time": {"rollout.sync.mode": "keep", "rollout.sync.workers_at_a_time": 1},
    "drain, one worker at a time": {"rollout.sync.mode": "drain", "rollout.sync.workers_at_a_time": 1},
    "restart, half of the workers at a time": {"rollout.sync.mode": "restart"},
    "keep, all at once": {"rollout.sync.mode": "keep", "rollout.sync.workers_at_a_time": "all"},
}
"""Ways to change weights that are compared."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What there is.

    Attributes:
        gpus: GPUs, for workers and trainer.
        hosts: Machines for desktops.
        memory_gib: Memory of each.
        cores: Cores of each; None keeps the configuration's.
    """

    gpus: int
    hosts: int
    memory_gib: float
    cores: float | None = None


def read_hosts(text: str) -> tuple[int, float, float | None]:
    """Return number, memory and cores of hosts written as ``4x64GiB`` or ``4x64GiBx32cores``.

    Raises:
        ConfigError: If it is written otherwise.
    """
    match = HOSTS.match(text.replace(" ", ""))
    if match is None or not int(match["count"]) or not float(match["memory"]):
        raise ConfigError(f"hosts are written COUNTxMEMORYGiB or COUNTxMEMORYGiBxCOREScores, as 4x64GiB; got {text!r}")
    return int(match["count"]), float(match["memory"]), float(match["cores"]) if match["cores"] else None


@dataclass(frozen=True, slots=True)
class Split:
    """One way to use the machines.

    Attributes:
        num_envs: Desktops, spares not counted.
        workers: GPUs of the workers, one each.
        trainer: GPUs of the trainer.
        sync: A name of ``SYNCS``.
    """

    num_envs: int
    workers: int
    trainer: int
    sync: str


@dataclass(frozen=True, slots=True)
class Extra:
    """One more, or one less, of a resource.

    Attributes:
        what: Of which.
        figures: Simulated with it.
        gain: Trained turns a minute against the plan's, less 1.
    """

    what: str
    figures: Figures
    gain: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What is recommended.

    Attributes:
        split: How the machines are used.
        config: The whole configuration, as the laboratory simulated it.
        figures: Simulated.
        predicted: In closed form.
        others: Other candidates that were simulated, with their trained turns a minute, best first.
        extras: What one more of each resource buys, and one less costs; the largest gain first.
    """

    split: Split
    config: Config
    figures: Figures
    predicted: Predicted
    others: tuple[tuple[Split, float], ...]
    extras: tuple[Extra, ...]

    @property
    def binding(self) -> str:
        """What the plan is limited by: the resource of which one more buys most, or the part with the least bound."""
        more = [extra for extra in self.extras if extra.what.startswith("one more")]
        best = max(more, key=lambda extra: extra.gain, default=None)
        part = str(self.figures.get("bound_by") or self.predicted.bound_by)
        if best is None or best.gain < 0.01:
            return f"{part} (no single resource buys 1 % more)"
        return f"{part}; {best.what} buys most ({best.gain:+.1%})"


class Planner:
    """Plans for machines.

    Args:
        base: The configuration whose cluster and rules are kept, as ``as_virtual`` returns it.
        machines: What there is.
        prices: What they cost.
        hours: Simulated hours of each run; None chooses by size.
        seeds: Seeds of each run.
        runner: What simulates.
    """

    def __init__(
        self,
        base: Config,
        machines: Machines,
        *,
        prices: Prices,
        runner: Runner,
        hours: float | None = None,
        seeds: tuple[int, ...] = (0, 1),
    ) -> None:
        if machines.gpus < 2:
            raise ConfigError(f"a plan needs 2 GPUs or more, one to roll out and one to train; got {machines.gpus}")
        self._base = base
        self._machines = machines
        self._prices = prices
        self._runner = runner
        self._hours = hours
        self._seeds = seeds
        self._seen: dict[Split, Figures] = {}
        if self.capacity(machines) < 1:
            need = models(base).timing.memory_gib
            raise ConfigError(f"a desktop of {need:g} GiB does not fit on a host of {machines.memory_gib:g} GiB")

    def capacity(self, machines: Machines) -> int:
        """Return how many desktops fit on the hosts, spares not counted."""
        need = models(self._base).timing.memory_gib
        fits = int(machines.memory_gib // need) if need > 0.0 else 64
        return max(0, machines.hosts * fits - self._base.rollout.warm_envs)

    def config(self, split: Split, machines: Machines | None = None) -> Config:
        """Return the configuration of a split of the machines."""
        there = machines or self._machines
        learner = self._base.cluster.learner
        sync = dict(SYNCS[split.sync])
        sync.setdefault("rollout.sync.workers_at_a_time", max(1, split.workers // 2))
        settings: dict[str, Any] = {
            "rollout.num_envs": split.num_envs,
            "rollout.num_workers": split.workers,
            "cluster.learner.gpus": split.trainer,
            "cluster.learner.turn_seconds": learner.turn_seconds * learner.gpus / split.trainer,
            "cluster.hosts.count": there.hosts,
            "cluster.hosts.memory_gib": there.memory_gib,
            **sync,
        }
        if there.cores is not None:
            settings["cluster.hosts.cores"] = there.cores
        return changed(self._base, settings)

    def plan(self) -> Plan:
        """Return the recommended plan.

        Raises:
            DartsimError: If a simulation failed.
        """
        first = self.scan()[:SIMULATED]
        self._simulate(first)
        best = self._best()
        for _ in range(ROUNDS):
            self._simulate([split for split in self._around(best) if split not in self._seen])
            last, best = best, self._best()
            if best == last:
                break
        extras = self._extras(best)
        ranked = sorted(self._seen, key=lambda split: -_rate(self._seen[split]))
        return Plan(
            split=best,
            config=self._sized(self.config(best)),
            figures=self._seen[best],
            predicted=predict(models(self.config(best))),
            others=tuple((split, _rate(self._seen[split])) for split in ranked if split != best),
            extras=extras,
        )

    def scan(self) -> list[Split]:
        """Return the best number of desktops and sync of every split of the GPUs in closed form, best first.

        Of each split, every way to change weights is kept; those of the best splits come first.
        """
        capacity = self.capacity(self._machines)
        sizes = sorted(
            {max(1, round(capacity * share)) for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)}
        )
        ranked: list[tuple[float, Split]] = []
        for workers in _counts(self._machines.gpus):
            rates = [self._predicted(Split(size, workers, self._machines.gpus - workers, "")) for size in sizes]
            wanted = ENOUGH * max(rates)
            place = next(index for index, rate in enumerate(rates) if rate >= wanted)
            ranked += [
                (rates[place], Split(sizes[place], workers, self._machines.gpus - workers, sync))
                for sync in list(SYNCS)[:3]
            ]
        ranked.sort(key=lambda pair: (-round(pair[0], 6), pair[1].workers, list(SYNCS).index(pair[1].sync)))
        return [split for _, split in ranked]

    def _predicted(self, split: Split) -> float:
        found = models(self.config(replace(split, sync=next(iter(SYNCS)))))
        return predict(found).trained_turns_per_minute

    def _around(self, best: Split) -> list[Split]:
        """Return splits that differ from the best one in one thing."""
        capacity, gpus = self.capacity(self._machines), self._machines.gpus
        sizes = {max(1, round(best.num_envs * factor)) for factor in (0.75, 1.3)}
        near = [replace(best, num_envs=min(size, capacity)) for size in sorted(sizes)]
        splits = [workers for workers in (best.workers - 1, best.workers + 1) if 1 <= workers < gpus]
        near += [replace(best, workers=workers, trainer=gpus - workers) for workers in splits]
        near += [replace(best, sync=sync) for sync in SYNCS if sync != best.sync]
        return list(dict.fromkeys(near))

    def _best(self) -> Split:
        """Return the simulated split that trains most; of those within 1 % the one with the fewest desktops."""
        top = max(map(_rate, self._seen.values()))
        close = [split for split, figures in self._seen.items() if _rate(figures) >= 0.99 * top]
        return min(close, key=lambda split: (split.num_envs, -_rate(self._seen[split])))

    def _extras(self, best: Split) -> tuple[Extra, ...]:
        """Simulate the plan with one more, and one less, of each resource."""
        there = self._machines
        per_host = -(-best.num_envs // there.hosts)
        more_host = replace(there, hosts=there.hosts + 1)
        cases: list[tuple[str, Split, Machines]] = [
            ("one more rollout GPU", replace(best, workers=best.workers + 1), there),
            ("one more trainer GPU", replace(best, trainer=best.trainer + 1), there),
            ("one more host, with as many desktops", replace(best, num_envs=best.num_envs + per_host), more_host),
        ]
        if best.num_envs + max(1, best.workers) <= self.capacity(there):
            cases.append(
                ("one more desktop a rollout GPU", replace(best, num_envs=best.num_envs + best.workers), there)
            )
        if best.workers > 1:
            cases.append(("one rollout GPU less", replace(best, workers=best.workers - 1), there))
        if best.trainer > 1:
            cases.append(("one trainer GPU less", replace(best, trainer=best.trainer - 1), there))
        if best.num_envs > best.workers:
            fewer = replace(best, num_envs=best.num_envs - best.workers)
            cases.append(("one desktop a rollout GPU less", fewer, there))
        jobs = [self._job(what, self.config(split, machines)) for what, split, machines in cases]
        reference = _rate(self._seen[best])
        found = outcomes(self._runner, jobs)
        extras = [
            Extra(what, outcome.figures, _rate(outcome.figures) / reference - 1.0 if reference else 0.0)
            for (what, _, _), outcome in zip(cases, found, strict=True)
        ]
        return tuple(sorted(extras, key=lambda extra: -extra.gain))

    def _simulate(self, splits: Sequence[Split]) -> None:
        jobs = [self._job(words(split), self.config(split)) for split in splits]
        for split, outcome in zip(splits, outcomes(self._runner, jobs), strict=True):
            self._seen[split] = outcome.figures

    def _job(self, name: str, config: Config) -> Job:
        return Job(name=name, config=self._sized(config), seeds=self._seeds, prices=self._prices)

    def _sized(self, config: Config) -> Config:
        hours = self._hours or min(10.0, max(3.0, 400.0 / config.rollout.num_envs))
        return changed(config, {"run.hours": round(hours, 2)})


def words(split: Split) -> str:
    """Return a split in words."""
    return f"{split.num_envs} desktops, {split.workers} + {split.trainer} GPUs, {split.sync}"


def planned(config: Config, plan: Plan) -> Config:
    """Return another configuration with the plan's split: what a real run is started with."""
    chosen = plan.config
    settings = {
        "rollout.num_envs": chosen.rollout.num_envs,
        "rollout.num_workers": chosen.rollout.num_workers,
        "rollout.sync.mode": chosen.rollout.sync.mode,
        "rollout.sync.workers_at_a_time": chosen.rollout.sync.workers_at_a_time,
        "cluster.learner.gpus": chosen.cluster.learner.gpus,
        "cluster.learner.turn_seconds": chosen.cluster.learner.turn_seconds,
        "cluster.hosts.count": chosen.cluster.hosts.count,
        "cluster.hosts.memory_gib": chosen.cluster.hosts.memory_gib,
        "cluster.hosts.cores": chosen.cluster.hosts.cores,
    }
    return changed(config, settings)


def _counts(gpus: int) -> list[int]:
    """Return numbers of rollout GPUs to look at: all of a few, of many about twenty."""
    step = max(1, gpus // 20)
    return sorted({*range(1, gpus, step), gpus - 1})


def _rate(figures: Mapping[str, Any]) -> float:
    """Return the trained turns a minute, from update to update where there are two."""
    return float(figures.get("steady_turns_per_minute") or figures["trained_turns_per_minute"])
