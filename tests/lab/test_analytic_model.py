"""The closed form with queues, beside what is simulated where nothing but desktops and engines limits."""

from __future__ import annotations

import pytest

from dartsim.config import load
from dartsim.lab.analytic_model import checks, predict
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation

FREE = "curation.admission.ready_batches=none"


def found(workload, *overrides, preset="dartsim", hours=1.0):
    own = [FREE, f"run.hours={hours}", "recorder.max_segments=0", *overrides]
    return prepare(load(preset_name=preset, workload_name=workload, overrides=own))


@pytest.mark.parametrize("workload", ["laptop", "dart", "osworld", "skewed-hosts"])
def test_generated_turns_are_predicted(workload):
    """Few desktops at one engine that is nearly always busy, many at engines that seldom are, and a slow host."""
    run = found(workload)
    simulated = run_simulation(run).figures["generated_turns_per_minute"]
    assert predict(run).generated_turns_per_minute == pytest.approx(simulated, rel=0.07)


def test_an_engine_that_answers_others_too_takes_longer_for_each():
    rates = [
        predict(found("laptop", f"rollout.num_workers={number}")).generated_turns_per_minute for number in (1, 2, 4)
    ]
    assert rates == sorted(rates)
    assert rates[0] < 0.95 * rates[2]


def test_spare_desktops_do_not_make_boots_free():
    """A tenth of the desktops as spares hides boots from attempts, but somebody boots all the same."""
    without, spared, many = (
        predict(found("osworld", f"rollout.num_envs={64 - spares}", f"rollout.warm_envs={spares}"))
        for spares in (0, 2, 16)
    )
    assert spared.generated_turns_per_minute == pytest.approx(without.generated_turns_per_minute, rel=0.03)
    assert many.bounds["desktops"] <= without.bounds["desktops"] * (1 + 1e-9)


@pytest.mark.parametrize("mode", ["snapshot", "fork"])
def test_desktops_that_return_to_saved_states_are_predicted(mode):
    run = found("dart", f"desktop.revert={mode}", "rollout.warm_envs=0")
    booted, simulated = predict(found("dart")), run_simulation(run).figures
    assert predict(run).generated_turns_per_minute == pytest.approx(simulated["generated_turns_per_minute"], rel=0.07)
    assert predict(run).generated_turns_per_minute > 1.05 * booted.generated_turns_per_minute
    assert not any(check.alarm for check in checks(run, simulated) if "around" in check.figure)
