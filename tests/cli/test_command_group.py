"""Examples of ``--help`` parse; typos are answered with the nearest name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from dartsim.cli.app import app


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


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [("rnu", "'run'"), ("desktop taks", "'tasks'"), ("run --hour 3", "--hours"), ("run --faults hostle", "'hostile'")],
)
def test_a_typo_is_answered_with_the_nearest_name(dartsim, capsys, words, suggestion):
    assert dartsim(*words.split()) == 2
    assert suggestion in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_request_that_parses(example):
    words = shlex.split(example)
    words = words[: min([words.index(sign) for sign in ("|", ">") if sign in words], default=len(words))]
    assert words[0] == "dartsim"
    path = max((path for path in ALL if tuple(words[1 : 1 + len(path)]) == path), key=len)
    context = ALL[path].make_context(words[0], words[1 + len(path) :])
    assert context.command is ALL[path]
    assert context.args == []
