"""``dartsim desktop tasks``: a list, and a check on real desktops."""

import json
import sys

import pytest

from dartsim.cli import app
from real.desktop.tasks.oracles import ORACLES


def dartsim(monkeypatch, *arguments):
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["dartsim", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    return int(ended.value.code or 0)


def test_it_lists_the_tasks_without_an_engine(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    assert dartsim(monkeypatch, "desktop", "tasks", "--json", "-") == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["task"]: row["steps"] for row in listed} == {name: len(turns) for name, turns in ORACLES.items()}
    assert dartsim(monkeypatch, "desktop", "tasks", "bill-total") == 0
    shown = capsys.readouterr().out
    assert "bill-total" in shown
    assert "thunar-rename" not in shown


def test_a_task_that_is_not_there_is_named(monkeypatch, capsys):
    assert dartsim(monkeypatch, "desktop", "tasks", "bill-totals") == 2
    assert "no task is named bill-totals" in capsys.readouterr().err


@pytest.mark.docker
def test_a_check_plays_the_oracle_and_shows_a_failing_one(monkeypatch, capsys, desktop_image, tmp_path):
    check = ("desktop", "tasks", "mousepad-read-aloud", "--gif", str(tmp_path / "gifs"), "--json", "-")
    assert dartsim(monkeypatch, *check) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["oracle"], row["nothing"], row["fault"], row["passed"]) == (1.0, 0.0, None, True)
    assert (tmp_path / "gifs" / "mousepad-read-aloud.gif").read_bytes().startswith(b"GIF8")
    monkeypatch.setattr("real.desktop.tasks.playing.ORACLES", {"mousepad-read-aloud": ("DONE",)})
    assert dartsim(monkeypatch, "desktop", "tasks", "mousepad-read-aloud", "--check") == 1
    captured = capsys.readouterr()
    assert "failed" in captured.out
    assert "1 of 1 tasks failed: mousepad-read-aloud" in captured.err
