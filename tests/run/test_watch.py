"""The status of a run while it goes on, after its end, and after a crash; what a stalled one says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from dartsim.config import merge
from dartsim.core.errors import Stalled
from dartsim.observe import ticker
from dartsim.observe.rundir import LOCK, STATUS, is_locked
from dartsim.run.execute import execute
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import build_here, run_prepared
from dartsim.run.watch import Watch
from dartsim.sim import run_virtual
from dartsim.store.memory import MemoryStore
from tests.run.clusters import small as small_cluster


def small(**tables):
    return small_cluster(**merge({"rollout": {"num_envs": 4}, "run": {"hours": 0.5}}, tables))


def read(folder):
    return json.loads((folder / STATUS).read_text())


def test_status_is_written_while_the_run_goes_on_and_names_every_part(tmp_path):
    seen = []
    config = small()

    def look(now):
        seen.append((is_locked(tmp_path), read(tmp_path)))

    execute(config, tmp_path, [ticker(look)])
    running, midway = seen[len(seen) // 2]
    assert running
    assert midway["state"] == "running"
    assert 0.0 < midway["as_of_seconds"] <= midway["run_seconds"] < 1800.0
    assert len(midway["components"]) == 9, "four slots, two engines, and three parts more"
    for part in midway["components"]:
        assert part["waits_for"]
        assert part["woken_by"]
        assert 0.0 <= part["since_seconds"] <= midway["as_of_seconds"]
    times = [status["run_seconds"] for _, status in seen]
    assert times == sorted(times)
    assert not is_locked(tmp_path)
    after = read(tmp_path)
    assert after["state"] == "finished"
    assert "off" not in {part["state"] for part in after["components"]}, "the end shows what went on before it"
    assert after["alarms"] == []
    assert after["counts"]["attempts"] > 0


def test_looking_changes_nothing_of_the_run(tmp_path):
    config = small()
    watched = []

    with Watch(config, tmp_path) as watch:
        first = run_prepared(prepare(config), instruments=[watch, ticker(watched.append, 5.0)])
    assert watched
    assert first.event_hash == run_prepared(prepare(config)).event_hash


def test_a_stalled_simulation_says_what_its_parts_wait_for():
    config = small()

    async def main():
        system = await build_here(prepare(config), MemoryStore())
        train = asyncio.create_task(system.trainer.run())
        await train  # without desktops nothing will ever be trained

    with pytest.raises(Stalled) as caught:
        run_virtual(main())
    text = str(caught.value)
    assert "its components:" in text
    assert "trainer: waiting for data since 0.0 s" in text


def test_a_run_that_fails_leaves_what_its_parts_did_and_hides_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_averysecretvalue1234")
    with (
        pytest.raises(RuntimeError),
        Watch(small(), tmp_path) as watch,
    ):
        run_prepared(
            prepare(small()),
            instruments=[watch, ticker(lambda now: fail() if now >= 900.0 else None)],
        )
    found = read(tmp_path)
    assert found["state"] == "failed"
    assert "averysecret" not in found["error"]
    assert "http://dart:***@db" in found["error"]
    assert len(found["components"]) == 9


def fail():
    raise RuntimeError("no answer to hf_averysecretvalue1234 from http://dart:hunter22@db/runs")


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from dartsim.config import load; from dartsim.observe.rundir import lock_run\n"
        "from dartsim.run.watch import Watch\n"
        "lock = lock_run(Path(sys.argv[1])); lock.__enter__()\n"
        "watch = Watch(load('dart'), Path(sys.argv[1])); watch.__enter__()\n"
        "print('up', flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (-9, "up")
    assert (tmp_path / LOCK).exists()
    assert not is_locked(tmp_path)
    assert read(tmp_path)["state"] == "starting"
