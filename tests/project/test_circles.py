"""No files import each other in a circle, not even for their types or from inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"dartsim": "dartsim", "envs": "dartsim.envs", "real": "dartsim.real", "experiments": "experiments"}
"""Where the code is, and by what name it is imported."""


def modules() -> dict[str, ast.Module]:
    """Return the syntax of every file, by module; that of a package's ``__init__`` by the package."""
    named = {
        ".".join((package, *file.relative_to(ROOT / folder).with_suffix("").parts)).removesuffix(".__init__"): file
        for folder, package in FOLDERS.items()
        for file in sorted((ROOT / folder).rglob("*.py"))
    }
    return {name: ast.parse(file.read_text("utf-8")) for name, file in named.items()}


def imported(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Yield what is imported anywhere in a file: the module, and the name from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)


def arrows(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return which modules each module imports; what a package only hands on counts as imported from its source."""
    handed_on = {
        module: {name: source for source, name in imported(tree) if name is not None} for module, tree in trees.items()
    }

    def home(module: str, name: str | None) -> str:
        if name is None or f"{module}.{name}" in trees:
            return module if name is None else f"{module}.{name}"
        source = handed_on.get(module, {}).get(name)
        return module if source is None or source not in trees or source == module else home(source, name)

    return {module: {home(*one) for one in imported(tree)} & trees.keys() - {module} for module, tree in trees.items()}


def circle(found: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle, in order; nothing where there is none."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(found[module]):
            if around := walk(other, [*path, module]):
                return around
        done.add(module)
        return []

    return next(filter(None, (walk(module, []) for module in sorted(found))), [])


def test_a_circle_is_found():
    trees = {
        "a": ast.parse("from b import thing"),
        "b": ast.parse("from b.inner import thing"),
        "b.inner": ast.parse("def f():\n    import c"),
        "c": ast.parse("if TYPE_CHECKING:\n    from a import A"),
        "d": ast.parse("import a"),
    }
    assert circle(arrows(trees)) == ["a", "b.inner", "c"]


def test_no_files_import_each_other_in_a_circle():
    assert circle(arrows(modules())) == []
