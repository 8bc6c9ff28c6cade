"""The public Python API, as its users call it."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from pydantic import Field

import dartsim
from dartsim.core.compiled import is_compiled
from dartsim.core.errors import ConfigError

SHORT = {"run.hours": 0.5}


@dartsim.register("router", "two_choices")
class TwoChoices(dartsim.Router):
    """The less loaded of the session's last worker and the least loaded one, if it is much less loaded."""

    class Parameters(dartsim.ComponentSection):
        """When it moves."""

        gap: int = Field(2, ge=1, description="Live requests.")

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.gap = (parameters or self.Parameters()).gap

    def pick(self, last: Any, group: int = 0) -> Any:
        least = self.least_loaded()
        stays = last is not None and last.routable and last.in_flight < least.in_flight + self.gap
        return last if stays else least


def test_every_public_name_is_there_and_nothing_else():
    for name in dartsim.__all__:
        assert getattr(dartsim, name).__module__.startswith("dartsim."), name
    assert dir(dartsim) == sorted(dartsim.__all__)
    assert set(dartsim.__all__) <= set(re.findall(r"\w+", dartsim.__doc__)), "the docstring lists them"
    with pytest.raises(AttributeError, match="simulates"):
        _ = dartsim.simulates


def test_a_simulation_is_the_same_twice_and_says_what_it_measured(tmp_path):
    result = dartsim.simulate("dart", on="laptop", overrides=SHORT, seed=3)
    again = dartsim.simulate("dart", on="laptop", overrides=SHORT, seed=3)
    assert result.event_hash == again.event_hash
    assert result.generated_turns_per_minute == result.summary["generated_turns_per_minute"] > 0.0
    assert 0.0 < result.env_utilization <= 1.0
    assert "config" not in repr(result)


def test_a_coroutine_runs_in_virtual_time_with_the_same_draws_each_time():
    async def arrivals() -> tuple[list[float], float]:
        loop = asyncio.get_running_loop()
        gaps = list(loop.rng("arrivals").exponential(3600.0, size=3))
        for gap in gaps:
            await asyncio.sleep(gap)
        return gaps, loop.time()

    gaps, end = dartsim.run_virtual(arrivals(), seed=1)
    assert end == sum(gaps)
    assert dartsim.run_virtual(arrivals(), seed=1) == (gaps, end)
    assert dartsim.run_virtual(arrivals(), seed=2)[1] != end


def test_figures_over_time_are_a_data_frame():
    pytest.importorskip("pandas")
    result = dartsim.simulate("dart", on="laptop", overrides=SHORT)
    frame = result.to_frame()
    assert (frame["to_hours"].diff().dropna() > 0.0).all()
    assert {"generated_turns_per_minute", "env_utilization"} <= set(frame.columns)


def test_a_run_of_the_command_line_and_the_same_simulation_have_the_same_events(tmp_path):
    from dartsim.run.execute import execute

    config = dartsim.load("dart", on="laptop", overrides=SHORT)
    run_dir, _ = execute(config, tmp_path / "run")
    result = dartsim.simulate(config)
    assert result.event_hash == run_dir.summary["event_hash"]
    assert {**run_dir.summary, **json.loads(json.dumps(result.summary))}.keys() - {"format"} == result.summary.keys()


def test_a_rule_of_ones_own_is_a_class_a_name_or_a_table():
    by_class = dartsim.load("dart", router=TwoChoices)
    assert by_class == dartsim.load("dart", router="two_choices")
    assert dartsim.load("dart", sync_mode="keep").rollout.sync.mode == "keep"
    assert dartsim.load("areal-eta4", router={"rule": "two_choices", "gap": 5}).rollout.routing.gap == 5
    with pytest.raises(ConfigError, match=r"rollout\.routing\.gap"):
        dartsim.load("dart", router={"rule": "two_choices", "gap": 0})

    class Forgotten(TwoChoices):
        pass

    with pytest.raises(ConfigError, match=r"dartsim\.register"):
        dartsim.load("dart", router=Forgotten)


def test_what_is_not_simulated_is_refused():
    with pytest.raises(ConfigError, match="'tiny'"):
        dartsim.simulate("tiny")


