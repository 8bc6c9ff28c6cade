"""Calls of metrics are kept by hash, and a stored run is scored again from them."""

import json
import pickle
from pathlib import Path

import pytest

from dartsim.core.errors import ConfigError
from dartsim.core.types import MetricRecord, Score, ScoreRecord
from dartsim.real.scoring import FileInput, GetterValue
from dartsim.real.scoring.archive import SCORES, ScoreArchive
from dartsim.run.rescore import rescore
from dartsim.testing.ports import sample_trajectory


def file(folder: Path, name: str, text: str) -> FileInput:
    path = folder / name
    path.write_text(text)
    return FileInput(path, name)


def content(value):
    """Return an argument without the place where its file lies."""
    if isinstance(value, FileInput):
        return value.name, value.path.read_text()
    return [content(item) for item in value] if isinstance(value, list) else value


def test_a_call_comes_back_as_it_was(tmp_path):
    archive = ScoreArchive(tmp_path / "scores")
    value = GetterValue(b"[1]", {"page.html": b"<p>"}, some_missing=True)
    long = "é\r\n\udcff" * 2**16
    files = [[file(tmp_path, "a.txt", "1"), None], file(tmp_path, "b.txt", "2")]
    arguments = [*files, value, {"expected": ["x"]}, "é", long]
    inputs, call = archive.keep("compare", arguments, {"exact": True})
    assert call is not None
    name, loaded, options = archive.load(call)
    assert (name, content(loaded), options) == ("compare", content(arguments), {"exact": True})
    assert len(inputs) == len(set(inputs)) == 8


def test_the_same_files_are_kept_once_and_hashed_alike_everywhere(tmp_path):
    archive = ScoreArchive(tmp_path / "scores")
    first = archive.keep("compare", [file(tmp_path, "a.txt", "same")], {})
    kept = len(list((tmp_path / "scores").iterdir()))
    assert archive.keep("compare", [file(tmp_path, "a.txt", "same")], {}) == first
    assert len(list((tmp_path / "scores").iterdir())) == kept
    assert ScoreArchive(None).keep("compare", [file(tmp_path, "a.txt", "same")], {}) == (first[0], None)


def test_an_agent_does_not_fill_the_disk(tmp_path):
    archive = ScoreArchive(tmp_path / "scores", max_bytes=1_000)
    assert archive.keep("compare", [file(tmp_path, "a.txt", "x" * 2_000)], {})[1] is None
    for number in range(20):
        archive.keep("compare", [file(tmp_path, "a.txt", f"{number}" * 100)], {})
    assert sum(path.stat().st_size for path in (tmp_path / "scores").iterdir()) <= 1_000


def test_a_score_is_a_number_that_keeps_its_record():
    record = ScoreRecord("scorer 1", 1.5, (MetricRecord("exact_match", 0.5, 1.0, ("ab",), "cd"),))
    score = Score(0.5, record)
    assert (score, score + 0.25, f"{score:g}", json.dumps(score)) == (0.5, 0.75, "0.5", "0.5")
    assert pickle.loads(pickle.dumps(score)).record == record


@pytest.fixture
def run(tmp_path):
    """A run directory with three attempts: one as stored, one whose score was another, one without its inputs."""
    from dataclasses import replace

    from dartsim.store.sql import SqlStore

    archive = ScoreArchive(tmp_path / "run" / SCORES)
    _, call = archive.keep("compare_text_file", [file(tmp_path, "a.txt", "1"), file(tmp_path, "b.txt", "1")], {})
    records = [
        MetricRecord("compare_text_file", 1.0, 0.1, ("ab",), call),
        MetricRecord("compare_text_file", 0.0, 0.1, ("ab",), call),
        MetricRecord("compare_text_file", 1.0, 0.1, ("ab",), None),
    ]
    (tmp_path / "run/config.toml").write_text('preset = "desktop"\n')
    store = SqlStore.open(tmp_path / "run")
    for number, record in enumerate(records):
        score = Score(record.score, ScoreRecord("dartsim 1", 0.2, (record,)))
        store.record(replace(sample_trajectory(number), reward=score))
    store.save({})
    store.close()
    return tmp_path / "run"


@pytest.mark.docker
def test_a_stored_run_is_scored_again_and_compared(docker_engine, run):
    found = rescore(run)
    assert [(score.stored, score.score, score.same, score.why) for score in found] == [
        (1.0, 1.0, True, ""),
        (0.0, 1.0, False, ""),
        (1.0, None, False, "its inputs were not kept"),
    ]


def test_a_run_without_scores_of_real_desktops_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="run's folder"):
        rescore(tmp_path)
    (tmp_path / "config.toml").write_text('preset = "desktop"\n')
    with pytest.raises(ConfigError, match=r"has no run\.db"):
        rescore(tmp_path)
