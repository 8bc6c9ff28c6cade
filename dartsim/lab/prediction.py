"""Fits a table's unknown parameters to some of its rows by simulation, and predicts the others.

Parameters are positive, and the prior of each is lognormal: with no fitted row at all, predictions come from data
sheets. The fit is the maximum of the posterior, found by Gauss-Newton on the logarithms of parameters and figures.
Slopes come from simulations with a common seed, so that differences come from parameters. An iteration takes a
simulation per parameter and fitted row, and some for the mean over seeds, where a search by Optuna or an approximate
Bayesian sampler takes hundreds; and the Jacobian gives the posterior (Laplace), and with it what the rows determine.

A prediction is the median over simulations a standard deviation of the posterior away, in both directions of each of
its axes, each axis with a seed of its own. Its 90 % interval contains their variance, that of seeds, the spread of a
repetition, and a discrepancy between model and system, which fitted rows that are left out determine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from dartsim.core.errors import ConfigError
from dartsim.lab.least_squares import Evidence, Vector, maximize
from dartsim.lab.published import (
    Measured,
    Row,
    Setup,
    Table,
    figure_reason,
    read_table,
    reason_against,
    setup,
)
from dartsim.lab.published_runs import Figures, simulate
from dartsim.lab.sweep import Executor, InProcess, Report

DISCREPANCY = 0.12
"""Relative standard deviation between model and system, beyond parameters and seeds, that a fit assumes. Eight fitted
figures of published tables, each left out in turn, do not ask for one (``experiments.error_card``)."""
QUANTILE = 1.645
"""Standard deviations on either side of a 90 % interval."""
STEP = 0.2
"""Change of a logarithm for the Jacobian: well above the noise of a simulation."""
FIT_SEEDS = 4
"""Seeds whose mean is fitted: where publications wait for the longest reply, a run of a few updates is off by 10 %."""
ITERATIONS, CLOSE = 4, 0.1
"""Most iterations of the fit, and the change of all logarithms, in prior deviations, that ends it."""
SMALLEST_AXIS = 0.01
"""Standard deviation of the logarithm below which an axis of the posterior is left out."""
DETERMINED, PARTLY = 0.5, 0.8
"""Largest posterior over prior deviation of a parameter that the rows determine, or determine in part."""


@dataclass(frozen=True, slots=True)
class Prior:
    """A lognormal: its median, and the standard deviation of its logarithm."""

    median: float
    sd: float
    meaning: str


PRIORS: Mapping[str, Mapping[str, Prior]] = {
    "run": {
        "engine_efficiency": Prior(0.6, 0.4, "of engines, 1: benchmarks"),
        "update_efficiency": Prior(0.6, 0.4, "of updates, 1: benchmarks"),
        "step_cost": Prior(1.0, 0.8, "of gradient steps and micro-batches besides computing, 1: typical"),
        "call_cost": Prior(1.0, 0.8, "of an update's calls and the handing over of their batches, 1: typical"),
        "sync_cost": Prior(1.0, 0.8, "of weight syncs, 1: typical"),
        "switch_cost": Prior(1.0, 0.8, "of switches between colocated engines and trainer, 1: typical"),
    },
    "update": {
        "update_efficiency": Prior(1.0, 0.3, "of updates, 1: benchmarks"),
        "step_cost": Prior(1.0, 0.8, "of gradient steps and micro-batches besides computing, 1: typical"),
    },
    "sync": {"sync_cost": Prior(1.0, 0.8, "of weight syncs, 1: typical")},
}
"""Unknown parameters by kind of table. Runs are slower than benchmarks of their parts: the fitted rows of the published
tables, and only these, take 1.9 times as long (geometric mean) as at an efficiency of 1, with a deviation of 40 %."""


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation. Picklable."""

    setup: Setup
    parameters: Mapping[str, float]
    seed: int

    @property
    def name(self) -> str:
        return self.setup.name


def run_case(case: Case, report: Report | None = None) -> Figures:
    """Simulate a case; settings of the workload among its parameters replace the row's."""
    own = {name: value for name, value in case.parameters.items() if name in type(case.setup.workload).model_fields}
    if "prompt_tokens" in own:
        own["prompt_tokens"] = max(1, round(own["prompt_tokens"]))
    return simulate(replace(case.setup, workload=case.setup.workload.replace(**own)), case.parameters, case.seed)


