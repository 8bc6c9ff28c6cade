"""Studies of the file: their arms, what is written of them, and what is recorded."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.arms import ArmStudy, arms_of, pick, run_arms, studies
from experiments.osworld_twins import run_twin
from experiments.study import Options, recorded

TOY = {
    "preset": "dart",
    "hours": 2.0,
    "quick_hours": 0.5,
    "changes": ["rollout.num_envs=${envs}"],
    "envs": 8,
    "figures": ["a"],
    "arms": {
        "steps": {
            "axes": {"step": {"cumulative": True, "none": {}, "x": {"changes": ["x=1"]}, "y": {"changes": ["y=2"]}}},
        },
        "grid": {
            "envs": 9,
            "axes": {
                "workload": ["dart", "laptop"],
                "size": {"few": {"value": 1}, "many": {"value": 2, "envs": 30, "hours": 3.0, "quick": False}},
                "series": {"${workload} with ${size}": {"changes": ["z=${value}"]}},
            },
        },
    },
}


def options(**more):
    return Options(quick=False, seeds=2, console=Console(file=io.StringIO()), **more)


def test_arms_are_every_combination_of_the_entries_and_the_last_key_wins():
    steps, grid = ([arm for arm in arms_of(TOY) if arm.family == family] for family in ("steps", "grid"))
    assert [arm.changes for arm in steps] == [
        ("rollout.num_envs=8",),
        ("rollout.num_envs=8", "x=1"),
        ("rollout.num_envs=8", "x=1", "y=2"),
    ]
    assert [(arm.workload, arm.hours, arm.changes) for arm in grid] == [
        ("dart", 2.0, ("rollout.num_envs=9", "z=1")),
        ("dart", 3.0, ("rollout.num_envs=30", "z=2")),
        ("laptop", 2.0, ("rollout.num_envs=9", "z=1")),
        ("laptop", 3.0, ("rollout.num_envs=30", "z=2")),
    ]
    assert grid[1].names == {"workload": "dart", "size": "many", "series": "dart with many"}


def test_a_finished_run_is_known_again_by_its_arm_and_seed(monkeypatch):
    """``--results`` compares what describes a run: nothing in it may differ between two processes."""
    specs = []
    monkeypatch.setattr(
        Options, "sweep", lambda self, function, runs: [specs.append(repr(run.spec)) or {} for run in runs]
    )
    run_arms(arms_of(TOY), options())
    assert len(set(specs)) == len(specs) == 2 * len(arms_of(TOY))
    assert not any("0x" in spec or "axes" in spec for spec in specs)


def test_a_quick_run_has_fewer_and_shorter_arms():
    quick = arms_of(TOY, quick=True)
    assert {arm.hours for arm in quick} == {0.5}
    assert {arm.names["size"] for arm in quick if arm.family == "grid"} == {"few"}


def test_means_have_intervals(monkeypatch):
    monkeypatch.setattr(Options, "sweep", lambda self, function, runs: [function(run.spec) for run in runs])
    study = ArmStudy(TOY, run=lambda arm, seed: {"a": 1.0 + 2.0 * seed, "event_hash": str(seed)})
    figures = study.measure(options())
    arm = pick(figures["arms"], series="dart with few")
    assert arm["figures"]["a"] == {"mean": 2.0, "half_width": pytest.approx(12.706, rel=1e-3)}
    assert (arm["value"], arm["event_hashes"]) == (1, ["0", "1"])
    with pytest.raises(LookupError):
        pick(figures["arms"], step="nowhere")


@pytest.mark.parametrize("name", [name for name in studies() if name != "steady"])  # it scales its arms
@pytest.mark.parametrize("quick", [False, True])
def test_every_declared_configuration_can_work_and_is_another(name, quick):
    arms = arms_of(studies()[name], quick=quick)
    assert len({(arm.family, *arm.names.items()) for arm in arms}) == len(arms) > 0
    for arm in arms:
        assert arm.cluster(0).config.run.hours == arm.hours


@pytest.mark.parametrize(
    "name", [name for name, study in studies().items() if "figures" in study and name != "headline"]
)
def test_the_recorded_arms_are_the_declared_ones(name):
    declared = [(arm.family, *arm.names.values()) for arm in arms_of(studies()[name])]
    found = [(row["family"], *(row[axis] for axis in _axes(name, row["family"]))) for row in recorded(name)["arms"]]
    assert found == declared


def _axes(name, family):
    return studies()[name]["arms"][family]["axes"]


def arm_of(name, **wanted):
    """Return the declared arm with these names."""
    (found,) = (arm for arm in arms_of(studies()[name]) if arm.names.items() >= wanted.items())
    return found


def test_the_twin_of_a_real_preset_runs_in_virtual_time():
    assert run_twin(replace(arm_of("osworld_twins", arm="1gpu, 16"), hours=0.5), 0)["generated_turns_per_minute"] > 0.0
