"""Updates in TensorBoard, W&B and trackio: the same names, steps and values everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from contextlib import closing
from types import SimpleNamespace

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.observe.records import UpdateRecord
from dartsim.observe.sinks import SINKS, SinkRun, check_sinks, scalars
from dartsim.run.execute import execute

RECORDS = [
    UpdateRecord(1, 1272.5, 913, 64, 0.59, 14.25, 0.5, 2, {"loss": 0.25, "optim/grad_norm": 1.5}),
    UpdateRecord(2, 2544.0, 900, 64, 0.61, 14.0, 1.25, 3, {"loss": 0.125}),
]


def sink_run(folder, **more):
    return SinkRun(folder, "mine", {"run": {"seed": 3}}, **more)


def write(sink):
    with closing(sink):
        for record in RECORDS:
            sink.update_finished(record)


def test_tensorboard_reads_what_was_written(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    write(SINKS["tensorboard"](sink_run(tmp_path)))
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    assert set(events.Tags()["scalars"]) == {name for record in RECORDS for name in scalars(record)}
    assert [(e.step, e.wall_time, e.value) for e in events.Scalars("staleness/max")] == [
        (1, 1272.5, 2.0),
        (2, 2544.0, 3.0),
    ]
    assert [e.value for e in events.Scalars("metrics/loss")] == [0.25, 0.125]


class FakeTracker:
    """Stands for the modules wandb and trackio: what a run is begun with, what it logs, and whether it ended."""

    Settings = SimpleNamespace

    def __init__(self):
        self.runs = []

    def init(self, **options):
        run = SimpleNamespace(options=options, rows={}, over=False)
        run.log = lambda values, step: run.rows.update({step: values})
        run.finish = lambda: setattr(run, "over", True)
        self.runs.append(run)
        return run


@pytest.fixture
def fake(monkeypatch):
    tracker = FakeTracker()
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, tracker)
    return tracker


def test_a_run_reaches_a_tracker_whole_and_ends_there(fake, tmp_path):
    small = ["run.hours=1", "rollout.num_envs=8", "curation.batch.min_groups=1", "run.max_segments=0"]
    config = load("dart", overrides=[*small, 'run.sinks=["wandb"]'])
    execute(config, tmp_path / "run")
    (run,) = fake.runs
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records
    assert run.over
    assert run.rows == {
        record["update"]: {"run/hours": record["time"] / 3600.0, **scalars(UpdateRecord(**record))}
        for record in records
    }
    assert run.options["config"]["run"]["hours"] == 1.0
    assert not (tmp_path / "run" / "tensorboard").exists()


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_each_life_of_a_run_is_a_run_of_its_own_in_one_group(name, fake, tmp_path):
    for life in (1, 2):
        write(SINKS[name](sink_run(tmp_path, life=life, after=life - 1)))
    first, second = (run.options for run in fake.runs)
    assert first["group"] == second["group"]
    assert first["name"] != second["name"]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_missing_package_is_an_error_before_the_run_begins(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=name):
        check_sinks([name])
    with pytest.raises(ConfigError, match="pip install"):
        execute(load("dart", overrides=["run.hours=1", f'run.sinks=["{name}"]']), tmp_path / "run")
    assert not (tmp_path / "run").exists()


OFFLINE = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.observe.test_sinks import SINKS, sink_run, write
write(SINKS[{name!r}](sink_run(Path({folder!r}))))
"""


@pytest.mark.slow  # starts the tracker's own process
@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_without_a_network_keeps_what_was_logged(name, tmp_path):
    pytest.importorskip(name)
    code = OFFLINE.format(name=name, folder=str(tmp_path), path=sys.path)
    environment = {**os.environ, "WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
    pattern = {"wandb": "wandb/offline-run-*/run-*.wandb", "trackio": "trackio/dartsim.db"}[name]
    (kept,) = tmp_path.glob(pattern)
    data = kept.read_bytes()
    for logged in scalars(RECORDS[0]):
        assert logged.encode() in data
