"""No wall clock, no polling and no hidden chance where the event loop owns time: ruff's rules, and two of our own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HASHING = {"dartsim/observe/records.py", "dartsim/sim/event_heap.py", "dartsim/sim/loop.py", "dartsim/sim/perturb.py"}
"""Hash tuples of numbers, which no hash seed changes."""


def drawn_or_hashed(tree: ast.AST) -> Iterator[str]:
    """Yield each call of ``default_rng`` without a seed, and of ``hash`` outside ``__hash__``."""
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__hash__"]
    fine = {call for method in methods for call in ast.walk(method)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in fine:
            name = ast.unparse(node.func).rpartition(".")[2]
            unseeded = not node.args or ast.unparse(node.args[0]) == "None"
            if name == "hash" or (name == "default_rng" and unseeded):
                yield name


def test_no_generator_is_unseeded_and_no_hash_differs_between_processes():
    files = [file for folder in ("dartsim", "envs") for file in (ROOT / folder).rglob("*.py")]
    found = {
        (file.relative_to(ROOT).as_posix(), name)
        for file in files
        if not file.is_relative_to(ROOT / "dartsim" / "cli")
        for name in drawn_or_hashed(ast.parse(file.read_text("utf-8")))
    }
    assert len(files) > 100
    assert found == {(file, "hash") for file in HASHING}


def test_a_method_that_hashes_is_fine_and_a_seed_too():
    source = (
        "class A:\n def __hash__(self): return hash(self.a)\nhash('a'), default_rng(7), np.random.default_rng(None)"
    )
    assert list(drawn_or_hashed(ast.parse(source))) == ["hash", "default_rng"]
