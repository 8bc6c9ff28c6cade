"""``dartsim check``: what works on this machine, and whether a configuration would run on it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dartsim.cli.console import TextConsole, errors, result, table
from dartsim.cli.options import (
    EVALUATION,
    Backend,
    Json,
    Out,
    Overrides,
    SchedulerArgument,
    Workers,
    backend_overrides,
    load_config,
    new_folder,
)

if TYPE_CHECKING:
    from dartsim.config import Config

MOST_REASONS = 8


class StandIn(StrEnum):
    """Parts that a stand-in can replace."""

    DESKTOPS = "desktops"
    ENGINES = "engines"
    LEARNER = "learner"
    ALL = "all"


def check(
    scheduler: SchedulerArgument = None,
    evaluation: Annotated[bool, typer.Option("--eval", help="Check an evaluation of it, without training.")] = (False),
    stand_in: Annotated[
        list[StandIn] | None,
        typer.Option(
            help="Run it here for a few minutes, with a stand-in for this part: desktops, engines, learner, or all; "
            "repeatable."
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes of the run with stand-ins.")] = 10.0,
    backend: Backend = None,
    workers: Workers = None,
    overrides: Overrides = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    """Check what works on this machine, or whether a configuration would work here.

    Nothing is started. For a configuration it prints which processes and containers a run would start, the memory and
    disk space that they need, which tasks will run, and what is missing on this machine.

    With --stand-in the configuration runs at full size for a few minutes, with servers in place of desktops and engines
    that answer immediately. This shows whether this machine keeps up with the rates of the modeled cluster.

    Exit code 1 if something is missing or too slow, 2 if the configuration cannot work anywhere.

    Examples:
        dartsim check
        dartsim check --json - | jq .works
        dartsim check osworld-8gpu
        dartsim check my.toml --eval --set tasks.list_name=test_nogdrive
        dartsim check osworld-8gpu --stand-in all --minutes 10
    """
    from dartsim.core.errors import ConfigError
    from dartsim.core.secrets import redact_tree

    changes = [*backend_overrides(backend, workers), *(overrides or ())]
    if scheduler is None:
        if changes or evaluation or stand_in:
            raise ConfigError("name a configuration to check: a preset or a TOML file")
        _check_machine(json_file)
        return
    if evaluation:
        changes += ["backend.learner=local", *EVALUATION]
    config = load_config(scheduler, overrides=changes)
    if stand_in:
        _run_with_stand_ins(config, stand_in, minutes, out_folder, json_file)
        return
    from dartsim.cli.run_checks import check_run

    found = redact_tree(check_run(config))
    if evaluation:
        found["learner"] = {"what": "none: an evaluation trains nothing"}
    _show_run(found, result(found, json_file))
    if found["missing"]:
        raise typer.Exit(1)


def _check_machine(json_file: str | None) -> None:
    from dartsim.cli.machine_checks import MISSING, NEEDS, OK, OPTIONAL, machine_checks

    checks = machine_checks()
    states = {check.name: check.state for check in checks}
    lacking = {use: [need for need in needs if states[need] is not OK] for use, needs in NEEDS.items()}
    works = {use: not lacks for use, lacks in lacking.items()}
    console = result({"works": works, "checks": [asdict(check) for check in checks]}, json_file)
    styles = {OK: "green", MISSING: "bold red", OPTIONAL: "yellow"}
    rows = [(check.name, Text(check.state, styles[check.state]), check.found, check.fix) for check in checks]
    console.print(table(["check", "", "found", "fix"], rows))
    console.print()
    answers = {True: Text("yes", "green"), False: Text("no", "bold red")}
    uses = [(use, answers[works[use]], ", ".join(lacks)) for use, lacks in lacking.items()]
    console.print(table(["use", "works", "missing"], uses))
    if lacking["simulated runs"]:
        raise typer.Exit(1)


def _run_with_stand_ins(
    config: Config, stand_ins: Sequence[StandIn], minutes: float, folder: Path | None, json_file: str | None
) -> None:
    from dartsim.cli.signals import report_interrupt
    from dartsim.lab.progress import run_bar
    from dartsim.lab.stand_ins import KEYS, Part, rates, twin_figures, with_stand_ins
    from dartsim.real.scratch import scratch_folder
    from dartsim.run.execute import execute

    parts: list[Part] = [part for part in KEYS if {part, StandIn.ALL} & set(stand_ins)]
    twin = twin_figures(config)
    path = folder or new_folder(f"{config.name}-stand-ins")
    with (
        report_interrupt(f"interrupted: what ran is in {path}"),
        scratch_folder("stand-ins") as place,
        run_bar(errors, "with stand-ins", minutes / 60.0, simulated=False) as bar,
    ):
        ran = with_stand_ins(config, parts, place, minutes)
        _, ended = execute(ran, path, [bar])
        if ended.interrupted:
            raise KeyboardInterrupt
        bar.done()
    found = rates(twin, ended.figures, path)
    short = [rate.name for rate in found if rate.short]
    value = {"rates": [asdict(rate) for rate in found], "short": short, "run_dir": str(path)}
    console, rows = result(value, json_file), []
    for rate in found:
        delivered = "no update ended: --minutes" if rate.delivered is None else f"{rate.delivered:,.0f}"
        rows.append((rate.name, f"{rate.needed:,.0f}", delivered, "too slow" if rate.short else ""))
    console.print(table(["turns a minute", "#needed", "#delivered", ""], rows))
    console.say(f"run: {path}")
    if short:
        raise typer.Exit(1)


def _show_run(found: Mapping[str, Any], console: TextConsole) -> None:
    """Print what a run would start, with commands in shell syntax."""
    from dartsim.run.backends.vllm import MODEL, PORT

    console.print(f"{found['name']}: {found['hours']:g} hours by the {found['clock']} clock; nothing was started")
    for title in ("engines", "desktops", "learner", "memory", "tasks"):
        if found[title] is not None:
            console.print(f"\n{title}", style="bold")
            _show_facts(found[title] if title != "tasks" else _counted(found[title]), console)
    if "processes" in found["engines"]:
        console.print(f"\n{PORT} and {MODEL} are a free port and a folder made at the start")
    if found["missing"]:
        console.print("\nmissing on this machine", style="bold")
    for check in found["missing"]:
        console.say(f"  {check['name']}: {check['found']}" + (f"; {check['fix']}" if check["fix"] else ""))


def _counted(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a task list with how many tasks have which problem: a list of OSWorld's has hundreds."""
    reasons = Counter(
        kind for why in tasks["problems"].values() for kind in {w.split(": ")[0] for w in why.split("; ")}
    )
    shown = [f"{number} of them: {reason}" for reason, number in reasons.most_common(MOST_REASONS)]
    shown += ["each of them: --json -"] if reasons else []
    return {**tasks, "problems": len(tasks["problems"]), "refused": len(tasks["refused"]), "reason": shown}


def _show_facts(facts: Mapping[str, Any], console: TextConsole) -> None:
    """Print a line for each fact, or for each entry of a list; processes as the commands that start them."""
    for name, value in facts.items():
        label = name.replace("_", " ")
        if name in ("processes", "start_there"):
            for process in value or ():
                console.say(f"# {process['name']}, {process['listens']}")
                words = [f"{variable}={shlex.quote(text)}" for variable, text in process["environment"].items()]
                console.say(" ".join([*words, *map(shlex.quote, process["command"])]))
        elif isinstance(value, list):
            for each in value:
                console.say(f"  {label}: {_text(each)}")
        elif value not in (None, {}, ""):
            console.say(f"  {label}: {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items() if each not in (None, {}, [], ""))
    return " ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)
