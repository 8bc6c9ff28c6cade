"""``Study``: Optuna proposes settings, simulations evaluate them, and a database stores the trials.

Trials come in batches of a fixed size. All settings of a batch are proposed before any is simulated, each by a sampler
seeded with the study's seed and the trial's number, and a trial is compared only with those of earlier batches. So a
study has the same trials on one core and on a hundred, interrupted or not.

States of a trial: proposed > finished, failed (a run trained nothing), given up at a rung (its figure was below the
median of earlier trials), or refused (an invalid or too expensive configuration; nothing is simulated).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from dartsim.core.errors import ConfigError, DartsimError
from dartsim.core.install import install_command
from dartsim.lab.jobs import Job, Outcome, Rung, run_job
from dartsim.lab.space import Range, setting_of
from dartsim.lab.study_spec import StudySpec, difference
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import as_virtual, changed
from dartsim.run.prepare import prepare

if TYPE_CHECKING:
    import optuna

NAME = "dartsim"
RUNG_SHARES = (0.25, 0.5)
"""Shares of the simulated hours at which a trial is compared with earlier ones."""
TOO_FEW_UPDATES = "fewer than two updates after the warm-up of its simulated hours; raise --hours"
"""Why a run that trained something has no value for an objective."""
FEWEST = 8
"""Earlier trials that a rung needs before it stops any."""


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


def require_optuna() -> None:
    """Load Optuna.

    Raises:
        ConfigError: If it is not installed; names the extra.
    """
    try:
        import optuna
    except ImportError:
        raise ConfigError(f"tuning needs Optuna, which is not installed: {install_command('lab')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


class Study:
    """A new or resumed study in a database.

    Raises:
        ConfigError: If Optuna is missing, or the database is unusable or contains a study of another spec.
    """

    def __init__(self, spec: StudySpec, database: Path) -> None:
        require_optuna()
        self.spec = spec
        self._virtual = as_virtual(spec.base)
        self._single = len(spec.objectives) == 1
        self._study = self._open(database)

    def _open(self, database: Path) -> optuna.Study:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError

        directions = [objective.direction for objective in self.spec.objectives]
        try:
            database.parent.mkdir(parents=True, exist_ok=True)
            storage = _storage(database)
            known = NAME in optuna.get_all_study_names(storage)
            if known:
                self._check_same(optuna.load_study(study_name=NAME, storage=storage), database)
            study = optuna.create_study(
                storage=storage, study_name=NAME, load_if_exists=True, directions=directions, sampler=self._sampler(0)
            )
        except (OSError, SQLAlchemyError) as error:
            raise ConfigError(f"{database} cannot be used as a study's database: {error}") from None
        if not known:
            for name, text in self.spec.as_text().items():
                study.set_user_attr(name, text)
            study.enqueue_trial(self._base_point())
        return study

    def _check_same(self, study: optuna.Study, database: Path) -> None:
        for name, text in self.spec.as_text().items():
            old = study.user_attrs.get(name)
            if old != text:
                raise ConfigError(
                    f"{database} contains another study ({difference(name, old, text)}); name another folder with "
                    "--out, or use the same settings"
                )

    def _base_point(self) -> dict[str, Any]:
        """Return the first trial: the base's own settings, as far as they are in the space."""
        point: dict[str, Any] = {}
        for dimension in self.spec.space:
            value = setting_of(self.spec.base, dimension.key)
            if isinstance(dimension, Range):
                inside = isinstance(value, int | float) and dimension.low <= value <= dimension.high
                on_step = dimension.step is None or not inside or (value - dimension.low) % dimension.step == 0
                if inside and on_step and not isinstance(value, bool):
                    point[dimension.key] = value if dimension.whole else float(value)
            elif value in dimension.values:
                point[dimension.key] = value
        return point

    def run(
        self,
        budget: int,
        executor: Executor,
        *,
        on_trial: Callable[[Trial], None] | None = None,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Simulate until the study has ``budget`` trials, earlier and refused ones included.

        Raises:
            DartsimError: If a simulation failed.
        """
        on_trial = on_trial or (lambda trial: None)
        for first in range(0, budget, self.spec.batch):
            numbers = range(first, min(first + self.spec.batch, budget))
            jobs: dict[int, Job] = {}
            with undisturbed():
                for number, trial in self._proposed(numbers):
                    job = self._job(number, trial, first)
                    if job is not None:
                        jobs[number] = job
                    else:
                        on_trial(self._trial(number))
            order = sorted(jobs)
            for index, outcome in executor.run(run_job, [jobs[number] for number in order]):
                with undisturbed():
                    self._record(order[index], outcome)
                    on_trial(self._trial(order[index]))

    def _proposed(self, numbers: range) -> list[tuple[int, optuna.Trial]]:
        """Return the unfinished trials of a batch, all proposed before the first one runs."""
        from optuna.samplers import RandomSampler
        from optuna.trial import Trial as OptunaTrial
        from optuna.trial import TrialState

        known = {trial.number: trial for trial in self._study.get_trials(deepcopy=False)}
        proposed: list[tuple[int, optuna.Trial]] = []
        for number in numbers:
            old = known.get(number)
            if old is None or old.state is TrialState.WAITING:
                self._study.sampler = self._sampler(number)
                with _quiet():
                    trial = self._study.ask()
                    self._propose(trial)
                proposed.append((number, trial))
            elif old.state is TrialState.RUNNING:  # interrupted: its settings are known
                self._study.sampler = RandomSampler(seed=0)
                trial = OptunaTrial(self._study, old._trial_id)
                self._propose(trial)
                proposed.append((number, trial))
        self._trials = dict(proposed)
        return proposed

    def _propose(self, trial: optuna.Trial) -> None:
        for dimension in self.spec.space:
            if not isinstance(dimension, Range):
                trial.suggest_categorical(dimension.key, dimension.values)
            elif dimension.whole:
                low, high = int(dimension.low), int(dimension.high)
                trial.suggest_int(dimension.key, low, high, step=int(dimension.step or 1), log=dimension.log)
            else:
                trial.suggest_float(
                    dimension.key, dimension.low, dimension.high, step=dimension.step, log=dimension.log
                )

    def _job(self, number: int, trial: optuna.Trial, first: int) -> Job | None:
        """Return the job of a trial; None if it is refused, which is recorded."""
        spec = self.spec
        try:
            changed(spec.base, trial.params)
            config = changed(self._virtual, trial.params)
            prepare(config)
        except ConfigError as error:
            self._refuse(number, str(error))
            return None
        cost = spec.prices.per_hour(config)
        if spec.max_cost is not None and cost > spec.max_cost:
            self._refuse(number, f"costs {cost:g} an hour, more than {spec.max_cost:g}")
            return None
        objective = spec.objectives[0]
        return Job(
            name=f"trial {number}",
            config=config,
            seeds=spec.seeds,
            prices=spec.prices,
            figure=objective.figure,
            sign=objective.sign,
            rungs=self._rungs(first, config.run.hours) if spec.prune and self._single else (),
        )

    def _rungs(self, first: int, hours: float) -> tuple[Rung, ...]:
        """Return the rungs of a trial: the medians of finished trials before ``first``."""
        rungs = []
        for share in RUNG_SHARES:
            at = share * hours
            step = round(at * 3600.0)
            seen = [
                self.spec.objectives[0].sign * trial.intermediate_values[step]
                for trial in self._study.get_trials(deepcopy=False)
                if trial.number < first and trial.values is not None and step in trial.intermediate_values
            ]
            rungs.append(Rung(at, median(seen) if len(seen) >= FEWEST else None))
        return tuple(rungs)

    def _refuse(self, number: int, reason: str) -> None:
        from optuna.trial import TrialState

        trial = self._trials[number]
        trial.set_user_attr("refused", reason)
        trial.set_constraint("refused", 1.0)
        self._study.tell(trial, state=TrialState.PRUNED if self._single else TrialState.FAIL)

    def _record(self, number: int, outcome: Outcome) -> None:
        from optuna.trial import TrialState

        if outcome.error is not None:
            raise DartsimError(f"trial {number} ({dict(self._trials[number].params)}): {outcome.error}")
        trial, spec = self._trials[number], self.spec
        reported = self._study.get_trials(deepcopy=False)[number].intermediate_values
        for hours, value in outcome.seen:
            step = round(hours * 3600.0)
            if step not in reported:  # unless an interrupted part of the study has reported it
                trial.report(spec.objectives[0].sign * value, step=step)
        values = [objective.of(outcome.figures) for objective in spec.objectives]
        if outcome.given_up or any(value is None for value in values):
            if not outcome.given_up:
                trial.set_user_attr("failed", outcome.figures["failure"] or TOO_FEW_UPDATES)
            self._study.tell(trial, state=TrialState.PRUNED if self._single else TrialState.FAIL)
            return
        plain = {
            name: x
            for name, x in outcome.figures.items()
            if x is None or isinstance(x, int | float | str) or name == "steady"
        }
        trial.set_user_attr("figures", plain)
        if spec.max_staleness is not None:
            trial.set_constraint("staleness", outcome.figures["staleness_max"] - spec.max_staleness)
        if spec.max_cost is not None:
            trial.set_constraint("cost", outcome.figures["cost_per_hour"] - spec.max_cost)
        self._study.tell(trial, [float(value) for value in values if value is not None])

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        from optuna import samplers

        seed = int(np.random.SeedSequence([self.spec.seed, number]).generate_state(1)[0])
        with _quiet():
            if self.spec.sampler == "random":
                return samplers.RandomSampler(seed=seed)
            if self.spec.sampler == "qmc":
                first = samplers.RandomSampler(seed=seed)
                return samplers.QMCSampler(
                    scramble=True, seed=self.spec.seed, independent_sampler=first, warn_asynchronous_seeding=False
                )
            if self.spec.sampler == "nsga2":
                return samplers.NSGAIISampler(population_size=2 * self.spec.batch, seed=seed)
            return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def trials(self) -> list[Trial]:
        ended = (trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished())
        return sorted(map(self._converted, ended), key=lambda trial: trial.number)

    def _trial(self, number: int) -> Trial:
        return self._converted(self._study.get_trials(deepcopy=False)[number])

    def _converted(self, trial: optuna.trial.FrozenTrial) -> Trial:
        from optuna.trial import TrialState

        refused, failed = (str(trial.user_attrs.get(name, "")) for name in ("refused", "failed"))
        finished = trial.state is TrialState.COMPLETE
        return Trial(
            number=trial.number,
            settings=dict(trial.params),
            state="finished" if finished else "refused" if refused else "failed" if failed else "given up",
            values=tuple(trial.values) if finished and trial.values is not None else (),
            figures=trial.user_attrs.get("figures", {}),
            feasible=finished and all(value <= 0.0 for value in trial.constraints.values()),
            reason=refused or failed,
        )

    def best(self) -> Trial | None:
        """Return the best feasible trial by the first objective; None if there is none."""
        sign = self.spec.objectives[0].sign
        feasible = [trial for trial in self.trials() if trial.feasible]
        return max(feasible, key=lambda trial: (sign * trial.values[0], -trial.number), default=None)

    def front(self) -> list[Trial]:
        """Return the Pareto front of the feasible trials, best first."""
        signs = np.array([objective.sign for objective in self.spec.objectives])
        feasible = [trial for trial in self.trials() if trial.feasible]
        kept: list[Trial] = []
        for trial in feasible:
            own = signs * trial.values
            others = [signs * other.values for other in feasible if other.number != trial.number]
            dominated = any(np.all(other >= own) and np.any(other > own) for other in others)
            if not dominated and all(other.values != trial.values for other in kept):
                kept.append(trial)
        return sorted(kept, key=lambda trial: -signs[0] * trial.values[0])

    def importances(self) -> dict[str, float]:
        """Return the importance of each knob for the first objective, by PED-ANOVA; empty with few trials."""
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        if len([trial for trial in self.trials() if trial.values]) < FEWEST:
            return {}
        sign = self.spec.objectives[0].sign
        with _quiet():
            try:
                importances = get_param_importances(
                    self._study,
                    evaluator=PedAnovaImportanceEvaluator(),
                    target=None if self._single else lambda trial: -sign * trial.values[0],  # PED-ANOVA minimizes
                )
            except (RuntimeError, ValueError):  # all values are equal
                return {}
        return {key: round(float(value), 4) for key, value in importances.items()}


def _storage(database: Path) -> optuna.storages.RDBStorage:
    """Return Optuna's storage in a SQLite file that is not flushed after every transaction.

    A trial has some twenty transactions, whose flushes took longer than its simulation. A power cut may lose the newest
    of them, but never corrupts the database.
    """
    import optuna
    from sqlalchemy import event

    storage = optuna.storages.RDBStorage(f"sqlite:///{database}")

    @event.listens_for(storage.engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    storage.engine.dispose()  # earlier connections lack these settings
    return storage


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's warnings about experimental features."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes", UserWarning)
        yield
