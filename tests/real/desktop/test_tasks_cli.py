"""``dartsim desktop tasks``: a list, and a check on real desktops."""

import json

import pytest

from dartsim.real.desktop.tasks.oracles import ORACLES


def test_it_lists_the_tasks_without_an_engine(dartsim, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    assert dartsim("desktop", "tasks", "--json", "-") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["task"]: row["steps"] for row in listed} == {name: len(turns) for name, turns in ORACLES.items()}


def test_a_task_that_is_not_there_is_named(dartsim, capsys):
    assert dartsim("desktop", "tasks", "bill-totals") == 2
    assert "bill-totals" in capsys.readouterr().err


@pytest.mark.docker
@pytest.mark.slow
def test_a_check_plays_the_oracle_and_shows_a_failing_one(dartsim, monkeypatch, capsys, desktop_image):
    check = ("desktop", "tasks", "mousepad-read-aloud", "--check", "--json", "-")
    assert dartsim(*check) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["oracle"], row["nothing"], row["fault"], row["passed"]) == (1.0, 0.0, None, True)
    monkeypatch.setattr("dartsim.real.desktop.tasks.playing.ORACLES", {"mousepad-read-aloud": ("DONE",)})
    assert dartsim("desktop", "tasks", "mousepad-read-aloud", "--check") == 1
    assert "mousepad-read-aloud" in capsys.readouterr().err
