"""The best plan for given machines: desktops, GPUs and weight sync; and the gain from one more of each resource.

Every split is first predicted in closed form (``dartsim.lab.analytic_model``); then the best few and their neighbors
are simulated. The best of many simulated figures is partly luck, so the figures of the plan, and of one more or one
less of each resource, come from fresh seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.analytic_model import Prediction, predict
from dartsim.lab.comparison import half_width
from dartsim.lab.jobs import Figures, Job, Outcome, Prices, outcomes
from dartsim.lab.machines import Machines, MachineSplit, Splits
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import changed
from dartsim.run.prepare import prepare

ENOUGH = 0.98
"""Desktops are added until the closed form reaches this share of its maximum."""
SAME = 0.01
"""Relative difference below which rates count as equal."""
MANY_SPARES = 0.1
"""Above this share of spare desktops, the closed form is also evaluated without spares."""
SYNCS_PER_SPLIT = 3
"""Weight syncs of each split that the closed form ranks."""
SIMULATED = 6
"""Candidates of the closed form that are simulated."""
ROUNDS = 3
"""Largest number of rounds in which the neighbors of the best plan are simulated."""
FRESH = 3
"""Smallest number of fresh seeds for the plan's figures."""
VERSIONS = 8
"""Updates that a run should have time for after its warm-up."""
LONGEST_HOURS = 48.0
MANY_TURNS = 100_000
"""Generated turns that are enough for a run with its updates: some ten seconds of computing."""

COMPONENT_OF = {
    "one more trainer GPU": "trainer",
    "one more rollout GPU": "engines",
    "one more host, with as many desktops": "desktops",
    "one more desktop a rollout GPU": "desktops",
}
"""The component of the bottleneck law that a resource belongs to."""


@dataclass(frozen=True, slots=True)
class Extra:
    """The plan with more, or less, of one resource."""

    what: str
    figures: Figures
    gain: float
    half_width: float | None
    more: bool


@dataclass(frozen=True, slots=True)
class SyncResult:
    """A weight sync on the plan's machines: its name, trained turns per minute in the search, and mean staleness."""

    sync: str
    rate: float
    staleness: float


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """The recommended use of machines."""

    split: MachineSplit
    config: Config
    figures: Figures
    by_seed: tuple[Figures, ...]
    seeds: tuple[int, ...]
    searched: float
    predicted: Prediction
    syncs: tuple[SyncResult, ...]
    reason: str
    others: tuple[tuple[MachineSplit, float], ...]
    extras: tuple[Extra, ...]

    @property
    def rate(self) -> float:
        """Trained turns per minute, simulated with fresh seeds."""
        return trained_rate(self.figures)

    @property
    def binding(self) -> str:
        """The plan's bottleneck: the resource whose increase gains most, and that of the bottleneck law."""
        component = str(self.figures.get("bound_by") or self.predicted.bound_by)
        more = [extra for extra in self.extras if extra.more]
        best = max(more, key=lambda extra: extra.gain, default=None)
        if best is None or best.gain < SAME:
            return f"{component} (no single resource gains {SAME:.0%})"
        law = "" if COMPONENT_OF[best.what] == component else f"; by the bottleneck law alone: {component}"
        return f"{COMPONENT_OF[best.what]}; {best.what} gains most ({best.gain:+.1%}){law}"


