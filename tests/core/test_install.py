"""Hints name a command that works for how this copy was installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dartsim.core import install
from dartsim.core.install import ENGINES, install_command

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


checkout = pytest.mark.skipif(
    not Path(install.__file__).resolve().is_relative_to(ROOT), reason="a wheel is tested, not the checkout"
)


@checkout
def test_a_checkout_is_installed_from_its_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert install_command("real") == "pip install -c constraints.txt -e '.[real]'"
    assert install_command() == "pip install -c constraints.txt -e ."
    monkeypatch.chdir(tmp_path)
    assert install_command("train", "real") == f"pip install -c {ROOT}/constraints.txt -e '{ROOT}[train,real]'"


@checkout
def test_engines_get_versions_of_their_own(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert {install_command(name) for name in ENGINES} == {f"pip install '.[{name}]'" for name in ENGINES}
    assert set(ENGINES) <= set(EXTRAS)


@pytest.fixture
def hint_of(tmp_path):
    """Return a function that gives the hint of a copy in `site`, which was installed from somewhere."""
    site = tmp_path / "site"
    (site / "dartsim" / "core").mkdir(parents=True)
    for name in ("__init__.py", "core/__init__.py"):
        (site / "dartsim" / name).touch()
    for name in ("errors.py", "install.py", "words.py"):
        shutil.copy(ROOT / "dartsim" / "core" / name, site / "dartsim" / "core")
    noted = site / "dartsim-0.1.0.dist-info"
    noted.mkdir()
    (noted / "METADATA").write_text("Metadata-Version: 2.4\nName: dartsim\nVersion: 0.1.0\n")

    def hint(source):
        if source is not None:
            (noted / "direct_url.json").write_text(json.dumps(source))
        program = "from dartsim.core.install import install_command as c; print(c('real', 'ray'), c(), sep='\\n')"
        environment = {**os.environ, "PYTHONPATH": str(site)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return hint


def test_a_folder_that_was_installed_is_installed_again(hint_of, tmp_path):
    folder = tmp_path / "a copy"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "dartsim"\n')
    source = {"url": folder.as_uri(), "dir_info": {}}
    assert hint_of(source) == [f"pip install '{folder}[real,ray]'", f"pip install '{folder}'"]
    (folder / "constraints.txt").touch()
    assert hint_of(source)[1] == f"pip install -c '{folder}/constraints.txt' '{folder}'"
    shutil.rmtree(folder)
    assert hint_of(source) == ["pip install 'dartsim[real,ray]'", "pip install dartsim"]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (None, "dartsim[real,ray]"),
        ({"url": "file:///tmp/dartsim-0.1.0-py3-none-any.whl", "archive_info": {}},
         "dartsim[real,ray] @ file:///tmp/dartsim-0.1.0-py3-none-any.whl"),
        ({"url": "https://example.org/dartsim.git", "vcs_info": {"vcs": "git", "commit_id": "abc123"}},
         "dartsim[real,ray] @ git+https://example.org/dartsim.git@abc123"),
    ],
)  # fmt: skip
def test_a_wheel_and_a_repository_are_named_as_they_were_installed(hint_of, source, wanted):
    assert hint_of(source)[0] == f"pip install '{wanted}'"


def test_the_tested_versions_are_those_that_the_package_allows():
    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {name.lower().replace("_", "-"): version for name, _, version in (x.partition("==") for x in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    own = (*ENGINES, "trackio")  # trackio wants an older Pillow than the rest is tested with
    wanted += [one for extra, requirements in EXTRAS.items() if extra not in own for one in requirements]
    for one in map(Requirement, wanted):
        version = pinned[one.name.lower().replace("_", "-")]
        assert one.specifier.contains(version), f"{one} and {version}"
