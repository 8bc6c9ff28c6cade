"""Sandboxes, with a small stand-in for ``desktop-env`` whose metrics run code."""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dartsim.real.scoring import FileInput, SandboxPool
from dartsim.real.scoring.container import open_pool as provide_pool
from dartsim.real.scoring.sandbox import ScoreLimits, SupervisedSandbox

METRICS = '''
from .basic_os import check_gnome_favorite_apps

def run_code(path, **options):
    """Run an agent's file, as check_python_file_by_test_suite does, and give what it left in ``score``."""
    names = {"options": options}
    exec(open(path).read(), names)
    return names.get("score", 0.0)

def same_text(result, expected, **options):
    a, b = open(result).read(), open(expected).read()
    return float(a.lower() == b.lower() if options.get("ignore_case") else a == b)

def length(value, **options):
    return float(len(value))

def kind_of(value, kind):
    return float(type(value).__name__ == kind)
'''
BASIC_OS = """
def check_gnome_favorite_apps(apps_str, rule):
    return float(eval(apps_str) == rule["expected"])
"""
GETTERS = """
import os, urllib.request

def get_page(env, config):
    path = os.path.join(env.cache_dir, config["dest"])
    data = urllib.request.urlopen(f"http://{env.vm_ip}:{env.chromium_port}/page").read()
    open(path, "wb").write(data)
    return path

def get_file(env, config):
    path = os.path.join(env.cache_dir, config["dest"])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write("the agent's")
    return path

def get_guess(env, config):
    try:
        return urllib.request.urlopen(f"http://{env.vm_ip}:{env.server_port}/page").read().decode()
    except OSError:
        return "nothing"

def get_asked(env, config):
    try:
        asked = env
        for name in config["ask"]:
            asked = getattr(asked, name)
        return asked(*config["with"]) if callable(asked) else asked
    except Exception:
        if config.get("swallows"):
            return "nothing"
        raise

def get_lacking(env, config):
    return config["infos"][0]["name"]

def get_shape(env, config):
    return {"tuple": ("a", 1), "set": {1}, "none": None, "list": [None], "text": "x" * 100_000}[config["shape"]]
"""

# One sandbox serves many tests: calls are short, or end by these limits.
LIMITS = ScoreLimits(metric_seconds=3.0, getter_seconds=8.0, cpu_seconds=1, memory_mib=128, scratch_mib=32)


@pytest.fixture(scope="session")
def evaluator_home(tmp_path_factory) -> Path:
    """An evaluator's environment with a stand-in for ``desktop-env``."""
    home = tmp_path_factory.mktemp("evaluators") / "evaluator"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    site = next((home / "lib").glob("python3.*/site-packages"))
    package = site / "desktop_env" / "evaluators"
    files = {"metrics/__init__.py": METRICS, "metrics/basic_os.py": BASIC_OS, "getters/__init__.py": GETTERS}
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info = site / "desktop_env-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: desktop-env\nVersion: 9.9\n")
    return home


class OpenPool:
    """A pool of one sandbox on a loop of its own."""

    def __init__(self, portal: BlockingPortal, pool: SandboxPool, folder: Path):
        self.portal = portal
        self.pool = pool
        self.folder = folder

    def metric(self, name: str, *arguments, **options) -> float:
        return self.run(lambda sandbox: sandbox.metric(name, arguments, options))

    def run(self, call: Callable[[SupervisedSandbox], Awaitable[Any]]):
        return self.portal.call(self.pool.run, call)

    def code(self, text: str, **options) -> float:
        """Run an agent's code."""
        return self.metric("run_code", self.file("answer.py", text), **options)

    def file(self, name: str, content: str | bytes) -> FileInput:
        path = self.folder / name.replace("/", "_")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return FileInput(path, name)


@contextmanager
def opened(home: Path | None, folder: Path, limits: ScoreLimits = LIMITS) -> Iterator[OpenPool]:
    """Provide a pool of one sandbox."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(provide_pool(home, size=1, limits=limits)) as pool,
    ):
        yield OpenPool(portal, pool, folder)


@pytest.fixture(scope="session")
def open_pool(docker_engine) -> Callable[..., Any]:
    """``opened``, for tests that want a pool of their own."""
    return opened


@pytest.fixture(scope="session")
def sandbox(docker_engine, evaluator_home, tmp_path_factory) -> Iterator[OpenPool]:
    """A pool of one sandbox, with the stand-in for ``desktop-env``."""
    with opened(evaluator_home, tmp_path_factory.mktemp("files")) as pool:
        yield pool