class Planner:
    """Finds the best use of machines.

    Raises:
        ConfigError: If the machines are too few or too small.
    """

    def __init__(
        self,
        base: Config,
        machines: Machines,
        *,
        prices: Prices,
        executor: Executor,
        hours: float | None = None,
        seeds: tuple[int, ...] = (0, 1),
    ) -> None:
        if machines.gpus < 2:
            raise ConfigError(f"a plan needs 2 GPUs or more, one to roll out and one to train; got {machines.gpus}")
        self._splits = Splits(base)
        self._machines = machines
        self._capacity = self._splits.capacity(machines)
        self._prices = prices
        self._executor = executor
        self._hours = hours
        self._seeds = seeds
        self._seen: dict[MachineSplit, Figures] = {}
        if self._capacity < 1:
            need = prepare(base).timing.memory_gib
            raise ConfigError(
                f"a desktop of {need:g} GiB does not fit on a host of {machines.memory_gib:g} GiB; name larger hosts, "
                "or another --profile of desktops"
            )

    def plan(self) -> MachinePlan:
        """Return the recommended plan.

        Raises:
            DartsimError: If a simulation failed.
        """
        first = self.scan()[:SIMULATED]
        self._hours = self._hours or self._long_enough(first[0])
        self._simulate(first)
        best = self._best()
        for _ in range(ROUNDS):
            self._simulate([split for split in self._around(best) if split not in self._seen])
            last, best = best, self._best()
            if best == last:
                break
        result, extras = self._fresh_results(best)
        ranked = sorted(self._seen, key=lambda split: -trained_rate(self._seen[split]))
        return MachinePlan(
            split=best,
            config=self._sized(self._config(best)),
            figures=result.figures,
            by_seed=result.by_seed,
            seeds=self._fresh_seeds(),
            searched=trained_rate(self._seen[best]),
            predicted=self._predict(best),
            syncs=self._syncs(best),
            reason=self._reason(best),
            others=tuple((split, trained_rate(self._seen[split])) for split in ranked if split != best),
            extras=extras,
        )

    def scan(self) -> list[MachineSplit]:
        """Return the best number of desktops for every split of the GPUs by the closed form, best first.

        Each split comes with several weight syncs.
        """
        shares = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        sizes = sorted({max(1, round(self._capacity * share)) for share in shares})
        ranked: list[tuple[float, int, MachineSplit]] = []
        for workers in _counts(self._machines.gpus):
            sized = [
                MachineSplit(size - spares, spares, workers, self._machines.gpus - workers, self._splits.own)
                for size in sizes
                for spares in self._spares(everywhere=False)
                if size > spares
            ]
            rates = [self._predict(split).trained_turns_per_minute for split in sized]
            enough = ENOUGH * max(rates)
            rate, split = next((rate, split) for rate, split in zip(rates, sized, strict=True) if rate >= enough)
            with_syncs = self._splits.with_syncs(split)[:SYNCS_PER_SPLIT]
            ranked += [(rate, number, candidate) for number, candidate in enumerate(with_syncs)]
        ranked.sort(key=lambda row: (-round(row[0], 6), row[2].workers, row[1]))
        return [split for _, _, split in ranked]

    def _spares(self, *, everywhere: bool) -> list[int]:
        """Return candidate numbers of spare desktops: the configuration's, and 0 where those are many."""
        own = self._splits.base.rollout.warm_envs
        none = everywhere or own > MANY_SPARES * self._capacity
        return list(dict.fromkeys([own, 0] if none else [own]))

    def _around(self, best: MachineSplit) -> list[MachineSplit]:
        """Return splits that differ from the best one in one setting."""
        largest, gpus = self._capacity - best.spares, self._machines.gpus
        sizes = {max(1, round(best.num_envs * factor)) for factor in (0.75, 1.3)}
        near = [replace(best, num_envs=min(size, largest)) for size in sorted(sizes)]
        splits = [workers for workers in (best.workers - 1, best.workers + 1) if 1 <= workers < gpus]
        near += [replace(best, workers=workers, trainer=gpus - workers) for workers in splits]
        total = best.num_envs + best.spares
        others = [spares for spares in self._spares(everywhere=True) if spares != best.spares and spares < total]
        near += [replace(best, num_envs=total - spares, spares=spares) for spares in others]
        near += self._splits.with_syncs(best)
        return [split for split in dict.fromkeys(near) if split != best]

    def _best(self) -> MachineSplit:
        """Return the simulated split that trains most.

        Among nearly equal ones: the fewest desktops, then the configuration's own sync, then the least staleness.
        """
        top = max(map(trained_rate, self._seen.values()))
        close = [split for split, figures in self._seen.items() if trained_rate(figures) >= (1.0 - SAME) * top]

        def preference(split: MachineSplit) -> tuple[float, ...]:
            figures, own = self._seen[split], split.sync == self._splits.own
            return split.num_envs + split.spares, not own, figures["staleness_mean"], -trained_rate(figures)

        return min(close, key=preference)

    def _syncs(self, best: MachineSplit) -> tuple[SyncResult, ...]:
        """Return the weight syncs that were simulated with the best split, its own first."""
        seen = [split for split in (best, *self._splits.with_syncs(best)) if split in self._seen]
        return tuple(
            SyncResult(split.sync, trained_rate(self._seen[split]), self._seen[split]["staleness_mean"])
            for split in dict.fromkeys(seen)
        )

    def _reason(self, best: MachineSplit) -> str:
        """Return why the best split has its weight sync."""
        own, *others = self._syncs(best)
        if not others:
            return "no other is allowed by these rules" if len(self._splits.syncs) == 1 else "no other was compared"
        if all(other.rate < (1.0 - SAME) * own.rate for other in others):
            return "the fastest"
        if own.sync == self._splits.own:
            return f"as in the configuration; no other is {SAME:.0%} faster"
        return f"the least staleness of those within {SAME:.0%}"

    def _fresh_results(self, best: MachineSplit) -> tuple[Outcome, tuple[Extra, ...]]:
        """Simulate the plan, and the plan with more and less of each resource, with fresh seeds."""
        seeds = self._fresh_seeds()
        cases = self._cases(best)
        jobs = [self._job("the plan", self._config(best), seeds)]
        jobs += [self._job(what, self._splits.config(split, machines), seeds) for what, split, machines in cases]
        plan, *results = outcomes(self._executor, jobs)
        extras = [_extra(what, plan, outcome) for (what, _, _), outcome in zip(cases, results, strict=True)]
        return plan, tuple(sorted(extras, key=lambda extra: -extra.gain))

    def _cases(self, best: MachineSplit) -> list[tuple[str, MachineSplit, Machines]]:
        """Return the plan with one more, and one less, of each resource, and with only what it needs."""
        machines = self._machines
        per_host = -(-best.num_envs // machines.hosts)
        cases = [
            ("one more rollout GPU", replace(best, workers=best.workers + 1), machines),
            ("one more trainer GPU", replace(best, trainer=best.trainer + 1), machines),
            (
                "one more host, with as many desktops",
                replace(best, num_envs=best.num_envs + per_host),
                replace(machines, hosts=machines.hosts + 1),
            ),
        ]
        if best.num_envs + best.spares + best.workers <= self._capacity:
            cases.append(
                ("one more desktop a rollout GPU", replace(best, num_envs=best.num_envs + best.workers), machines)
            )
        if best.workers > 1:
            cases.append(("one rollout GPU less", replace(best, workers=best.workers - 1), machines))
        if best.trainer > 1:
            cases.append(("one trainer GPU less", replace(best, trainer=best.trainer - 1), machines))
        if best.num_envs > best.workers:
            fewer = replace(best, num_envs=best.num_envs - best.workers)
            cases.append(("one desktop a rollout GPU less", fewer, machines))
        split, needed = self._needed(best)
        if (split, needed) != (best, machines):
            hosts = f"{needed.hosts} host{'' if needed.hosts == 1 else 's'}"
            cases.append((f"only {split.workers} + {split.trainer} GPUs and {hosts}", split, needed))
        return cases

    def _needed(self, best: MachineSplit) -> tuple[MachineSplit, Machines]:
        """Return the fewest hosts, trainer and rollout GPUs that keep the rate of the closed form."""
        target = (1.0 - SAME) * self._predict(best).trained_turns_per_minute
        machines = self._machines

        def enough(split: MachineSplit, machines: Machines) -> bool:
            config = self._sized(self._splits.config(split, machines))
            return predict(prepare(config)).trained_turns_per_minute >= target

        fewest = self._splits.hosts_for(best, machines)
        fewer_hosts = (replace(machines, hosts=number) for number in range(fewest, machines.hosts))
        machines = next((fewer for fewer in fewer_hosts if enough(best, fewer)), machines)
        trainers = (replace(best, trainer=number) for number in range(1, best.trainer))
        best = next((split for split in trainers if enough(split, machines)), best)
        rollouts = (replace(best, workers=number) for number in range(1, best.workers))
        return next((split for split in rollouts if enough(split, machines)), best), machines

    def _simulate(self, splits: Sequence[MachineSplit]) -> None:
        jobs = [self._job(str(split), self._config(split), self._seeds) for split in splits]
        for split, outcome in zip(splits, outcomes(self._executor, jobs), strict=True):
            self._seen[split] = outcome.figures

    def _job(self, name: str, config: Config, seeds: tuple[int, ...]) -> Job:
        return Job(name=name, config=self._sized(config), seeds=seeds, prices=self._prices)

    def _fresh_seeds(self) -> tuple[int, ...]:
        first = max(self._seeds) + 1
        return tuple(range(first, first + max(FRESH, len(self._seeds))))

    def _sized(self, config: Config) -> Config:
        return config if self._hours is None else changed(config, {"run.hours": self._hours})

    def _long_enough(self, split: MachineSplit) -> float:
        """Return the hours of every run: enough for several updates, fewer where there are many turns.

        A run that ends once it is steady may take the longest.
        """
        if self._splits.base.run.until_steady is not None:
            return LONGEST_HOURS
        config, predicted = self._config(split), self._predict(split)
        updates = predicted.minutes_per_version * VERSIONS / (1.0 - min(0.9, config.run.warmup_share)) / 60.0
        turns = MANY_TURNS / max(predicted.generated_turns_per_minute, 1e-9) / 60.0
        by_size = max(3.0, min(10.0, 400.0 / split.num_envs))
        return round(max(0.02, min(LONGEST_HOURS, max(updates, min(by_size, turns)))), 2)

    def _config(self, split: MachineSplit) -> Config:
        return self._splits.config(split, self._machines)

    def _predict(self, split: MachineSplit) -> Prediction:
        return predict(prepare(self._sized(self._config(split))))


def _extra(what: str, plan: Outcome, outcome: Outcome) -> Extra:
    reference = trained_rate(plan.figures)
    pairs = [tuple(map(trained_rate, pair)) for pair in zip(outcome.by_seed, plan.by_seed, strict=True)]
    gains = [rate / base - 1.0 for rate, base in pairs if base]
    gain = trained_rate(outcome.figures) / reference - 1.0 if reference else 0.0
    return Extra(what, outcome.figures, gain, half_width(gains), what in COMPONENT_OF)


def expected_runs(seeds: int) -> int:
    """Estimate the number of simulations of a plan: two rounds of neighbors."""
    return seeds * (SIMULATED + 2 * 6) + max(FRESH, seeds) * 8


def planned(config: Config, plan: MachinePlan) -> Config:
    """Return another configuration with the plan's split, to start a real run with."""
    chosen = plan.config
    settings = {
        "run.until_steady": None,
        "rollout.num_envs": chosen.rollout.num_envs,
        "rollout.warm_envs": chosen.rollout.warm_envs,
        "rollout.num_workers": chosen.rollout.num_workers,
        "rollout.sync.mode": chosen.rollout.sync.mode,
        "rollout.sync.workers_at_a_time": chosen.rollout.sync.workers_at_a_time,
        "cluster.learner.gpus": chosen.cluster.learner.gpus,
        "cluster.learner.kilotoken_seconds": chosen.cluster.learner.kilotoken_seconds,
        "cluster.hosts.count": chosen.cluster.hosts.count,
        "cluster.hosts.memory_gib": chosen.cluster.hosts.memory_gib,
        "cluster.hosts.cores": chosen.cluster.hosts.cores,
        "cluster.hosts.slow_count": chosen.cluster.hosts.slow_count,
    }
    return changed(config, settings)


def trained_rate(figures: Mapping[str, Any]) -> float:
    """Return the trained turns per minute, over whole updates where there are two; 0 if a run failed."""
    return (
        0.0
        if figures.get("failure")
        else float(figures.get("steady_turns_per_minute") or figures["trained_turns_per_minute"])
    )


def _counts(gpus: int) -> list[int]:
    """Return candidate numbers of rollout GPUs: all of a few, about twenty of many."""
    step = max(1, gpus // 20)
    return sorted({*range(1, gpus, step), gpus - 1})
