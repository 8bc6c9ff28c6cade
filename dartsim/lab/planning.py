"""A plan for given machines: how many desktops, rollout and trainer GPUs, which sync; and what one more of each buys.

Every split is first predicted in closed form (``dartsim.lab.analytic_model``); then the best few and their neighbors
are simulated. The best of many simulated figures is partly luck, so the figures of the plan, and of one more or one
less of each resource, come from seeds that the search has not seen.
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
from dartsim.lab.machines import Machines, MachineSplit, Splits, words
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import changed
from dartsim.run.prepare import prepare

ENOUGH = 0.98
"""Desktops are added until the closed form reaches this share of what any number of them would give."""
SAME = 0.01
"""Rates that differ by less than this share are taken for equal."""
MANY_SPARES = 0.1
"""Share of the desktops that fit above which the closed form is also asked for none that are booted ahead."""
WAYS = 3
"""Ways to change weights of each split that the closed form is followed by."""
SIMULATED = 6
"""Candidates of the closed form that are simulated."""
ROUNDS = 3
"""Most times that the neighbours of the best plan so far are simulated."""
FRESH = 3
"""Fewest seeds, apart from those of the search, that the plan's figures come from."""
VERSIONS = 8
"""Updates that a run should have time for after its warm-up."""
LONGEST_HOURS = 48.0
MANY_TURNS = 100_000
"""Generated turns that a run need not go beyond, if it has its updates: some ten seconds of computing."""

PART_OF = {
    "one more trainer GPU": "trainer",
    "one more rollout GPU": "engines",
    "one more host, with as many desktops": "desktops",
    "one more desktop a rollout GPU": "desktops",
}
"""The part of the bottleneck law that a resource belongs to."""


@dataclass(frozen=True, slots=True)
class Extra:
    """More, or less, of a resource.

    Attributes:
        what: Of which.
        figures: Simulated with it, with the plan's seeds.
        gain: Trained turns a minute against the plan's, less 1.
        half_width: Half of the gain's 95 % interval, seed against seed; None with fewer than two.
        more: Whether it is one more, and not less.
    """

    what: str
    figures: Figures
    gain: float
    half_width: float | None
    more: bool


@dataclass(frozen=True, slots=True)
class Way:
    """A way to change weights, on the plan's machines.

    Attributes:
        sync: Its name.
        rate: Trained turns a minute, as the search simulated it.
        staleness: Mean, versions.
    """

    sync: str
    rate: float
    staleness: float


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """What is recommended.

    Attributes:
        split: How the machines are used.
        config: The whole configuration, as the laboratory simulated it.
        figures: Simulated with fresh seeds.
        by_seed: The same of each of them.
        seeds: Which seeds those are.
        searched: Trained turns a minute as the search simulated it, with other seeds.
        predicted: In closed form.
        ways: Ways to change weights that were simulated with this split, the plan's own first.
        reason: Why this way to change weights, in words.
        others: Other candidates that were simulated, with their trained turns a minute in the search, best first.
        extras: What more of each resource buys, and less costs; the largest gain first.
    """

    split: MachineSplit
    config: Config
    figures: Figures
    by_seed: tuple[Figures, ...]
    seeds: tuple[int, ...]
    searched: float
    predicted: Prediction
    ways: tuple[Way, ...]
    reason: str
    others: tuple[tuple[MachineSplit, float], ...]
    extras: tuple[Extra, ...]

    @property
    def rate(self) -> float:
        """Trained turns a minute, simulated with fresh seeds."""
        return trained_rate(self.figures)

    @property
    def binding(self) -> str:
        """What the plan is limited by: the resource of which one more buys most; and what the bottleneck law says."""
        part = str(self.figures.get("bound_by") or self.predicted.bound_by)
        more = [extra for extra in self.extras if extra.more]
        best = max(more, key=lambda extra: extra.gain, default=None)
        if best is None or best.gain < SAME:
            return f"{part} (no single resource buys {SAME:.0%} more)"
        law = "" if PART_OF[best.what] == part else f"; by the bottleneck law alone: {part}"
        return f"{PART_OF[best.what]}; {best.what} buys most ({best.gain:+.1%}){law}"


