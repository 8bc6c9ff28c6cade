"""No wall clock, no polling and no hidden chance where the event loop owns time.

The checker reads the syntax tree of every file of ``dartsim`` (outside ``dartsim/cli``) and ``envs``. It is
stricter than the linter's list of banned imports: it also sees polling, unseeded generators and ``hash``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

CLOCK = "wall clock; the loop owns time: asyncio.sleep, get_running_loop().time()"
CHANCE = "hidden chance; take a numpy.random.Generator"
FOREIGN = "threads, processes and sockets live in real/"
POLLING = "polling; wait on a queue, an event or a condition"

BANNED_MODULES = {
    "time": CLOCK,
    "datetime": CLOCK,
    "sched": CLOCK,
    "random": CHANCE,
    "secrets": CHANCE,
    "uuid": CHANCE,
    "threading": FOREIGN,
    "_thread": FOREIGN,
    "multiprocessing": FOREIGN,
    "concurrent": FOREIGN,
    "subprocess": FOREIGN,
    "socket": FOREIGN,
    "selectors": FOREIGN,
}

BANNED_CALLS = {
    "os.urandom": CHANCE,
    "os.getrandom": CHANCE,
    "os.system": FOREIGN,
    "os.popen": FOREIGN,
    "os.fork": FOREIGN,
    "os.times": CLOCK,
    "signal.alarm": CLOCK,
    "signal.setitimer": CLOCK,
    "asyncio.create_subprocess_exec": FOREIGN,
    "asyncio.create_subprocess_shell": FOREIGN,
    "asyncio.open_connection": FOREIGN,
    "asyncio.start_server": FOREIGN,
    "hash": "hash of a string differs between processes; use hashlib, or a number of your own",
}

# What numpy.random offers besides its one global, shared generator.
GENERATORS = {"Generator", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937", "default_rng"}

ALLOWED: dict[tuple[str, str], str] = {
    ("dartsim/observe/records.py", "hash"): "of tuples of numbers, which no hash seed changes: the domain hash",
    ("dartsim/sim/event_heap.py", "hash"): "of tuples of numbers, which no hash seed changes: the event hash",
    ("dartsim/sim/loop.py", "hash"): "of tuples of numbers, which no hash seed changes: the event hash",
    ("dartsim/sim/perturb.py", "hash"): "of tuples of numbers, which no hash seed changes: the event hash",
}
"""(file, what the checker names) -> why it may stay."""


class Violation(NamedTuple):
    """One place that breaks the ban; ``symbol`` is what the allow-list names."""

    path: str
    line: int
    symbol: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.symbol}: {self.reason}"


def violations(source: str, path: str) -> list[Violation]:
    """Return every violation in one file, in the order of its lines."""
    checker = _Checker()
    checker.visit(ast.parse(source, filename=path))
    return [Violation(path, *found) for found in sorted(checker.found)]


class _Checker(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[tuple[int, str, str]] = []
        self.names: dict[str, str] = {}  # local name -> what it was imported as
        self.inside_hash_method = False

    def report(self, node: ast.stmt | ast.expr, symbol: str, reason: str) -> None:
        self.found.append((node.lineno, symbol, reason))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.names[bound] = alias.name if alias.asname else bound
            self.check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            self.names[alias.asname or alias.name] = f"{module}.{alias.name}"
        self.check_module(node, module)

    def check_module(self, node: ast.stmt | ast.expr, module: str) -> None:
        reason = BANNED_MODULES.get(module.partition(".")[0])
        if reason is not None:
            self.report(node, module, reason)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, self.inside_hash_method = self.inside_hash_method, node.name == "__hash__"
        self.generic_visit(node)
        self.inside_hash_method = before

    def visit_Call(self, node: ast.Call) -> None:
        name = self.full_name(node.func)
        if name in {"__import__", "importlib.import_module"} and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                self.check_module(node, target.value)
        elif name.startswith("numpy.random."):
            self.check_numpy(node, name)
        elif name in BANNED_CALLS and not (name == "hash" and self.inside_hash_method):
            self.report(node, name, BANNED_CALLS[name])
        self.generic_visit(node)

    def check_numpy(self, node: ast.Call, name: str) -> None:
        unseeded = not node.args and not node.keywords
        none = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value is None
        if name.rpartition(".")[2] not in GENERATORS or unseeded or none:
            self.report(node, name, CHANCE)

    def visit_While(self, node: ast.While) -> None:
        for sleep in self.sleeps(node.body):
            argument = sleep.args[0] if sleep.args else None
            if isinstance(argument, ast.Constant) or len(node.body) == 1:
                self.report(sleep, "asyncio.sleep in while", POLLING)
        self.generic_visit(node)

    def sleeps(self, body: list[ast.stmt]) -> Iterator[ast.Call]:
        """Yield the awaited sleeps of a loop's body, not those of loops and functions inside it."""
        for node in _walk_own(body):
            is_sleep = isinstance(node, ast.Call) and self.full_name(node.func) == "asyncio.sleep"
            if is_sleep:
                yield node

    def full_name(self, node: ast.expr) -> str:
        """Return ``numpy.random.rand`` for ``np.random.rand``; empty if it is no dotted name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.names.get(node.id, node.id))
        return ".".join(reversed(parts))


def _walk_own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.While)
    pending: list[ast.AST] = [node for node in body if not isinstance(node, nested)]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, nested))


def checked_files() -> list[Path]:
    files = [*ROOT.glob("dartsim/**/*.py"), *ROOT.glob("envs/**/*.py")]
    return sorted(file for file in files if not file.is_relative_to(ROOT / "dartsim" / "cli"))


def all_violations() -> list[Violation]:
    return [
        violation
        for file in checked_files()
        for violation in violations(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix())
    ]


def test_the_ban_holds():
    assert len(checked_files()) > 3
    broken = [str(v) for v in all_violations() if (v.path, v.symbol) not in ALLOWED]
    assert not broken, "\n" + "\n".join(broken)


def test_every_exception_is_still_needed():
    assert set(ALLOWED) <= {(v.path, v.symbol) for v in all_violations()}


@pytest.mark.parametrize(
    ("source", "symbol"),
    [
        ("import time", "time"),
        ("from time import monotonic", "time"),
        ("import random", "random"),
        ("from concurrent.futures import ThreadPoolExecutor", "concurrent.futures"),
        ("import importlib\nimportlib.import_module('time')", "time"),
        ("from os import urandom as entropy\nentropy(8)", "os.urandom"),
        ("import numpy as np\nnp.random.rand()", "numpy.random.rand"),
        ("from numpy.random import default_rng\ndefault_rng()", "numpy.random.default_rng"),
        ("import numpy as np\nnp.random.default_rng(None)", "numpy.random.default_rng"),
        ("key = hash('a')", "hash"),
        ("import asyncio\nasync def f():\n while g():\n  await asyncio.sleep(0.1)", "asyncio.sleep in while"),
        (
            "from asyncio import sleep\nasync def f():\n while True:\n  if g():\n   break\n  await sleep(1)",
            "asyncio.sleep in while",
        ),
        ("import asyncio\nasync def f(s):\n while g():\n  await asyncio.sleep(s)", "asyncio.sleep in while"),
    ],
)
def test_a_planted_violation_is_found_once_at_its_line(source: str, symbol: str):
    (found,) = violations(source, "planted.py")
    last = len(source.splitlines())
    assert (found.path, found.line, found.symbol) == ("planted.py", last, symbol)
    assert str(found).startswith(f"planted.py:{last}: {symbol}: ")


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
        "import asyncio\nasync def f(s):\n    while True:\n        await asyncio.sleep(s)\n        g()",
        "import asyncio\nasync def f():\n    loop = asyncio.get_running_loop()\n    return loop.time()",
        "import asyncio\nasync def f(loop):\n    await loop.run_in_executor(None, g)",
        "import numpy as np\nnp.random.default_rng(7)\nnp.random.Generator(np.random.PCG64(7))",
        "class A:\n    def __hash__(self):\n        return hash((self.a, self.b))",
        "import timeit_like\nimport randomness\nself.time()",
    ],
)
def test_what_is_allowed_is_not_reported(source: str):
    assert violations(source, "fine.py") == []