def test_schedulers_are_compared_with_the_same_seeds():
    schedulers = {"mine": dartsim.load("areal-eta4", router=TwoChoices), "same": "areal-eta4"}
    comparison = dartsim.compare(schedulers, on=Path("laptop"), seeds=2, overrides=SHORT)
    assert (comparison.schedulers, comparison.seeds) == (("mine", "same"), (0, 1))
    assert comparison.mean("mine", "generated_turns_per_minute") > 0.0
    comparison.fail_if("generated_turns_per_minute < 0.1 * same")
    with pytest.raises(AssertionError, match=r"minute > 0\.1 \* same holds: difference \+") as failed:
        comparison.fail_if("generated_turns_per_minute > 0.1 * same")
    assert comparison.result("staleness_max > 100").holds is False
    assert f"dartsim.simulate(mine, on='laptop', overrides={SHORT}, seed=1)" in str(failed.value)
    assert f"dartsim.simulate('areal-eta4', on='laptop', overrides={SHORT}, seed=1)" in str(failed.value)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("trained_turns_per_minutes < 0.9 * same", "did you mean 'trained_turns_per_minute'"),
        ("trained_turns_per_minute < 0.9 * others", "'others' is not compared; there are: mine, same"),
        ("trained_turns_per_minute below same", "a condition is written"),
        ("trained_turns_per_minute < 0.9 * mine", "with itself"),
        ("trained_turns_per_minute < 0.9 * same", "needs two seeds or more"),
    ],
)
def test_a_condition_that_cannot_be_decided_is_refused(condition, said):
    rows = {name: [{"trained_turns_per_minute": 1.0}] for name in ("mine", "same")}
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        dartsim.Comparison(("mine", "same"), (0,), rows, {}).fail_if(condition)


class Coin(TwoChoices):
    """One of the two by chance, from the loop's stream."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self.rng = asyncio.get_running_loop().rng("coin")

    def pick(self, last: Any, group: int = 0) -> Any:
        return super().pick(last if self.rng.random() < 0.5 else None, group)


def test_a_router_that_draws_from_the_loop_is_checked_also_in_a_notebook():
    dartsim.check_rule(Coin)

    async def cell():
        task = asyncio.current_task()
        dartsim.check_rule(Coin)
        await asyncio.sleep(0)
        return asyncio.current_task() is task

    assert asyncio.run(cell()), "a notebook's own loop goes on"


def test_a_router_is_checked_with_the_parameters_that_are_given():
    class Asserts(TwoChoices):
        def pick(self, last: Any, group: int = 0) -> Any:
            assert self.gap == 7
            return super().pick(last, group)

    dartsim.check_rule(Asserts, gap=7)
    for wrong in ({"gap": -5}, {"stick": 3}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            dartsim.check_rule(TwoChoices, **wrong)


class First(TwoChoices):
    """Broken: the first worker, also when it is down."""

    def add(self, worker: Any) -> None:
        super().add(worker)
        self.first = getattr(self, "first", worker)

    def pick(self, last: Any, group: int = 0) -> Any:
        return self.first


class Counts(TwoChoices):
    """Broken: it counts requests itself."""

    def pick(self, last: Any, group: int = 0) -> Any:
        worker = self.least_loaded()
        worker.in_flight += 1
        return worker


class Chance(TwoChoices):
    """Broken: global chance."""

    chance = np.random.default_rng(0)

    def pick(self, last: Any, group: int = 0) -> Any:
        return self.chance.choice([self.least_loaded(), last if last and last.routable else self.least_loaded()])


class Foreign(TwoChoices):
    """Broken: a worker of its own."""

    def pick(self, last: Any, group: int = 0) -> Any:
        return dartsim.Routed(0)


@pytest.mark.parametrize(
    ("router", "said"),
    [
        (First, "which is down"),
        (Counts, "changed in_flight"),
        (Chance, "deterministic"),
        (Foreign, "none of the workers"),
    ],
)
def test_a_broken_router_is_told_what_is_wrong(router, said):
    with pytest.raises(AssertionError, match=said):
        dartsim.check_rule(router)


def dartsim_classes(annotation):
    if isinstance(annotation, type) and annotation.__module__.startswith("dartsim."):
        yield annotation
    for part in get_args(annotation):
        yield from dartsim_classes(part)


EXTENDED = (
    *("Router", "AdmissionRule", "AdvantageRule", "AttemptsRule", "BatchRule", "TaskOrder", "TurnLimitRule"),
    *("TurnSelection", "Policy", "Fault", "Instrument", "DesktopBackend", "EngineBackend", "LearnerBackend"),
)
"""Classes that a plug-in extends."""


def test_every_public_name_has_a_docstring():
    assert [name for name in dartsim.__all__ if not getattr(dartsim, name).__doc__] == []


@pytest.mark.skipif(is_compiled(), reason="compiled methods have no annotations")
def test_every_type_that_a_plug_in_meets_is_public():
    names = {name: getattr(dartsim, name) for name in dartsim.__all__} | vars(dartsim.core.types)
    hidden = set()
    for name in EXTENDED:
        functions = [each for each in vars(names[name]).values() if inspect.isfunction(each)]
        own = [each for each in functions if not each.__name__.startswith("_")]
        assert own, name
        for function in own:
            types = get_type_hints(function, names | vars(sys.modules[names[name].__module__])).values()
            met = {each.__name__ for annotation in types for each in dartsim_classes(annotation)}
            hidden |= {f"{name}.{function.__name__}: {each}" for each in met - set(dartsim.__all__)}
    assert hidden == set()
