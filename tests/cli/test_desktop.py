"""``dartsim desktop``: build, start with a screenshot, reap."""

import json

import pytest


@pytest.mark.docker
def test_a_desktop_is_started_shown_and_removed(dartsim, capsys, desktop_image, tmp_path):
    picture = tmp_path / "desktop.png"
    assert dartsim("desktop", "build") == 0
    assert capsys.readouterr().out.strip() == desktop_image
    size = ("--set", "desktop.width=320", "--set", "desktop.height=240")
    start = ("desktop", "start", *size, "--seconds", "0", "--show", str(picture), "--json", "-")
    assert dartsim(*start) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["server"].startswith("http://127.0.0.1:")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert dartsim("desktop", "reap", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 0}
