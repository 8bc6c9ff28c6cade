"""``dartsim desktop``: build, start with a screenshot, reap."""

import json
import sys

import pytest

from dartsim.cli import app


def dartsim(monkeypatch, *arguments):
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["dartsim", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    return int(ended.value.code or 0)


def test_help_names_what_there_is(monkeypatch, capsys):
    assert dartsim(monkeypatch, "desktop", "--help") == 0
    shown = capsys.readouterr().out
    for name in ("build", "start", "reap"):
        assert name in shown


@pytest.mark.docker
def test_a_desktop_is_started_shown_and_removed(monkeypatch, capsys, desktop_image, tmp_path):
    picture = tmp_path / "desktop.png"
    assert dartsim(monkeypatch, "desktop", "build") == 0
    assert capsys.readouterr().out.strip() == desktop_image
    size = ("--width", "320", "--height", "240")
    start = ("desktop", "start", *size, "--seconds", "0", "--show", str(picture), "--json", "-")
    assert dartsim(monkeypatch, *start) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["server"].startswith("http://127.0.0.1:")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert dartsim(monkeypatch, "desktop", "reap", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 0}


def test_an_engine_that_is_not_there_is_named(monkeypatch, capsys):
    pytest.importorskip("docker", reason="needs the extra `real`")
    assert dartsim(monkeypatch, "desktop", "reap", "--host", "tcp://127.0.0.1:9") == 1
    assert "no Docker engine answers at tcp://127.0.0.1:9" in capsys.readouterr().err
