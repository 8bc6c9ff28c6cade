"""What an installed wheel holds and asks for."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packed(wheel: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel)


def metadata(packed: zipfile.ZipFile) -> Message:
    (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(packed.read(name).decode())


def requirements(packed: zipfile.ZipFile, extra: str) -> set[str]:
    wanted = [Requirement(text) for text in metadata(packed).get_all("Requires-Dist", [])]
    return {r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": extra})}


def package_files() -> set[str]:
    """Return the source files of the package, relative to the checkout, through the links to `envs` and `real`."""
    return {
        f"{Path(folder).relative_to(ROOT)}/{name}"
        for folder, _, names in os.walk(ROOT / "dartsim", followlinks=True)
        for name in names
        if "__pycache__" not in folder and not name.endswith(".so")  # an editable install may be compiled
    }


def files_in(packed: zipfile.ZipFile) -> set[str]:
    return {name for name in packed.namelist() if ".dist-info/" not in name}


def test_it_holds_every_file_of_the_one_package_and_nothing_else(packed: zipfile.ZipFile):
    files = files_in(packed)
    assert files == package_files()
    assert "dartsim/py.typed" in files
    assert any(name.startswith("dartsim/config/presets/") and name.endswith(".toml") for name in files)


@pytest.mark.slow
def test_with_a_compiler_it_holds_the_listed_modules_compiled_too(build_wheel: Callable[..., Path], tmp_path: Path):
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no C compiler, or no headers of Python")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = ["dartsim/native__mypyc.py", *settings["hooks"]["custom"]["modules"]]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    extensions = {source.rpartition(".")[0] + suffix for source in sources}
    built = zipfile.ZipFile(build_wheel(ROOT, tmp_path, compiled=True))
    assert files_in(built) == package_files() | extensions


def test_the_light_install_asks_for_no_torch_and_no_tests(packed: zipfile.ZipFile):
    light = requirements(packed, extra="")
    assert {"simpy", "numpy", "gymnasium"} <= light
    assert not light & {"torch", "transformers", "peft", "docker", "ray", "vllm", "pytest", "playwright"}
    assert "torch" in requirements(packed, extra="train")
    assert {"docker", "httpx"} <= requirements(packed, extra="real")
    assert {"pytest", "ruff", "mypy"} <= requirements(packed, extra="dev")
    assert "torch" not in requirements(packed, extra="dev")


def test_the_command_and_the_pytest_plugin_are_entry_points_that_exist(packed: zipfile.ZipFile):
    (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/entry_points.txt"))
    entries = configparser.ConfigParser()
    entries.read_string(packed.read(name).decode())
    targets = {entries["console_scripts"]["dartsim"], entries["pytest11"]["dartsim"]}
    assert targets == {"dartsim.cli.app:main", "dartsim.sim.pytest_plugin"}
    for target in targets:
        module = target.partition(":")[0].replace(".", "/") + ".py"
        assert module in packed.namelist()


def test_git_ignores_no_file_of_the_packages():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    files = [str((ROOT / file).resolve()) for file in package_files()]  # git follows no links
    # git prints those of the given paths that an ignore rule matches, and exits 1 where there are none.
    done = subprocess.run(["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
