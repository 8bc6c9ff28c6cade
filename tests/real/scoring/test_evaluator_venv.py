"""The evaluator's virtual environment: where it lies and how it is made."""

from pathlib import Path

import pytest

from dartsim.core.errors import ConfigError
from dartsim.real.scoring.evaluator_venv import LIGHT, PACKAGE, commands, default_home, install, python_of


def test_there_must_be_an_environment(tmp_path):
    with pytest.raises(ConfigError, match="wanted one made by `dartsim osworld install`"):
        python_of(tmp_path)


def test_where_the_environment_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_home() == tmp_path / "dartsim/evaluator"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_home() == Path.home() / ".cache/dartsim/evaluator"


def test_the_light_environment_takes_the_package_without_what_it_asks_for(tmp_path):
    make, wanted, package = commands(tmp_path, light=True, python="py")
    assert make == ["py", "-m", "venv", "--clear", str(tmp_path)]
    assert wanted[-len(LIGHT) :] == list(LIGHT)
    assert package[-2:] == ["--no-deps", PACKAGE]
    assert [command[-1] for command in commands(tmp_path, light=False)[1:]] == [PACKAGE]
    assert "librosa" in LIGHT


def test_easyocr_comes_with_torch_for_processors_and_its_weights_where_the_sandbox_looks(tmp_path):
    _, _, torch, easyocr, package, weights = commands(tmp_path, light=True, ocr=True)
    assert torch[-4:] == ["--index-url", "https://download.pytorch.org/whl/cpu", "torch", "torchvision"]
    assert "easyocr" in easyocr
    assert package[-1] == PACKAGE
    assert weights[:2] == [str(tmp_path / "bin" / "python"), "-c"]
    assert 'EASYOCR_MODULE_PATH"] = os.path.join(sys.prefix, "easyocr")' in weights[2]
    assert commands(tmp_path, light=False, ocr=True)[-1] == weights


def test_an_environment_is_made_where_nothing_else_is(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").touch()
    with pytest.raises(ConfigError, match="is no virtual environment"):
        install(tmp_path / "full", light=True)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nmkdir -p "$4/bin"\ncp "$0" "$4/bin/python"\ntest "$2" = venv || exit 7\n')
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"failed with 7; desktop-env wants Python 3\.10 to 3\.12"):
        install(tmp_path / "new", light=True, python=str(python))
    assert python_of(tmp_path / "new").is_file()
