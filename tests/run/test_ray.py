"""Whole runs whose real parts are placed on Ray, and what a killed actor costs them."""

import asyncio
import importlib.util
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.observe import Listener
from dartsim.run.prepare import prepare

FSDP = ['backend.learner="fsdp"', 'trainer.fsdp.device="cpu"', "ray.learner_options.num_cpus=0.5"]
PARTS = ['backend.desktops="mock"', 'backend.workers="local"', *FSDP, 'ray.address="local"']
SMALL = ["run.updates=2", "run.hours=0.1", "tasks.count=64", "tasks.held_out=8", "rollout.num_envs=8"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (['ray.address="local"'], "every part is modeled"),
        ([*PARTS, 'backend.workers="vllm"', "vllm.gpus=[0]"], r"set ray\.engine_options\.num_gpus"),
        ([*PARTS, "trainer.fsdp.gpus=[0, 1]"], r"set ray\.learner_options\.num_gpus"),
    ],
)
def test_what_ray_cannot_place_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load(preset_name="tiny", overrides=overrides)


def test_a_shared_folder_that_is_not_there_is_refused_before_anything_starts(tmp_path):
    from dartsim.run.execute import execute

    config = load(preset_name="tiny", overrides=[*PARTS, f'ray.folder="{tmp_path / "shared"}"'])
    with pytest.raises(ConfigError, match=r"ray\.folder.*shared"):
        execute(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_what_is_real_and_wanted_is_placed():
    from dartsim.real.ray_cluster.backend import placed

    def parts(*overrides):
        config = load(preset_name="tiny", overrides=[*PARTS, *overrides])
        return [placed(config, kind) for kind in ("desktops", "workers", "learner")]

    assert parts() == [True, False, True]
    assert parts("ray.address=none") == [False, False, False]
    assert parts('backend.workers="vllm"', 'backend.learner="local"') == [True, True, False]
    elsewhere = ['vllm.addresses=["http://127.0.0.1:1"]', 'desktop.hosts.a.url="ssh://a"']
    assert parts('backend.workers="vllm"', *elsewhere) == [False, False, True]


def train(*overrides, kill=None):
    """Run a configuration on Ray; ``kill`` is called with every update, the pids of all actors are at hand."""
    pytest.importorskip("torch")
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra `ray`")
    from dartsim.real.ray_cluster.backend import session
    from dartsim.run.model import trained_model
    from dartsim.run.run_prepared import run_prepared

    prepared = prepare(load(preset_name="tiny", overrides=[*PARTS, *SMALL, *overrides]))
    with session(prepared.config):
        trained = trained_model(prepared)
        listening = [] if kill is None else [Listener(update_finished=kill)]
        result = run_prepared(prepared, learning=trained, instruments=listening)
    return trained, result


@pytest.mark.soak
def test_a_model_learns_with_every_part_on_ray():
    trained, result = train()
    counts = result.recorder.counts
    assert counts["updates"] >= 2
    assert trained.weights.version == trained.trainer.updates >= 2
    assert counts["trained_turns"] > 0
    assert not [name for name in counts if name.startswith("fault/")]


@pytest.fixture
def kills(monkeypatch):
    """Kill the process of an actor at the second update: ``watch, done, parts = kills(name)``."""
    from dartsim.real.ray_cluster.parts import Part

    parts, done = {}, []
    make = Part.__init__

    def remembered(self, name, *args, **more):
        make(self, name, *args, **more)
        parts[name] = self

    monkeypatch.setattr(Part, "__init__", remembered)

    def watch_for(name):
        async def kill():
            place = await parts[name].placed()
            os.kill(place.pid, signal.SIGKILL)
            done.append(place.pid)

        def at_second_update(record):
            if record.update == 2:
                done.append(asyncio.ensure_future(kill()))

        return at_second_update, done, parts

    return watch_for


@pytest.mark.soak
def test_a_run_goes_on_when_the_actor_of_desktops_is_killed(kills):
    watch, done, _ = kills("desktops-0")
    more = ["run.updates=12", "rollout.num_workers=2", "ray.desktop_hosts=2"]
    trained, result = train(*more, kill=watch)
    counts = result.recorder.counts
    assert len(done) == 2
    assert counts["updates"] >= 12
    assert trained.weights.version >= 12
    assert counts["ending/broken"] + counts["fault/start"] >= 1, dict(counts)


STANDIN = f"PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m dartsim.real.stand_ins.engine"
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
def test_a_run_goes_on_when_the_actor_of_a_server_is_killed(kills, tmp_path):
    script = tmp_path / "python"
    started = tmp_path / "started"
    script.write_text(f'#!/bin/sh\necho $$ >> {started}\nshift 2\nexec env {STANDIN} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    watch, done, _ = kills("engine-0")
    more = ["run.updates=30", "rollout.num_workers=2", f'vllm.python="{script}"']
    trained, result = train(*SERVED, *more, kill=watch)
    counts = result.recorder.counts
    assert len(done) == 2
    assert counts["updates"] >= 30
    assert trained.weights.version >= 30
    assert len(started.read_text().split()) >= 3  # one of the two once more
    assert counts["fault/engine_down"] + counts["fault/load"] + counts["fault/request_restarted"] >= 1, dict(counts)
    assert counts["ending/worker_fault"] == 0, dict(counts)


@pytest.mark.soak
def test_a_real_engine_on_ray_serves_a_run():
    if not os.environ.get(VARIABLE):
        pytest.skip(f"no vLLM: {VARIABLE} names no interpreter that has it (tox run -e vllm)")
    _, result = train(*SERVED, "run.updates=3", "rollout.num_workers=1", "vllm.max_model_len=512")
    assert result.recorder.counts["updates"] >= 3
    assert not [name for name in result.recorder.counts if name.startswith("fault/")]
