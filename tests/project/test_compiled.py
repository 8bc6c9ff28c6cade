"""The two forms of dartsim: what a build does without a compiler, and how the source is chosen."""

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dartsim.envs
import dartsim.testing

ROOT = Path(__file__).parents[2]
HOOKS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
BY_MYPYC = [module for module in HOOKS["custom"]["modules"] if module.endswith(".py")]


@pytest.fixture
def hook():
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from hatchling.bridge.app import Application

    return module.CompiledModules(str(ROOT), HOOKS["custom"], None, None, "", "wheel", Application())


def test_every_listed_module_is_there():
    assert all((ROOT / module).is_file() for module in HOOKS["custom"]["modules"])


@pytest.mark.parametrize("module", BY_MYPYC)
def test_no_compiled_coroutine_waits_while_it_handles_an_exception(module):
    """mypyc (2.4) forgets the exception when such a coroutine waits, and then raises None."""
    nodes = list(ast.walk(ast.parse((ROOT / module).read_text())))
    handling = [part for node in nodes for part in (*getattr(node, "handlers", ()), *getattr(node, "finalbody", ()))]
    waits = [inner for part in handling for inner in ast.walk(part) if isinstance(inner, ast.Await)]
    waits += [node for node in nodes if isinstance(node, ast.AsyncWith | ast.AsyncFor)]
    assert [node.lineno for node in waits] == []


@pytest.mark.parametrize("module", BY_MYPYC)
def test_no_compiled_constructor_passes_options_on(module):
    """mypyc (2.4) gives a compiled ``super().__init__`` the dictionary of ``**options`` as one argument."""
    nodes = ast.walk(ast.parse((ROOT / module).read_text()))
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__"]
    unpacked = [call for call in calls for keyword in call.keywords if keyword.arg is None]
    assert [call.lineno for call in unpacked] == []


@pytest.mark.parametrize("module", BY_MYPYC)
def test_no_compiled_class_is_an_exception(module):
    """mypyc (2.4) compiles it, and the process crashes when one is raised."""
    found = importlib.import_module(module.removesuffix(".py").replace("/", "."))
    here = [each for each in vars(found).values() if isinstance(each, type) and each.__module__ == found.__name__]
    assert not [each for each in here if issubclass(each, BaseException)]


def classes_in(file):
    """Yield the classes of a file."""
    return (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ClassDef))


def open_to_interpreted(node):
    """Return whether a class may have interpreted subclasses where it is compiled; a named tuple is no class in C."""
    allowed = any("allow_interpreted_subclasses=True" in ast.unparse(each) for each in node.decorator_list)
    return allowed or any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)


def test_compiled_classes_allow_the_interpreted_subclasses_that_they_have_and_those_of_plug_ins():
    """Otherwise "interpreted classes cannot inherit from compiled", and only in the wheel."""
    closed = {node.name for module in BY_MYPYC for node in classes_in(ROOT / module) if not open_to_interpreted(node)}
    compiled = {(ROOT / module).resolve() for module in BY_MYPYC}
    interpreted = [
        file
        for folder in ("dartsim", "envs", "real", "tests", "experiments", "docs")
        for file in (ROOT / folder).rglob("*.py")
        if file.resolve() not in compiled
    ]
    subclassed = {
        f"{file.relative_to(ROOT)}: {node.name}({base})"
        for file in interpreted
        for node in classes_in(file)
        for base in (ast.unparse(each).rpartition(".")[2] for each in node.bases)
        if base in closed
    }
    assert subclassed == set()
    public = {*dartsim.__all__, *dartsim.envs.__all__, *dartsim.testing.__all__}
    assert closed & public == {"Snapshot", "UpdateRecord"}, "given to figures and instruments, and no base"


@pytest.mark.parametrize(("variable", "value"), [("CC", "no-such-compiler"), ("DARTSIM_COMPILE", "0")])
def test_a_build_that_cannot_compile_is_pure_python_and_needs_nothing(hook, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    build = {"force_include": {}}
    assert hook.dependencies() == []
    hook.initialize("standard", build)
    assert build == {"force_include": {}}


def test_a_build_that_has_to_compile_says_why_it_cannot(hook, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("DARTSIM_COMPILE", "1")
    with pytest.raises(RuntimeError, match=r"could not be compiled: no C compiler \(no-such-compiler\)"):
        hook.initialize("standard", {})


def test_an_editable_install_compiles_only_if_asked(hook, monkeypatch):
    monkeypatch.delenv("DARTSIM_COMPILE", raising=False)
    build = {"force_include": {}}
    hook.initialize("editable", build)
    assert build == {"force_include": {}}


def test_a_variable_has_the_source_run():
    script = (
        "from dartsim.core.compiled import form; from dartsim.sim.event_heap import __file__; print(__file__, form())"
    )
    environment = {**os.environ, "DARTSIM_PURE_PYTHON": "1"}
    shown = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.split(maxsplit=1)[0].endswith("event_heap.py")
    assert "pure Python" in shown.stdout
