"""Runs whose workers are vLLM servers: stand-ins in processes of their own, and vLLM itself where it is installed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.observe import Listener
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

torch = pytest.importorskip("torch", reason="needs the extra `train`")
httpx = pytest.importorskip("httpx", reason="needs the extra `real`")

from safetensors.torch import load_file  # noqa: E402

from dartsim.core.install import VLLM_PYTHON  # noqa: E402
from dartsim.real.engines.options import engine_options  # noqa: E402
from dartsim.real.learners.fsdp.learner import FsdpLearner  # noqa: E402
from dartsim.real.processes import free_port  # noqa: E402
from dartsim.real.vlm import build  # noqa: E402
from dartsim.real.vlm.export import export  # noqa: E402
from dartsim.real.vlm.plan import vlm_config  # noqa: E402
from dartsim.run.model import trained_model  # noqa: E402

STANDIN = f"PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m dartsim.real.stand_ins.engine"
PARTS = ("backend.desktops=mock", "backend.workers=vllm", "backend.learner=local", "run.max_segments=0")
SMALL = ("run.hours=0.02", "tasks.count=64", "tasks.held_out=8", "rollout.num_envs=4", "run.target_success=none")
BATCHES = ("curation.batch.min_groups=2", "curation.batch.max_groups=2", "curation.groups.drop_all_failed=false")
EQUAL = ("curation.groups.drop_equal=false", "curation.groups.drop_solved=false")


def configured(*changes):
    return load("tiny", overrides=[*PARTS, *SMALL, *BATCHES, *EQUAL, *changes])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder that a server of these runs can start with."""
    prepared = prepare(configured("rollout.num_workers=1"))
    return export(trained_model(prepared).vlm, tmp_path_factory.mktemp("engines") / "model")


@contextmanager
def standin(folder, port=None):
    """A stand-in that somebody else runs: its process and its address."""
    port = port or free_port("127.0.0.1")
    process = subprocess.Popen(["env", *STANDIN.split(), "--model", folder, "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        _until_healthy(url)
        yield process, url
    finally:
        process.kill()
        process.wait()


def _until_healthy(url):
    deadline = monotonic() + 60.0
    while monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            sleep(0.05)
    raise TimeoutError(url)


def version_of(url):
    return int(httpx.get(f"{url}/weight_info").json()["weight_version"])


def at_update(number, act):
    """Return what does something once, after so many updates of a run."""
    return Listener(update_finished=lambda record: act() if record.update == number else None)


def play(config, **more):
    prepared = prepare(config)
    trained = trained_model(prepared)
    return run_prepared(prepared, learning=trained, **more), trained


def quoted(urls):
    return "[" + ",".join(f'"{url}"' for url in urls) + "]"


def faults(recorder):
    return {name: number for name, number in recorder.counts.items() if name.startswith("fault/") and number}


def test_engines_serve_modeled_desktops_in_real_time(folder):
    """The load test of a pool: no desktop is there, and none is needed."""
    parts = ("start", "boot", "setup", "step", "evaluate", "teardown", "settle_seconds", "evaluate_settle_seconds")
    quick = [f"cluster.env.latency.{part}=0.01" for part in parts]
    with standin(folder) as (_, url):
        config = configured(
            "backend.desktops=sim", "backend.real_time=true", "rollout.num_workers=1", "run.hours=0.001",
            "rollout.num_envs=100", "cluster.hosts.count=4", f"vllm.addresses={quoted([url])}", *quick,
        )  # fmt: skip
        result, _ = play(config)
    counts = result.recorder.counts
    assert counts["attempts"] > 100
    assert faults(result.recorder) == {}


def test_engines_by_address_take_the_weights_of_a_run_and_one_serves_on_when_the_other_is_killed(folder):
    steps = []
    with standin(folder) as (first, first_url), standin(folder) as (_, second_url):
        addresses = quoted([first_url, second_url])
        config = configured("run.updates=7", "rollout.num_workers=2", f"vllm.addresses={addresses}", "run.hours=0.03")
        started = Listener(preparing=lambda *step: steps.append(step))
        result, trained = play(config, instruments=[at_update(2, first.kill), started])
        version = version_of(second_url)
    counts = result.recorder.counts
    assert steps == [("engines", 0, 2), ("engines", 1, 2), ("engines", 2, 2)], "their start is shown"
    assert counts["updates"] >= 7  # with weights as new as the staleness bound wants
    assert 5 <= version <= trained.weights.version
    assert counts["trained_turns"] > 0
    assert counts["fault/load"] + counts["fault/request_worker"] + counts["fault/request_restarted"] > 0


@pytest.fixture
def interpreter(tmp_path):
    """An interpreter whose vLLM is a stand-in, slow at a second start; it leaves its processes' numbers in a file."""
    script = tmp_path / "python"
    pids = tmp_path / "pids"
    slow = f"[ $(wc -l < {pids}) -gt 1 ] && sleep 1"
    script.write_text(f'#!/bin/sh\necho $$ >> {pids}\nshift 2\n{slow}\nexec env {STANDIN} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script, pids


def test_an_engine_of_the_run_s_own_is_started_again_when_it_is_killed(interpreter):
    script, pids = interpreter

    def kill():
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)

    config = configured("run.updates=8", "rollout.num_workers=1", f'vllm.python="{script}"', "run.hours=0.03")
    result, _ = play(config, instruments=[at_update(2, kill)])
    counts = result.recorder.counts
    assert counts["updates"] >= 8
    assert counts["ending/worker_fault"] == 0
    assert len(pids.read_text().split()) == 2
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_engines_start_with_the_weights_that_ranks_go_on_with(monkeypatch, tmp_path):
    """The control plane's own copy of the model is that of the beginning: ranks train another one."""
    config = configured("backend.learner=fsdp", "rollout.num_workers=1")
    trained = export(build(vlm_config(config), seed=1), tmp_path / "trained")

    def load_checkpoint(learner, folder):
        learner.updates, learner._exported[7] = 7, trained

    monkeypatch.setattr(FsdpLearner, "load", load_checkpoint)
    found = trained_model(prepare(config), restore=tmp_path)
    served = load_file(export(found.vlm, tmp_path / "served") / "model.safetensors")
    wanted = load_file(trained / "model.safetensors")
    assert found.trainer.updates == 7
    assert served.keys() == wanted.keys()
    assert all(torch.equal(served[name], wanted[name]) for name in wanted)


def test_engines_of_the_run_s_own_need_an_interpreter(monkeypatch, tmp_path):
    monkeypatch.delenv(VLLM_PYTHON, raising=False)
    with pytest.raises(ConfigError, match=rf"set vllm\.python or {VLLM_PYTHON}, or vllm\.addresses"):
        engine_options(configured("rollout.num_workers=1"), tmp_path)
    monkeypatch.setenv(VLLM_PYTHON, "/from/the/environment")
    assert engine_options(configured("rollout.num_workers=1"), tmp_path)[0].vllm.python == "/from/the/environment"
    given = engine_options(configured("rollout.num_workers=1", 'vllm.python="/given"'), tmp_path)
    assert given[0].vllm.python == "/given"


def test_a_real_engine_serves_a_run():
    if not os.environ.get(VLLM_PYTHON):
        pytest.skip(f"no vLLM: {VLLM_PYTHON} names no interpreter that has it (tox run -e vllm)")
    config = configured("run.updates=3", "rollout.num_workers=1", "vllm.max_model_len=512", "run.hours=0.08")
    result, trained = play(config)
    assert result.recorder.counts["updates"] >= 3
    assert faults(result.recorder) == {}
    assert trained.weights.version >= 3
