"""``python -m dartsim`` is the command line."""

import runpy
from pathlib import Path

import pytest

import dartsim


def test_the_package_can_be_run(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["dartsim", "config", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(dartsim.__file__).with_name("__main__.py")), run_name="__main__")
    assert ended.value.code == 0
    assert "config" in capsys.readouterr().out
