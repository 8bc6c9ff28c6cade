"""What an import loads. A list of modules says it exactly, where a timing would depend on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Each takes 0.05 s or more to load, or is not part of the light install.
HEAVY = {
    "docker", "gymnasium", "numpy", "peft", "playwright", "psutil", "pydantic", "pytest",
    "ray", "rich", "scipy", "simpy", "tensorboard", "tensorboardX", "torch", "transformers",
    "typer", "vllm",
}  # fmt: skip
EXTRAS = [
    "aiohttp", "cssselect", "docker", "h11", "httpx", "lxml", "openpyxl", "orjson", "peft", "ray",
    "safetensors", "torch", "transformers", "vllm",
]  # fmt: skip
LEARN = [
    *(f"dartsim.run.{name}" for name in ("demonstrations", "model")),
    "dartsim.run.imported_successes",
    *(f"dartsim.real.{name}" for name in ("engines.backend", "learners.backend", "vlm.plan")),
]
"""What puts a real model into a run: loaded where there is something to train or to serve."""
DEV = ["aiotools", "hypothesis", "playwright", "pyinstrument", "tensorboard", "trio"]

IMPORT_ALL = """
import importlib, json, pkgutil, sys
for name in {blocked}:
    sys.modules[name] = None  # an import of it now raises ModuleNotFoundError
import dartsim
names = [
    module.name
    for module in pkgutil.walk_packages(dartsim.__path__, "dartsim.")
    if module.name not in {skipped}
]
for name in names:
    importlib.import_module(name)
print(json.dumps(names))
"""


def run(program: str) -> str:
    """Run a program in a new interpreter that finds this checkout first and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has loaded after one statement."""
    printed = run(f"{statement}\nimport json, sys\nprint(json.dumps([m.partition('.')[0] for m in sys.modules]))")
    return set(json.loads(printed))


@pytest.mark.parametrize("module", ["dartsim", "dartsim.core.types", "dartsim.core.ports", "dartsim.core.errors"])
def test_a_light_module_loads_nothing_heavy(module: str):
    loaded = loaded_by(f"import {module}")
    assert "dartsim" in loaded
    assert loaded & HEAVY == set()


def test_the_command_line_starts_without_numbers_and_threads():
    # numpy's threads, begun before `ended_by_term` blocks Ctrl-C where a shell ignores it, would take it all the same.
    program = (
        "import json, os, sys, dartsim.cli.app\nprint(json.dumps([len(os.listdir('/proc/self/task')), *sys.modules]))"
    )
    threads, *loaded = json.loads(run(program))
    assert "dartsim.cli.run" in loaded
    assert {"docker", "gymnasium", "numpy", "simpy", "torch"} & set(loaded) == set()
    assert threads == 1


def need_torch() -> list[str]:
    """Return the modules of `real` that use torch as soon as they are imported."""
    files = [p for p in (ROOT / "real").rglob("*.py") if p.name != "machine.py" and p != ROOT / "real" / "__init__.py"]
    names = [".".join(("dartsim", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__") for p in files]
    return sorted(names)


def test_every_module_imports_without_the_extras():
    # The plugin for pytest is for tests only; models and learners are what the extra `train` is for,
    # real desktops what `real` is for.
    skipped = [
        "dartsim.sim.pytest_plugin",
        "dartsim.testing.fixture",
        "dartsim.real.osworld.backend",
        *LEARN,
        *need_torch(),
    ]
    names = json.loads(run(IMPORT_ALL.format(blocked=EXTRAS + DEV + ["pytest"], skipped=skipped)))
    assert {"dartsim.core.types", "dartsim.real.machine"} <= set(names)
