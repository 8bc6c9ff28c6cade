"""``--help``: examples that can be pasted as they stand; typos; the version."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dartsim.cli.app import COMMANDS, app

WIDTH = 78
"""Columns of a line in a terminal of 80: what is wider is broken, and is two commands once it is pasted."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))
EXAMPLES = [
    example.replace("\\\n", "")
    for path, command in ALL.items()
    if path
    for example in (command.epilog or "").removeprefix("Examples:\n\n").split("\n\n")
    if example
]


def test_every_command_has_a_line_in_the_list_of_its_task():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    for panel, listed in COMMANDS.items():
        part = shown.split(f"─ {panel} ─")[1].split("╰")[0]
        assert {line[2:].split()[0] for line in part.splitlines()[1:] if line[2] != " "} == set(listed)


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("rnu", "Did you mean 'run'?"),
        ("desktop taks", "Did you mean 'tasks'?"),
        ("run --pesret dart", "--preset"),
        ("compare coupled dart-mesured", "did you mean 'dart-measured'?"),
        ("fuzz --preset copled", "did you mean 'coupled'?"),
        ("run --faults hostle", "'hostile'"),
        ("run --set rollout.num_env=3", "did you mean 'rollout.num_envs'?"),
        ("run --on osworl", "did you mean 'osworld'?"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_name(dartsim, capsys, words, suggestion):
    assert dartsim(*words.split()) == 2
    assert suggestion in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("path", [path for path in ALL if path], ids=" ".join)
def test_every_example_fits_a_narrow_terminal(path):
    epilog = ALL[path].epilog or ""
    assert [line for line in epilog.split("\n") if len(line) > WIDTH] == []
    assert epilog or hasattr(ALL[path], "commands"), "a command has examples"


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_request_that_parses(example):
    words = shlex.split(example)
    words = words[: min([words.index(sign) for sign in ("|", ">") if sign in words], default=len(words))]
    assert words[0] == "dartsim"
    path = max((path for path in ALL if tuple(words[1 : 1 + len(path)]) == path), key=len)
    context = ALL[path].make_context(words[0], words[1 + len(path) :])
    assert context.command is ALL[path]
    assert context.args == []


def test_the_version_is_one_line_with_what_a_bug_report_needs(dartsim, capsys):
    assert dartsim("--version") == 0
    installed = {name: re.escape(version(name)) for name in ("dartsim", "numpy", "simpy")}
    libraries = "numpy {numpy}, simpy {simpy}".format(**installed)
    line = f"dartsim {installed['dartsim']}, (compiled|pure Python) \\(Python 3[.0-9]+[a-z0-9]*, {libraries}\\)\n"
    assert re.fullmatch(line, capsys.readouterr().out)