class Planner:
    """Plans for machines.

    Args:
        base: The configuration whose cluster and rules are kept, as ``as_virtual`` returns it.
        machines: What there is.
        prices: What they cost.
        hours: Simulated hours of each run; None chooses by size, and so that a run has several updates.
        seeds: Seeds of each run of the search; the plan itself is simulated with others.
        executor: What simulates.

    Raises:
        ConfigError: If these machines are too few or too small.
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
        again, extras = self._held_out(best)
        ranked = sorted(self._seen, key=lambda split: -trained_rate(self._seen[split]))
        return MachinePlan(
            split=best,
            config=self._sized(self._config(best)),
            figures=again.figures,
            by_seed=again.by_seed,
            seeds=self._fresh(),
            searched=trained_rate(self._seen[best]),
            predicted=self._closed(best),
            ways=self._ways(best),
            reason=self._reason(best),
            others=tuple((split, trained_rate(self._seen[split])) for split in ranked if split != best),
            extras=extras,
        )

    def scan(self) -> list[MachineSplit]:
        """Return the best number of desktops and sync of every split of the GPUs in closed form, best first.

        Of each split, three ways to change weights are kept; those of the best splits come first.
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
            rates = [self._closed(split).trained_turns_per_minute for split in sized]
            enough = ENOUGH * max(rates)
            rate, split = next((rate, split) for rate, split in zip(rates, sized, strict=True) if rate >= enough)
            ranked += [(rate, place, one) for place, one in enumerate(self._splits.compared(split)[:WAYS])]
        ranked.sort(key=lambda row: (-round(row[0], 6), row[2].workers, row[1]))
        return [split for _, _, split in ranked]

    def _spares(self, *, everywhere: bool) -> list[int]:
        """Return numbers of spare desktops to look at: the configuration's, and none where they take much room."""
        own = self._splits.base.rollout.warm_envs
        none = everywhere or own > MANY_SPARES * self._capacity
        return list(dict.fromkeys([own, 0] if none else [own]))

    def _around(self, best: MachineSplit) -> list[MachineSplit]:
        """Return splits that differ from the best one in one thing."""
        room, gpus = self._capacity - best.spares, self._machines.gpus
        sizes = {max(1, round(best.num_envs * factor)) for factor in (0.75, 1.3)}
        near = [replace(best, num_envs=min(size, room)) for size in sorted(sizes)]
        splits = [workers for workers in (best.workers - 1, best.workers + 1) if 1 <= workers < gpus]
        near += [replace(best, workers=workers, trainer=gpus - workers) for workers in splits]
        total = best.num_envs + best.spares
        others = [spares for spares in self._spares(everywhere=True) if spares != best.spares and spares < total]
        near += [replace(best, num_envs=total - spares, spares=spares) for spares in others]
        near += self._splits.compared(best)
        return [split for split in dict.fromkeys(near) if split != best]

    def _best(self) -> MachineSplit:
        """Return the simulated split that trains most.

        Of those that are as good as equal, the one with the fewest desktops; of these the configuration's own sync,
        then the least stale.
        """
        top = max(map(trained_rate, self._seen.values()))
        close = [split for split, figures in self._seen.items() if trained_rate(figures) >= (1.0 - SAME) * top]
        return min(close, key=self._preference)

    def _preference(self, split: MachineSplit) -> tuple[float, ...]:
        figures = self._seen[split]
        stale = figures["staleness_mean"]
        desktops = split.num_envs + split.spares
        return (desktops, split.sync != self._splits.own, stale, -trained_rate(figures))

    def _ways(self, best: MachineSplit) -> tuple[Way, ...]:
        """Return every way to change weights that was simulated with the best split, its own first."""
        seen = [split for split in (best, *self._splits.compared(best)) if split in self._seen]
        return tuple(
            Way(split.sync, trained_rate(self._seen[split]), self._seen[split]["staleness_mean"])
            for split in dict.fromkeys(seen)
        )

    def _reason(self, best: MachineSplit) -> str:
        """Say why the best split's way to change weights was taken."""
        own, *others = self._ways(best)
        if not others:
            return "no other goes with these rules" if len(self._splits.syncs) == 1 else "no other was compared"
        close = [way for way in others if way.rate >= (1.0 - SAME) * own.rate]
        if not close:
            return "the fastest"
        if own.sync == self._splits.own:
            return f"as in the configuration; no other is {SAME:.0%} faster"
        return f"the least stale of those within {SAME:.0%}"

    # -- more and less ----------------------------------------------------------------------------

    def _held_out(self, best: MachineSplit) -> tuple[Outcome, tuple[Extra, ...]]:
        """Simulate the plan, and the plan with more and less of each resource, with seeds the search has not seen."""
        seeds = self._fresh()
        cases = self._cases(best)
        jobs = [self._job("the plan", self._config(best), seeds)]
        jobs += [self._job(what, self._splits.config(split, there), seeds) for what, split, there in cases]
        plan, *found = outcomes(self._executor, jobs)
        extras = [_extra(what, plan, outcome) for (what, _, _), outcome in zip(cases, found, strict=True)]
        return plan, tuple(sorted(extras, key=lambda extra: -extra.gain))

    def _cases(self, best: MachineSplit) -> list[tuple[str, MachineSplit, Machines]]:
        """Return the plan with one more, and one less, of each resource, and with no more than it needs."""
        there = self._machines
        per_host = -(-best.num_envs // there.hosts)
        cases = [
            ("one more rollout GPU", replace(best, workers=best.workers + 1), there),
            ("one more trainer GPU", replace(best, trainer=best.trainer + 1), there),
            (
                "one more host, with as many desktops",
                replace(best, num_envs=best.num_envs + per_host),
                replace(there, hosts=there.hosts + 1),
            ),
        ]
        if best.num_envs + best.spares + best.workers <= self._capacity:
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
        split, enough = self._needed(best)
        if (split, enough) != (best, there):
            plural = "" if enough.hosts == 1 else "s"
            cases.append(
                (f"only {split.workers} + {split.trainer} GPUs and {enough.hosts} host{plural}", split, enough)
            )
        return cases

    def _needed(self, best: MachineSplit) -> tuple[MachineSplit, Machines]:
        """Return the fewest hosts, trainer and rollout GPUs with which the closed form stays as it is."""
        wanted = (1.0 - SAME) * self._closed(best).trained_turns_per_minute
        there = self._machines

        def enough(split: MachineSplit, machines: Machines) -> bool:
            config = self._sized(self._splits.config(split, machines))
            return predict(prepare(config)).trained_turns_per_minute >= wanted

        fewest = self._splits.hosts_for(best, there)
        hosts = (replace(there, hosts=number) for number in range(fewest, there.hosts))
        there = next((machines for machines in hosts if enough(best, machines)), there)
        trainers = (replace(best, trainer=number) for number in range(1, best.trainer))
        best = next((split for split in trainers if enough(split, there)), best)
        rollouts = (replace(best, workers=number) for number in range(1, best.workers))
        return next((split for split in rollouts if enough(split, there)), best), there

    # -- simulations ------------------------------------------------------------------------------

    def _simulate(self, splits: Sequence[MachineSplit]) -> None:
        jobs = [self._job(words(split), self._config(split), self._seeds) for split in splits]
        for split, outcome in zip(splits, outcomes(self._executor, jobs), strict=True):
            self._seen[split] = outcome.figures

    def _job(self, name: str, config: Config, seeds: tuple[int, ...]) -> Job:
        return Job(name=name, config=self._sized(config), seeds=seeds, prices=self._prices)

    def _fresh(self) -> tuple[int, ...]:
        first = max(self._seeds) + 1
        return tuple(range(first, first + max(FRESH, len(self._seeds))))

    def _sized(self, config: Config) -> Config:
        return config if self._hours is None else changed(config, {"run.hours": self._hours})

    def _long_enough(self, split: MachineSplit) -> float:
        """Return the hours of a run, alike for all splits: enough for several updates, fewer where turns are many."""
        config, said = self._config(split), self._closed(split)
        updates = said.minutes_per_version * VERSIONS / (1.0 - min(0.9, config.run.warmup_share)) / 60.0
        turns = MANY_TURNS / max(said.generated_turns_per_minute, 1e-9) / 60.0
        by_size = max(3.0, min(10.0, 400.0 / split.num_envs))
        return round(max(0.02, min(LONGEST_HOURS, max(updates, min(by_size, turns)))), 2)

    def _config(self, split: MachineSplit) -> Config:
        return self._splits.config(split, self._machines)

    def _closed(self, split: MachineSplit) -> Prediction:
        return predict(prepare(self._sized(self._config(split))))


def _extra(what: str, plan: Outcome, outcome: Outcome) -> Extra:
    """Hold one more, or one less, of a resource against the plan: the mean, and seed against seed."""
    reference = trained_rate(plan.figures)
    pairs = zip(outcome.by_seed, plan.by_seed, strict=True)
    gains = [trained_rate(one) / trained_rate(base) - 1.0 for one, base in pairs if trained_rate(base)]
    gain = trained_rate(outcome.figures) / reference - 1.0 if reference else 0.0
    return Extra(what, outcome.figures, gain, half_width(gains), what in PART_OF)


def expected_runs(seeds: int) -> int:
    """Return about how many simulations a plan takes, with so many seeds in its search: two rounds of neighbours."""
    return seeds * (SIMULATED + 2 * 6) + max(FRESH, seeds) * 8


def planned(config: Config, plan: MachinePlan) -> Config:
    """Return another configuration with the plan's split: what a real run is started with."""
    chosen = plan.config
    settings = {
        "rollout.num_envs": chosen.rollout.num_envs,
        "rollout.warm_envs": chosen.rollout.warm_envs,
        "rollout.num_workers": chosen.rollout.num_workers,
        "rollout.sync.mode": chosen.rollout.sync.mode,
        "rollout.sync.workers_at_a_time": chosen.rollout.sync.workers_at_a_time,
        "cluster.learner.gpus": chosen.cluster.learner.gpus,
        "cluster.learner.turn_seconds": chosen.cluster.learner.turn_seconds,
        "cluster.hosts.count": chosen.cluster.hosts.count,
        "cluster.hosts.memory_gib": chosen.cluster.hosts.memory_gib,
        "cluster.hosts.cores": chosen.cluster.hosts.cores,
        "cluster.hosts.slow_count": chosen.cluster.hosts.slow_count,
    }
    return changed(config, settings)


def trained_rate(figures: Mapping[str, Any]) -> float:
    """Return the trained turns a minute, from update to update where there are two."""
    return float(figures.get("steady_turns_per_minute") or figures["trained_turns_per_minute"])


def _counts(gpus: int) -> list[int]:
    """Return numbers of rollout GPUs to look at: all of a few, of many about twenty."""
    step = max(1, gpus // 20)
    return sorted({*range(1, gpus, step), gpus - 1})
