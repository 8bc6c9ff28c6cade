"""Updates as JSON lines."""

from __future__ import annotations

import json
import math
from contextlib import closing

from dartsim.observe.metrics import JsonlWriter
from dartsim.observe.records import UpdateRecord


def test_a_loss_that_is_not_a_number_is_told(tmp_path):
    with closing(JsonlWriter(tmp_path / "metrics.jsonl")) as writer:
        writer.update_finished(UpdateRecord(1, 0.0, 1, 1, 0.0, 1.0, 0.0, 0, {"loss": math.nan}))
    assert math.isnan(json.loads((tmp_path / "metrics.jsonl").read_text())["metrics"]["loss"])


def test_a_recorder_reports_every_update_in_order(make_recorder, tmp_path):
    path = tmp_path / "metrics.jsonl"
    with closing(JsonlWriter(path)) as writer:
        recorder = make_recorder(hours=1.0, instruments=(writer,))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) > 2
    assert [line["update"] for line in lines] == list(range(1, recorder.counts["updates"] + 1))
    assert [line["time"] for line in lines] == [record.time for record in recorder.updates]
