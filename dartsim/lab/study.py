"""``Study``: Optuna proposes settings, simulations evaluate them, and a journal stores the trials.

Trials come in batches: all settings of a batch are proposed before any is simulated, and Optuna gets its results in
order, so a study with the same seed and batch size repeats its trials. No point is tried twice.

A trial is stopped once it is worse than the best one of earlier batches, on the same seeds (``dartsim.lab.jobs``). The
best one of m finished trials is partly the luckiest, so the test's error is ``ERROR`` / m: a study stops the best
settings with a probability of at most ``ERROR``, whichever trials come before them (Bonferroni's inequality).

States of a trial: proposed, then finished, failed (a run trained nothing), stopped early (pruned), or refused (the
configuration is invalid or too expensive; nothing is simulated).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.gate import ERROR, Comparison
from dartsim.lab.jobs import Figures, Job, Outcome, Prices, StudyObjective, run_job
from dartsim.lab.space import Space, base_point, points
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import as_virtual, with_settings
from dartsim.observe.page.runs import differences
from dartsim.run.prepare import prepare

optuna.logging.set_verbosity(optuna.logging.WARNING)

NAME = "dartsim"
FEWEST = 8
"""Finished trials required before importances are estimated."""
MANY_POINTS = 10_000
"""In a larger space, a repeated proposal is replaced by a new proposal, not by one of the remaining points."""
WORSE = f"worse than the best trial so far; the probability to stop the best of all is at most {100.0 * ERROR:g} %"
"""The reason why a trial was stopped early."""
TOO_FEW_UPDATES = "fewer than two updates after the warm-up of its simulated hours; raise --hours"
"""The reason why a run that trained something has no value for an objective."""


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """What a study searches for.

    Attributes:
        base: The configuration to tune; all of its components are modeled.
        space: The settings that may change.
        objectives: The most important one first.
        seeds: Number of simulations of every trial, with seeds from 0.
        seed: Seed of the proposals.
        prune: Whether trials that are worse than the best one are stopped; only with one objective.
        max_staleness: Largest allowed staleness, versions; None for no bound.
        max_cost: Largest allowed cost per hour; None for no bound.
        prices: Prices of the machines.
    """

    base: Config
    space: Space
    objectives: tuple[StudyObjective, ...]
    seeds: int = 1
    seed: int = 0
    prune: bool = True
    max_staleness: float | None = None
    max_cost: float | None = None
    prices: Prices = field(default_factory=Prices)

    def settings(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a point of the space."""
        return dict(point)

    def config(self, point: Mapping[str, Any]) -> Config:
        """Return the virtual configuration of a point of the space."""
        return as_virtual(with_settings(self.base, self.settings(point)))

    def own_point(self) -> dict[str, Any]:
        """Return the base's own settings where the space contains them: the point of the first trial."""
        return base_point(self.base, self.space)

    def as_json(self) -> dict[str, Any]:
        """Return what must not change when a study is resumed."""
        others = {item.name: str(getattr(self, item.name)) for item in fields(self) if item.name != "base"}
        return {**self.base.model_dump(mode="json"), "study": others}


@dataclass(frozen=True, slots=True)
class Trial:
    """One ended trial."""

    number: int
    settings: Mapping[str, Any]
    state: str
    values: tuple[float, ...]
    figures: Mapping[str, Any]
    feasible: bool
    reason: str = ""


