"""Hints name a command that works for how this copy was installed."""

from __future__ import annotations

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


def test_an_installed_package_gets_extras_by_its_name(monkeypatch, tmp_path):
    monkeypatch.setattr(install, "__file__", str(tmp_path / "dartsim" / "core" / "install.py"))
    assert install_command("real", "ray") == "pip install 'dartsim[real,ray]'"
    assert install_command() == "pip install dartsim"


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
