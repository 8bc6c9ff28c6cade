"""One import package: from a checkout, a wheel or an sdist, in any folder, and no module under two names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "dart",
    "--hours",
    "1",
    "--set",
    "curation.batch.min_groups=1",
    "--set",
    "rollout.num_envs=4",
    "--set",
    "rollout.num_workers=1",
]


def python(*arguments: str, cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def other_project(tmp_path: Path) -> Path:
    """Return a folder whose own `envs`, `real`, `experiments` and `tests` are not ours."""
    folder = tmp_path / "other"
    for name in ("envs", "real", "experiments"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"NAME = 'another {name}'\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "__init__.py").touch()
    (folder / "tests" / "test_it.py").write_text(
        "import envs, real\n"
        "import dartsim.envs, dartsim.real\n"
        "def test_both_are_there():\n"
        "    assert (envs.NAME, real.NAME) == ('another envs', 'another real')\n"
        "    assert dartsim.envs.__name__ == 'dartsim.envs'\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return folder


def test_commands_and_tests_of_a_wheel_work_beside_other_folders_of_these_names(other_project, wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert sorted(path.name for path in site.iterdir()) == ["dartsim", "dartsim-0.1.0.dist-info"]
    done = python("-m", "dartsim", "run", *SMALL, "--json", "figures.json", cwd=other_project, path=site)
    assert done.returncode == 0, done.stderr
    assert json.loads((other_project / "figures.json").read_text())["preset"] == "dart"
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=other_project, path=site)
    assert done.returncode == 0, done.stdout + done.stderr
    where = python("-c", "import dartsim.real; print(dartsim.real.__file__)", cwd=other_project, path=site)
    assert Path(where.stdout.strip()) == site / "dartsim" / "real" / "__init__.py"


@pytest.mark.parametrize("name", ["envs", "real"])
def test_the_folders_at_the_top_are_no_packages_of_their_own(name):
    done = python("-c", f"import {name}", cwd=ROOT, path=ROOT)
    assert f"this package is dartsim.{name}, not {name}" in done.stderr


NAMES = """
import collections, json, os, sys
import dartsim.real, dartsim.envs.mock
from dartsim.cli.app import app
app({arguments!r}, standalone_mode=False)
names = collections.defaultdict(list)
for name, module in sys.modules.items():
    file = getattr(module, "__file__", None)
    if file and os.path.realpath(file).startswith({folders!r}) and name != "__main__":
        names[os.path.realpath(file)].append(name)
print(json.dumps([list(names.values()), "torch" in sys.modules]))
"""


def test_a_run_loads_no_module_under_two_names_and_no_torch(tmp_path):
    # Not the whole checkout: the README's virtual environment may lie in it.
    folders = tuple(f"{ROOT / name}{os.sep}" for name in ("dartsim", "envs", "real", "experiments", "tests"))
    program = NAMES.format(arguments=["run", *SMALL], folders=folders)
    done = python("-c", program, cwd=tmp_path, path=ROOT)
    assert done.returncode == 0, done.stderr
    loaded, torch = json.loads(done.stdout.splitlines()[-1])
    assert not torch, "it takes two seconds to load"
    assert len(loaded) > 100
    assert [names for names in loaded if len(names) > 1] == []
    assert {name.partition(".")[0] for (name,) in loaded} == {"dartsim"}