class Study:
    """A new or resumed study.

    Args:
        spec: The space, the objectives and the limits.
        journal: Its file; None keeps it in memory.

    Raises:
        ConfigError: If a component is real, or the journal is unusable or contains a study of another spec.
    """

    def __init__(self, spec: StudySpec, journal: Path | None = None) -> None:
        as_virtual(spec.base)
        self.spec = spec
        self._single = len(spec.objectives) == 1
        try:
            if journal is not None:
                journal.parent.mkdir(parents=True, exist_ok=True)
            self._study = optuna.create_study(
                storage=None if journal is None else JournalStorage(JournalFileBackend(str(journal))),
                study_name=NAME,
                load_if_exists=True,
                directions=[objective.direction for objective in spec.objectives],
            )
        except (OSError, ValueError) as error:
            raise ConfigError(f"{journal} cannot be used as a study's journal: {error}") from None
        known = self._study.user_attrs.get("spec")
        if known is None:
            self._study.set_user_attr("spec", spec.as_json())
            self._study.enqueue_trial(spec.own_point())
        elif changed := differences([known, spec.as_json()]):
            key, (then, now) = changed[0]
            raise ConfigError(
                f"{journal} contains another study ({key}: {then} then, {now} now); name another folder with --out, or "
                "use the same settings"
            )
        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):  # left by an interrupted batch
            self._study.tell(trial.number, state=TrialState.FAIL)
            self._study.enqueue_trial(trial.params)

    def run(
        self,
        budget: int,
        executor: Executor,
        *,
        batch: int = 8,
        on_trial: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        """Simulate until the study has ``budget`` trials, including earlier and refused ones, or no point is left.

        Raises:
            DartsimError: If a simulation failed.
        """
        rng = np.random.default_rng([self.spec.seed, len(self._study.trials)])
        with _quiet():
            self._study.sampler = optuna.samplers.TPESampler(
                seed=int(rng.integers(2**31)), multivariate=True, constant_liar=True
            )
        while (left := budget - len(self.trials())) > 0:
            jobs: list[tuple[optuna.Trial, Job]] = []
            proposed = 0
            compared = self._compared()
            for _ in range(min(batch, left)):
                trial = self._ask(rng)
                if trial is None:
                    break
                proposed += 1
                if job := self._job(trial, compared):
                    jobs.append((trial, job))
                else:
                    on_trial(self._ended(trial))
            if not proposed:
                return
            for number, outcome in executor.run(run_job, [job for _, job in jobs]):
                self._tell(jobs[number][0], outcome)
                on_trial(self._ended(jobs[number][0]))

    def _ask(self, rng: np.random.Generator) -> optuna.Trial | None:
        """Return a trial of an untried point; None if all have been tried."""
        while True:
            with _quiet():
                trial = self._study.ask(dict(self.spec.space))
            states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
            others = self._study.get_trials(deepcopy=False, states=states)
            tried = [other.params for other in others if other.number != trial.number]
            if trial.params not in tried:
                return trial
            self._study.tell(trial, state=TrialState.FAIL)
            every = points(self.spec.space)
            few = [] if every is None else list(itertools.islice(every, MANY_POINTS + 1))
            if 0 < len(few) <= MANY_POINTS:
                left = [point for point in few if point not in tried]
                if not left:
                    return None
                self._study.enqueue_trial(left[rng.integers(len(left))])

    def _compared(self) -> dict[str, Any]:
        """Return the fields of jobs that compare them with the best finished trial; none if nothing is stopped."""
        if not (self.spec.prune and self._single):
            return {}
        finished, best = [trial for trial in self.trials() if trial.feasible], self.best()
        if best is None:
            return {"best": {}}
        seen = self._study.get_trials(deepcopy=False)[best.number].intermediate_values
        sign = self.spec.objectives[0].sign
        return {"best": {step: sign * value for step, value in seen.items()}, "error": ERROR / len(finished)}

    def _job(self, trial: optuna.Trial, compared: Mapping[str, Any]) -> Job | None:
        """Return the job of a trial; None if it is refused, which is recorded."""
        spec = self.spec
        try:
            config = spec.config(trial.params)
            prepare(config)
        except ConfigError as error:
            self._refuse(trial, str(error))
            return None
        cost = spec.prices.per_hour(config)
        if spec.max_cost is not None and cost > spec.max_cost:
            self._refuse(trial, f"costs {cost:g} an hour, more than {spec.max_cost:g}")
            return None
        return Job(
            name=f"trial {trial.number}",
            config=config,
            seeds=range(spec.seeds),
            prices=spec.prices,
            objective=spec.objectives[0],
            **compared,
        )

    def _refuse(self, trial: optuna.Trial, reason: str) -> None:
        trial.set_user_attr("refused", reason)
        trial.set_constraint("refused", 1.0)
        self._study.tell(trial, state=TrialState.PRUNED)

    def _tell(self, trial: optuna.Trial, outcome: Outcome) -> None:
        """Store the outcome of a trial."""
        for step, value in outcome.seen.items() if self._single else ():
            trial.report(self.spec.objectives[0].sign * value, step)
        if not outcome.by_seed:
            self._study.tell(trial, state=TrialState.PRUNED)
            return
        found, spec = outcome.figures, self.spec
        values = [found[objective.figure] for objective in spec.objectives]
        if found["failure"] or None in values:
            trial.set_user_attr("failed", found["failure"] or TOO_FEW_UPDATES)
            self._study.tell(trial, state=TrialState.PRUNED)
            return
        plain = {name: x for name, x in found.items() if isinstance(x, int | float | str) or name == "steady"}
        trial.set_user_attr("figures", plain)
        if spec.max_staleness is not None:
            trial.set_constraint("staleness", found["staleness_max"] - spec.max_staleness)
        self._study.tell(trial, values)

    def trials(self) -> list[Trial]:
        """Return the ended trials, without repeated proposals."""
        ended = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        return list(map(_to_trial, ended))

    def _ended(self, trial: optuna.Trial) -> Trial:
        return _to_trial(self._study.get_trials(deepcopy=False)[trial.number])

    def best(self) -> Trial | None:
        """Return the best feasible trial by the first objective; None if there is none."""
        return next(iter(self.front()), None)

    def front(self) -> list[Trial]:
        """Return the Pareto front of the feasible trials, the best by the first objective first."""
        sign = self.spec.objectives[0].sign
        return sorted(
            map(_to_trial, self._study.best_trials), key=lambda trial: (-sign * trial.values[0], trial.number)
        )

    def importances(self) -> dict[str, float]:
        """Return the importance of each setting for the first objective, by PED-ANOVA; empty with few trials."""
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        if sum(bool(trial.values) for trial in self.trials()) < FEWEST:
            return {}
        sign = self.spec.objectives[0].sign
        with _quiet():
            try:
                found = get_param_importances(
                    self._study,
                    evaluator=PedAnovaImportanceEvaluator(),
                    target=None if self._single else lambda trial: -sign * trial.values[0],  # PED-ANOVA minimizes
                )
            except (RuntimeError, ValueError):  # all values are equal
                return {}
        return {key: round(float(value), 4) for key, value in found.items()}


def fresh_comparison(
    spec: StudySpec, points: Mapping[str, Mapping[str, Any]], seeds: int, executor: Executor
) -> Comparison:
    """Simulate named points of a space with seeds that no trial has used, and compare them.

    The best of many trials is partly the luckiest; fresh seeds show the real effect.

    Raises:
        DartsimError: If a simulation failed.
    """
    numbers = tuple(range(spec.seeds, spec.seeds + seeds))
    jobs = [
        Job(name=name, config=spec.config(point), seeds=[seed], prices=spec.prices, objective=spec.objectives[0])
        for name, point in points.items()
        for seed in numbers
    ]
    rows: dict[int, Figures] = {}
    for number, outcome in executor.run(run_job, jobs):
        rows[number] = outcome.by_seed[0]
    ordered = iter([rows[number] for number in range(len(jobs))])
    return Comparison(tuple(points), numbers, {name: [next(ordered) for _ in numbers] for name in points}, {})


def _to_trial(trial: FrozenTrial) -> Trial:
    refused, failed = (str(trial.user_attrs.get(name, "")) for name in ("refused", "failed"))
    finished = trial.state is TrialState.COMPLETE
    stopped = not (finished or refused or failed)
    return Trial(
        number=trial.number,
        settings=dict(trial.params),
        state="stopped early" if stopped else "finished" if finished else "refused" if refused else "failed",
        values=tuple(trial.values) if finished and trial.values is not None else (),
        figures=trial.user_attrs.get("figures", {}),
        feasible=finished and all(value <= 0.0 for value in trial.constraints.values()),
        reason=WORSE if stopped else refused or failed,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's warnings about experimental features."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes", UserWarning)
        yield
