"""Updates as JSON lines."""

from __future__ import annotations

import json
import math

from dartsim.observe.metrics import JsonlWriter
from dartsim.observe.records import UpdateRecord

RECORDS = [
    UpdateRecord(1, 1272.5, 913, 64, 0.59, 14.25, 0.5, 2, {"loss": 0.25, "optim/grad_norm": 1.5}),
    UpdateRecord(2, 2544.0, 900, 64, 0.61, 14.0, 1.25, 3, {"loss": 0.125}),
]


def test_jsonl_has_one_line_an_update(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    with JsonlWriter(path) as writer:
        for record in RECORDS:
            writer.update_finished(record)
        # Every line is on disk before the run goes on.
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2]
    assert lines[0]["time"] == 1272.5
    assert lines[0]["metrics"] == {"loss": 0.25, "optim/grad_norm": 1.5}


def test_a_loss_that_is_not_a_number_is_told(tmp_path):
    with JsonlWriter(tmp_path / "metrics.jsonl") as writer:
        writer.update_finished(UpdateRecord(1, 0.0, 1, 1, 0.0, 1.0, 0.0, 0, {"loss": math.nan}))
    assert math.isnan(json.loads((tmp_path / "metrics.jsonl").read_text())["metrics"]["loss"])


def test_a_recorder_reports_every_update_in_order(make_recorder, tmp_path):
    path = tmp_path / "metrics.jsonl"
    with JsonlWriter(path) as writer:
        recorder = make_recorder(hours=1.0, instruments=[writer])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) > 2
    assert [line["update"] for line in lines] == list(range(1, recorder.counts["updates"] + 1))
    assert [line["time"] for line in lines] == [record.time for record in recorder.updates]
