"""Tables written from the code: commands, figures, states, distributions, components, alarms, faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import typer
from pydantic import BaseModel

from dartsim.cli.app import app
from dartsim.config.packaged import workloads as known_workloads
from dartsim.config.schema import Config
from dartsim.core.registry import TAG, Choice, Named, built_in
from dartsim.observe.alarm import KINDS
from dartsim.observe.figures import FIGURES
from dartsim.observe.states import POPULATIONS
from dartsim.sim.faults import KINDS as FAULT_KINDS
from dartsim.sim.latency import describe_kinds


def texts(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of texts, all left-aligned."""
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *rows])


def commands() -> str:
    """Every command, by task, with the short form of its help."""
    root: Any = typer.main.get_command(app)
    by_task: dict[str, list[tuple[str, str]]] = {}
    for task, name, text in _commands(root, "", ""):
        by_task.setdefault(task, []).append((f"`dartsim {name}`", text))
    rows = [("" if i else task, *row) for task, own in by_task.items() for i, row in enumerate(own)]
    return texts(("for", "command", "what it does"), rows)


def _commands(group: Any, before: str, task: str) -> Iterator[tuple[str, str, str]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        panel = task or command.rich_help_panel
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{before}{name} ", panel)
        else:
            help_text = command.short_help or command.help.partition("\n")[0]
            yield panel, f"{before}{name}", help_text.rstrip(".")


def workloads() -> str:
    """Every packaged cluster with its workload."""
    rows = [(f"`{name}`", tree["about"]["title"]) for name, tree in known_workloads().items()]
    return texts(("packaged cluster", "what it is"), rows)


def figures() -> str:
    """Every figure of ``summary.json`` that pages show, with its unit and definition."""
    rows = [(f"`{name}`", style.unit or "–", style.definition) for name, style in FIGURES.items()]
    return texts(("figure", "unit", "definition"), rows)


def states() -> str:
    """Every state that time is counted in."""
    rows = [
        (population.member, state.info.label, state.info.meaning.removeprefix("idle: "), "yes" * state.info.useful)
        for population in POPULATIONS.values()
        for state in population.states
    ]
    return texts(("component", "state", "meaning", "utilized"), rows)


def distributions() -> str:
    """Every kind of latency distribution with its keys."""
    rows = [
        (
            f"`{kind}`",
            " or ".join(", ".join(_with_meaning(*item) for item in form.items()) for form in forms),
            meaning.replace("``", "`"),
        )
        for kind, forms, meaning in describe_kinds()
    ]
    return texts(("kind", "keys", "meaning"), rows)


def _with_meaning(key: str, meaning: str) -> str:
    """Return a key of a distribution, with its meaning unless its name says it."""
    return f"`{key}`" if key.endswith("seconds") else f"`{key}` ({meaning})"


def components() -> str:
    """Every kind of component with its built-in ones, and the setting that chooses it."""
    rows = [
        (f"`{kind}`", f"`{setting}`", ", ".join(f"`{name}`" for name in built_in(kind)))
        for kind, setting in _choosing_settings(Config, "")
    ]
    return texts(("kind", "setting", "built in"), rows)


def _choosing_settings(section: type[BaseModel], before: str) -> Iterator[tuple[str, str]]:
    """Yield each kind of component with the setting that chooses one."""
    for name, field in section.model_fields.items():
        for item in field.metadata:
            if isinstance(item, Choice):
                yield item.kind, f"{before}{name}.{TAG}"
            elif isinstance(item, Named):
                yield item.kind, f"{before}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _choosing_settings(field.annotation, f"{before}{name}.")


def alarms() -> str:
    """Every alarm with its exit code, its likely cause and what to do."""
    rows = [(f'<a id="{name}"></a>`{name}`', str(kind.code), kind.likely, kind.todo) for name, kind in KINDS.items()]
    return texts(("alarm", "exit code", "likely cause", "what to do"), rows)


FAULT_PLACES: Mapping[str, tuple[str, ...]] = {
    "desktops": ("desktop", "host"),
    "engines": ("worker", "publication"),
    "trainer": ("learner",),
    "network, database, process": ("network", "message", "store", "process"),
}
"""The parts of a cluster, by the beginnings of the places where their faults are injected."""


def faults() -> str:
    """Every kind of fault, by the part of the cluster that it hits and by what the system does about it."""
    rows = []
    for part, places in FAULT_PLACES.items():
        kinds_by_response: dict[str, list[str]] = {}
        for kind in FAULT_KINDS.values():
            if kind.place.startswith(places):
                name = f"**`{kind.name}`**" if kind.real_test else f"`{kind.name}`"
                kinds_by_response.setdefault(kind.response, []).append(name)
        rows += [(part, ", ".join(names), response) for response, names in kinds_by_response.items()]
    return texts(("part", "kinds", "what the system does"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "workloads": workloads,
    "figure-definitions": figures,
    "states": states,
    "distributions": distributions,
    "components": components,
    "alarms": alarms,
    "fault-kinds": faults,
}
"""Each table by the name of its mark."""
