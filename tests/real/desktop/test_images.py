import subprocess
from pathlib import Path

import pytest

from dartsim.core.errors import ConfigError
from dartsim.real.desktop import images


def fake_pip(command: list[str], **_) -> subprocess.CompletedProcess[str]:
    target = Path(command[command.index("--target") + 1])
    for name in ("pyautogui/__init__.py", "pyautogui-1.dist-info/METADATA", "bin/tool"):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return subprocess.CompletedProcess(command, 0, "", "")


def test_packages_are_installed_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", fake_pip)
    told: list[str] = []
    entries = images.python_entries(told.append)
    assert [entry.path for entry in entries if entry.data is not None] == ["/opt/dartsim/site/pyautogui/__init__.py"]
    assert images.python_entries(told.append) == entries
    assert len(told) == 1


def test_a_failed_install_leaves_nothing_that_looks_finished(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "no network"))
    with pytest.raises(ConfigError, match="no network"):
        images.python_entries(lambda _: None)
    assert not list((tmp_path / "dartsim").iterdir())
