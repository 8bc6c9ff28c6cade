"""The contracts on imports hold here, and each of them breaks where it should."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

# file -> an import that breaks a contract, and that contract's name
PLANTED = {
    "dartsim/core/types.py": (
        "import dartsim.core.ports",
        "Types know no port, errors and random streams know nothing",
    ),
    "dartsim/core/ports.py": ("import dartsim.observe", "Imports point downwards"),
    "dartsim/run/system.py": ("import dartsim.lab", "Imports point downwards"),
    "dartsim/sim/model.py": ("import dartsim.envs", "Imports point downwards"),
    "dartsim/unplaced.py": ("", "Every module of dartsim has its place"),
    "dartsim/curation/data.py": ("import simpy", "SimPy only in dartsim.sim"),
    "envs/mock.py": ("import torch", "The simulator needs no torch, docker, vllm or ray"),
    "real/desktop.py": ("import dartsim.envs.simulated", "What is real knows nothing simulated"),
}

# Imports that must stay allowed.
FINE = {
    "dartsim/sim/loop.py": "import simpy\nimport dartsim.rollout.service\n",
    "dartsim/sim/deep/inner.py": "import simpy.core\n",
    "dartsim/cli/app.py": "import dartsim.sim\nimport dartsim.envs.base\nimport dartsim.real.machine\n",
    "dartsim/lab/plan.py": "import dartsim.run\n",
    "envs/base.py": "import dartsim.core.types\nimport gymnasium\n",
    "envs/simulated.py": "import dartsim.sim.loop\nimport dartsim.envs.base\n",
    "real/machine.py": "import torch\nimport docker\nimport dartsim.trainer\nimport dartsim.envs\n",
    "experiments/speed.py": "import simpy\nimport dartsim.cli.app\nimport dartsim.real\n",
    "dartsim/rollout/actors.py": "import dartsim.core.ports\nimport dartsim.observe\n",
    "dartsim/observe/__init__.py": "",
    "dartsim/core/ports.py": "import dartsim.core.types\n",
    "dartsim/core/types.py": "",
}


def write(root: Path, file: str, text: str) -> None:
    """Write a module and the packages around it."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in path.relative_to(root).parents[:-1]:
        (root / folder / "__init__.py").touch()
    path.write_text(text, encoding="utf-8")


def lint(root: Path) -> tuple[int, str]:
    """Check the contracts on the packages in a folder; return the exit status and what was printed."""
    command = [sys.executable, "-c", LINT]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """A small tree of the same shape that keeps every contract."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    layers = "cli config core curation fuzz lab observe rollout run sim store trainer"
    for package in (*(f"dartsim/{layer}" for layer in layers.split()), "envs", "real"):
        write(tmp_path, f"{package}/__init__.py", "")
    for link in ("envs", "real"):
        (tmp_path / "dartsim" / link).symlink_to(f"../{link}")
    for file, text in FINE.items():
        write(tmp_path, file, text)
    return tmp_path


def test_the_contracts_hold():
    status, printed = lint(ROOT)
    assert status == 0, printed
    assert re.search(r"Contracts: \d+ kept, 0 broken", printed)


def test_they_hold_for_what_the_design_allows(skeleton: Path):
    status, printed = lint(skeleton)
    assert status == 0, printed


def test_every_planted_import_is_found_under_its_contract(skeleton: Path):
    for file, (statement, _) in PLANTED.items():
        write(skeleton, file, statement + "\n")
    status, printed = lint(skeleton)
    assert status == 1
    for contract in {contract for _, contract in PLANTED.values()}:
        assert f"{contract} BROKEN" in printed, printed
    for file, (statement, _) in PLANTED.items():
        importer = f"dartsim.{file}".replace("dartsim.dartsim/", "dartsim.").removesuffix(".py").replace("/", ".")
        imported = statement.removeprefix("import ")
        wanted = f"{importer} -> {imported}" if statement else "unplaced"
        assert wanted in printed, f"{wanted} not in\n{printed}"
