"""Whole runs whose real parts are placed on Ray, and what a killed actor costs them."""

import importlib.util
import os

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.run.prepare import prepare

FSDP = ['backend.learner="fsdp"', 'trainer.fsdp.device="cpu"', "ray.learner_options.num_cpus=0.5"]
PARTS = ['backend.desktops="mock"', 'backend.workers="local"', *FSDP, 'ray.address="local"']
SMALL = ["run.updates=2", "run.hours=0.1", "tasks.count=64", "tasks.held_out=8", "rollout.num_envs=8"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([*PARTS, 'backend.workers="vllm"', "vllm.gpus=[0]"], r"set ray\.engine_options\.num_gpus"),
        ([*PARTS, "trainer.fsdp.gpus=[0, 1]"], r"set ray\.learner_options\.num_gpus"),
    ],
)
def test_what_ray_cannot_place_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load("tiny", overrides=overrides)


def test_a_shared_folder_that_is_not_there_is_refused_before_anything_starts(tmp_path):
    from dartsim.run.execute import execute

    config = load("tiny", overrides=[*PARTS, f'ray.folder="{tmp_path / "shared"}"'])
    with pytest.raises(ConfigError, match=r"ray\.folder.*shared"):
        execute(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_what_is_real_and_wanted_is_placed():
    from dartsim.real.ray_cluster.backend import placed

    def parts(*overrides):
        config = load("tiny", overrides=[*PARTS, *overrides])
        return [placed(config, kind) for kind in ("desktops", "workers", "learner")]

    assert parts() == [True, False, True]
    assert parts("ray.address=none") == [False, False, False]
    assert parts('backend.workers="vllm"', 'backend.learner="local"') == [True, True, False]
    elsewhere = ['vllm.addresses=["http://127.0.0.1:1"]', 'desktop.hosts.a.url="ssh://a"']
    assert parts('backend.workers="vllm"', *elsewhere) == [False, False, True]


def train(*overrides):
    """Run a configuration on Ray."""
    pytest.importorskip("torch")
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra `ray`")
    from dartsim.real.ray_cluster.backend import session
    from dartsim.run.model import trained_model
    from dartsim.run.run_prepared import run_prepared

    prepared = prepare(load("tiny", overrides=[*PARTS, *SMALL, *overrides]))
    with session(prepared.config):
        trained = trained_model(prepared)
        result = run_prepared(prepared, learning=trained)
    return trained, result


@pytest.mark.soak
def test_a_model_learns_with_every_part_on_ray():
    trained, result = train()
    counts = result.recorder.counts
    assert counts["updates"] >= 2
    assert trained.weights.version == trained.trainer.updates >= 2
    assert counts["trained_turns"] > 0
    assert not [name for name in counts if name.startswith("fault/")]


VARIABLE = "DARTSIM_VLLM_PYTHON"
SERVED = [
    'backend.workers="vllm"',
    "ray.engine_options.num_cpus=0.5",
    "curation.batch.min_groups=2",
    "curation.batch.max_groups=2",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
    "rollout.num_envs=4",
]


@pytest.mark.soak
def test_a_real_engine_on_ray_serves_a_run():
    if not os.environ.get(VARIABLE):
        pytest.skip(f"no vLLM: {VARIABLE} names no interpreter that has it (tox run -e vllm)")
    _, result = train(*SERVED, "run.updates=3", "rollout.num_workers=1", "vllm.max_model_len=512")
    assert result.recorder.counts["updates"] >= 3
    assert not [name for name in result.recorder.counts if name.startswith("fault/")]
