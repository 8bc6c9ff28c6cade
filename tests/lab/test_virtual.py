"""The loop closed without noise: a run of a known cluster, its timings, their profile, and the figures of its twin."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dartsim.config import load
from dartsim.config.load import from_tree
from dartsim.config.packaged import preset_names
from dartsim.config.settings import merge
from dartsim.fuzz.space import config_of, long_case
from dartsim.lab.measure import measure
from dartsim.lab.virtual import compare, compared_figures, modeled_twin, twin
from dartsim.observe.timings import TIMINGS, TimedDesktops, TimedLearner, TimedWorker, Timings, read_timings
from dartsim.run import sim_cluster
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.engine import DECODING, WAITING
from dartsim.sim.measured_engines import BatchEngine

SIX = (
    "trajectories_per_minute",
    "trained_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "staleness_mean",
    "minutes_per_version",
)

CLUSTER = {
    "hosts": {"count": 1, "cores": 1024.0, "memory_gib": 1024.0, "concurrent_starts": 64},
    "env": {
        "profile": "desktop-small",
        "latency": {
            "start": 0.0,
            "boot": {"kind": "gamma", "mean_seconds": 3.0, "k": 9.0},
            "setup": {"kind": "gamma", "mean_seconds": 2.0, "k": 9.0},
            "step": {"kind": "gamma", "mean_seconds": 1.5, "k": 16.0},
            "evaluate": 0.5,
            "teardown": 0.5,
        },
    },
    "learner": {"fixed_seconds": 15.0, "kilotoken_seconds": 0.045},
}
BUSY = {"learner": {"fixed_seconds": 30.0, "kilotoken_seconds": 0.09}}
ENGINE = {"batch_seconds": 0.8, "request_seconds": 0.1, "reload_seconds": 4.0, "overhead_seconds": 0.0}
SPREAD = {"kind": "gamma", "mean_seconds": 1.0, "k": 16.0}
REAL = {"desktops": "desktop", "learner": "local"}
TASKS = {"source": "desktop", "desktop": "panel", "count": 256}
ROLLOUT = {"num_envs": 12, "num_workers": 2, "max_turns": 8, "warm_envs": 0}
OUTCOMES = {"mean_success": 0.4, "success_turns_mean": 4.0, "failure_turns_mean": 6.0}
SPREADS = {"success_turns_sd": 2.0, "failure_turns_sd": 2.0, "task_length_sd": 0.1}


def configured(tree):
    return from_tree(merge(load("desktop").model_dump(), tree))


def both(model, cluster, workers, hours, seed=4):
    """Return a run's configuration as it is, virtual, and as if it had been real."""
    engine = {**ENGINE, "model": model, "batch_spread": SPREAD}
    shared = {
        "run": {"hours": hours, "seed": seed},
        "rollout": ROLLOUT,
        "cluster": {**CLUSTER, **cluster, "engine": engine},
        "surrogate": {**OUTCOMES, **SPREADS},
    }
    virtual = {
        "backend": {"desktops": "sim", "workers": "sim", "learner": "sim"},
        "tasks": {"source": "generated", "count": 256},
        "policy": {"kind": "surrogate"},
    }
    real = {**shared, "backend": {**REAL, "workers": workers}, "tasks": TASKS}
    return configured({**shared, **virtual}), configured(real)


def timed(config, path, monkeypatch):
    """Run a virtual configuration, and write its timings as a run by the clock does."""
    made = {name: getattr(sim_cluster, name) for name in ("provider", "workers", "learner")}

    with Timings.open(path) as timings:

        def learner(prepared, *given):
            return TimedLearner(made["learner"](prepared, *given), timings, prepared.update_tokens.of)

        def workers(*given, **options):
            engines = made["workers"](*given, **options)
            for number, engine in enumerate(engines):
                if isinstance(engine.engine, TimedBatches):
                    engine.engine.report = partial(timings.worker, number, "batch")
            return [TimedPut(number, engine, timings) for number, engine in enumerate(engines)]

        with monkeypatch.context() as patch:
            patch.setattr(sim_cluster, "provider", lambda *given: TimedDesktops(made["provider"](*given), timings))
            patch.setattr(sim_cluster, "learner", learner)
            patch.setattr(sim_cluster, "workers", workers)
            patch.setattr(sim_cluster, "BatchEngine", TimedBatches)
            return run_prepared(prepare(config), instruments=[timings]).figures


class TimedBatches(BatchEngine):
    """Reports the time and the size of each batch when it ends; a batch draws its factor when it begins."""

    def __init__(self, env, *, factor, **options):
        super().__init__(env, factor=lambda: self.begun(factor()), **options)
        self.jobs = []

    def submit(self, *given, **options):
        self.jobs.append(super().submit(*given, **options))
        return self.jobs[-1]

    def begun(self, factor):
        size = sum(job.state == DECODING for job in self.jobs)
        self.jobs = [job for job in self.jobs if job.state == WAITING]
        seconds = (self.batch_seconds + self.request_seconds * size) * factor
        self.env.call_in(seconds, self.report, seconds, 0.0, size)
        return factor


class TimedPut(TimedWorker):
    """A worker in this process, which notes apart how long it takes to put weights in."""

    @property
    def engine(self):
        return self._inner.engine

    async def load(self, weights, mode):
        still = self._inner.engine.seconds_until_still
        begun = asyncio.get_running_loop().time()
        await super().load(weights, mode)
        seconds = asyncio.get_running_loop().time() - begun - still
        self._timings.worker(self._index, "put", seconds, 0.0, 0)


def errors_of(tmp_path, monkeypatch, model, workers, cluster, hours):
    """Return the relative errors of a twin, and how many updates its run had."""
    virtual, real = both(model, cluster, workers, hours)
    figures = timed(virtual, tmp_path, monkeypatch)
    found = twin(real, measure(real, read_timings(tmp_path)), figures, tmp_path / TIMINGS)
    assert found.backend.virtual
    predicted = compared_figures(run_prepared(prepare(found)).figures)
    errors = compare(compared_figures(figures), predicted)["relative_error"]
    return {name: errors[name] for name in SIX}, figures["total_updates"]


@pytest.mark.parametrize(
    ("model", "workers", "cluster"), [("batch", "local", {}), ("shared", "vllm", BUSY)], ids=["local", "server"]
)
def test_a_run_of_a_known_cluster_is_predicted_from_its_own_timings(tmp_path, monkeypatch, model, workers, cluster):
    errors, num_updates = errors_of(tmp_path, monkeypatch, model, workers, cluster, hours=1.0)
    assert num_updates >= 15
    assert max(map(abs, errors.values())) < 0.05, errors


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_twin_and_can_be_fuzzed(preset):
    assert modeled_twin(load(preset)).backend.modeled
    assert config_of(long_case(preset, 0, hours=6)).backend.modeled


def test_virtual_machines_that_fork_are_modeled_as_such():
    kept = ("desktop.revert=fork", "desktop.variant=vm", "rollout.warm_envs=0")
    machines = modeled_twin(load("desktop", overrides=kept))
    assert machines.backend.desktop_backend.saves_states(machines)


def test_a_negligible_figure_has_no_relative_error():
    errors = compare({"a": 7e-4, "b": 7e-4, "c": None}, {"a": 2e-4, "b": 2e-3, "c": 1.0})["relative_error"]
    assert errors == {"a": None, "b": pytest.approx(2e-3 / 7e-4 - 1.0), "c": None}