@dataclass(kw_only=True)
class Posterior:
    """What is known of the parameters: means and covariance of their logarithms."""

    names: list[str]
    priors: list[Prior]
    mean: Vector
    covariance: Vector
    trace: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    """Errors of the fitted figures if their row alone is left out, where other rows of the cluster are fitted."""

    @property
    def widths(self) -> list[float]:
        """Posterior over prior deviation of each parameter."""
        return [sd / prior.sd for sd, prior in zip(np.sqrt(np.diag(self.covariance)), self.priors, strict=True)]

    def as_json(self) -> list[dict[str, Any]]:
        sds = np.sqrt(np.diag(self.covariance))
        return [
            {
                "name": name,
                "meaning": prior.meaning,
                "prior": prior.median,
                "prior_sd": prior.sd,
                "median": exp(mean),
                "low": exp(mean - QUANTILE * sd),
                "high": exp(mean + QUANTILE * sd),
                "determined": "yes" if width <= DETERMINED else "partly" if width <= PARTLY else "no",
            }
            for name, prior, mean, sd, width in zip(self.names, self.priors, self.mean, sds, self.widths, strict=True)
        ]

    def values(self, logarithms: Vector) -> dict[str, float]:
        return {name: exp(value) for name, value in zip(self.names, logarithms, strict=True)}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted row: its setup, and the figures that count."""

    setup: Setup
    figures: Sequence[Measured]


class Predictor:
    """Fits and predicts one table.

    Args:
        path: Its file.
        fit: Names of the fitted rows in place of the file's; None: the file's.
        executor: Where simulations run.
        known: Predictors by file, of which this one may continue one.
    """

    def __init__(
        self,
        path: Path,
        *,
        fit: Sequence[str] | None = None,
        executor: Executor | None = None,
        known: Mapping[Path, Predictor] | None = None,
    ) -> None:
        self.path = path
        self.table = read_table(path, fit=fit)
        self._executor = executor or InProcess()
        self._known = known or {}
        self.simulations = 0
        self.discrepancy = DISCREPANCY
        self._posterior: Posterior | None = None

    def run(self) -> dict[str, Any]:
        """Return everything as plain values: parameters, rows, ranking, assumptions, and the course of the fit."""
        table = self.table
        if all(reason_against(table, row) for row in table.rows):
            return self._result(None, [entry for row in table.rows for entry in _unsupported(table, row)])
        posterior = self.posterior()
        return self._result(posterior, self._predict(posterior))

    def posterior(self) -> Posterior:
        """Return what the fitted rows say of the parameters, after those of the file that this one continues."""
        if self._posterior is None:
            table = self.table
            rows = [
                Fitted(each, [known for known in figures if not figure_reason(table, row, known)])
                for row in table.rows
                if row.name in table.fit
                for each, figures in self._windows(row)
            ]
            self._posterior = self._fit(rows)
        return self._posterior

    def _windows(self, row: Row) -> list[tuple[Setup, list[Measured]]]:
        """Return a row's setup for each window in which its replies have another length, and the figures there."""
        found = setup(self.table, row, str(self.path))
        groups: dict[float, list[Measured]] = {}
        for known in row.figures or [_step(self.table)]:
            growth = found.workload.growth(known.steps) if len(known.steps) == 2 else 1.0
            groups.setdefault(growth, []).append(known)
        return [(replace(found, growth=growth), figures) for growth, figures in groups.items()]

    def _prior(self) -> Posterior:
        """Return the posterior of the file that this one continues, or the prior of the kind of table."""
        table = self.table
        if table.after is not None:
            place = self.path.parent / table.after
            before = self._known.get(place) or Predictor(place, executor=self._executor)
            if before.table.assumed != table.assumed or before.table.kind != table.kind:
                raise ConfigError(f"{self.path} continues {before.path}: both need the same kind and `assumed`")
            found = before.posterior()
            return replace(found, trace=[], left_out=[])
        priors = dict(PRIORS[table.kind])
        if not any(setup(table, row).switches for row in table.rows if reason_against(table, row) is None):
            priors.pop("switch_cost", None)
        for key, sd in table.assumed.items():
            priors[key] = Prior(float(getattr(table.workload, key)), sd, f"workload.{key}, assumed")
        means = np.log([prior.median for prior in priors.values()])
        covariance = np.diag([prior.sd**2 for prior in priors.values()])
        return Posterior(names=list(priors), priors=list(priors.values()), mean=means, covariance=covariance)

    def _fit(self, rows: Sequence[Fitted]) -> Posterior:
        """Return the posterior given the fitted rows; the prior if there are none."""
        found = self._prior()
        targets = [(number, known) for number, row in enumerate(rows) for known in row.figures]
        if not targets:
            return found
        wanted: Vector = np.log([_published(each) for _, each in targets])
        weights = np.array([1.0 / self._variance(each) for _, each in targets])
        known = Evidence(found.mean, np.linalg.inv(found.covariance), wanted, weights)

        base = wanted

        def evaluate(at: Vector) -> Vector:
            seeds = self._logarithms(rows, targets, found, [at], range(FIT_SEEDS))
            nonlocal base
            values: Vector = seeds.mean(axis=0)
            base = seeds[0]
            found.trace.append({"parameters": found.values(at), "errors": np.expm1(values - wanted).tolist()})
            return values

        def derive(at: Vector, values: Vector) -> Vector:
            points = [at + STEP * unit for unit in np.eye(len(at))]
            return ((self._logarithms(rows, targets, found, points, [0]) - base) / STEP).T

        limits = 1.5 * np.array([prior.sd for prior in found.priors])
        fit = maximize(known, evaluate, derive, limits=limits, attempts=ITERATIONS, close=CLOSE)
        found.mean, found.covariance = fit.at, np.linalg.inv(known.curvature(fit.jacobian))
        for number, row in enumerate(rows):
            own = np.array([place == number for place, _ in targets])
            if all(own) and self.table.after is None:
                continue
            change = known.newton(fit.at, fit.values, fit.jacobian, ~own)
            errors = (wanted - fit.values - fit.jacobian @ change)[own]
            spread = np.linalg.solve(known.curvature(fit.jacobian, ~own), fit.jacobian[own].T)
            found.left_out += [
                {
                    "row": row.setup.name,
                    "figure": each.figure,
                    "error": float(error),
                    "variance": float(variance + each.spread**2),
                }
                for each, error, variance in zip(row.figures, errors, np.diag(fit.jacobian[own] @ spread), strict=True)
            ]
        return found

    def _logarithms(
        self,
        rows: Sequence[Fitted],
        targets: Sequence[tuple[int, Measured]],
        found: Posterior,
        points: Sequence[Vector],
        seeds: Sequence[int],
    ) -> Vector:
        """Return the logarithms of the fitted figures at each point, with each seed."""
        cases = [Case(row.setup, found.values(point), seed) for point in points for seed in seeds for row in rows]
        figures = self._simulate(cases)
        return np.array(
            [
                [log(max(figures[place * len(rows) + number][_name(known)], 1e-3)) for number, known in targets]
                for place in range(len(points) * len(seeds))
            ]
        )

    def _predict(self, posterior: Posterior) -> list[dict[str, Any]]:
        table = self.table
        variances, axes = np.linalg.eigh(posterior.covariance)
        sides = [sd * axis for sd, axis in zip(np.sqrt(variances), axes.T, strict=True) if sd > SMALLEST_AXIS]
        points = [posterior.mean + sign * side for side in sides for sign in (1.0, -1.0)] or [posterior.mean] * 2
        windows = [
            (row, *window) for row in table.rows if reason_against(table, row) is None for window in self._windows(row)
        ]
        cases = [
            Case(found, posterior.values(point), number // 2 + 1)
            for _, found, _ in windows
            for number, point in enumerate(points)
        ]
        simulated = self._simulate(cases)
        for place, (row, *_) in enumerate(windows):
            if row.name == table.relative_to:  # simulated with the same parameters and seeds
                other = simulated[place * len(points) : (place + 1) * len(points)]
                for number, each in enumerate(simulated):
                    each["relative_time"] = each["step_seconds"] / other[number % len(points)]["step_seconds"]
        entries: dict[str, list[dict[str, Any]]] = {row.name: [] for row in table.rows}
        for place, (row, _, figures) in enumerate(windows):
            found = simulated[place * len(points) : (place + 1) * len(points)]
            entries[row.name] += [self._entry(row, known, found) for known in figures]
        return [entry for row in table.rows for entry in entries[row.name] or _unsupported(table, row)]

    def _entry(self, row: Row, known: Measured, found: Sequence[Figures]) -> dict[str, Any]:
        entry = _blank(row, known, fitted=row.name in self.table.fit)
        reason = figure_reason(self.table, row, known)
        if row.figures and reason is not None:
            return {**entry, "reason": reason}
        logs = np.log([max(_in_unit(known, each[_name(known)]), 1e-6) for each in found])
        middle = float(np.median(logs))
        above, below = logs[::2], logs[1::2]
        seeds = np.var((above + below) / 2.0)
        sd = float(np.sqrt(np.sum(((above - below) / 2.0) ** 2) + seeds + self._variance(known)))
        predicted = exp(middle)
        return {
            **entry,
            "supported": True,
            "predicted": predicted,
            "low": exp(middle - QUANTILE * sd),
            "high": exp(middle + QUANTILE * sd),
            "error": predicted / known.value - 1.0 if row.figures else None,
        }

    def _variance(self, known: Measured) -> float:
        """Return the variance of a published figure's logarithm around what a perfect fit predicts."""
        return known.spread**2 + self.discrepancy**2

    def _simulate(self, cases: Sequence[Case]) -> list[Figures]:
        self.simulations += len(cases)
        done = dict(self._executor.run(run_case, cases))
        return [done[number] for number in range(len(cases))]

    def _result(self, posterior: Posterior | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
        table = self.table
        parameters = [] if posterior is None else posterior.as_json()
        figures = sum(entry["fitted"] and entry["supported"] for entry in rows)
        return {
            "id": table.id,
            "title": table.title,
            "source": table.source,
            "file_sha256": sha256(self.path.read_bytes()).hexdigest(),
            "rows": rows,
            "parameters": parameters,
            "identified": bool(parameters)
            and len(parameters) <= figures
            and all(each["determined"] != "no" for each in parameters),
            **ranking(table.rank_by, rows),
            "assumptions": table.assumptions,
            "unsupported": table.unsupported,
            "fit": [] if posterior is None else posterior.trace,
            "left_out": [] if posterior is None else posterior.left_out,
            "simulations": self.simulations,
        }


def ranking(figure: str | None, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return Kendall's tau between published and predicted order, and whether the best row is named."""
    ranked = [row for row in rows if row["figure"] == figure and row["supported"] and row["published"] is not None]
    if len(ranked) < 2 or all(row["fitted"] for row in ranked):
        return {"tau": None, "best": None, "best_named": None}
    pairs = [(a, b) for number, a in enumerate(ranked) for b in ranked[number + 1 :]]
    agree = sum(float(np.sign((a["published"] - b["published"]) * (a["predicted"] - b["predicted"]))) for a, b in pairs)
    best = min(ranked, key=lambda row: float(row["published"]))["row"]
    named = min(ranked, key=lambda row: float(row["predicted"]))["row"]
    return {"tau": agree / len(pairs), "best": best, "best_named": named == best}


def _published(known: Measured) -> float:
    """Return a figure's value in the unit of the simulated one: seconds per step."""
    if known.figure == "total_hours":
        return known.value * 3600.0 / (known.steps[1] - known.steps[0])
    if known.figure == "total_seconds":
        return known.value / (known.steps[1] - known.steps[0])
    return known.value


def _in_unit(known: Measured, seconds: float) -> float:
    """Return seconds per step in the unit of a figure."""
    return seconds * known.value / _published(known)


def _name(known: Measured) -> str:
    """Return the simulated figure that a published one is computed from."""
    return "step_seconds" if known.figure.startswith("total_") else known.figure


def _step(table: Table) -> Measured:
    """Return what is predicted of a row without figures."""
    return Measured(figure="sync_seconds" if table.kind == "sync" else "step_seconds", value=1.0)


def _blank(row: Row, known: Measured, *, fitted: bool) -> dict[str, Any]:
    return {
        "row": row.name,
        "figure": known.figure,
        "steps": known.steps,
        "fitted": fitted,
        "published": known.value if row.figures else None,
        "predicted": None,
        "low": None,
        "high": None,
        "error": None,
        "supported": False,
        "reason": None,
    }


def _unsupported(table: Table, row: Row) -> list[dict[str, Any]]:
    reason = reason_against(table, row)
    return [{**_blank(row, known, fitted=False), "reason": reason} for known in row.figures or [_step(table)]]
