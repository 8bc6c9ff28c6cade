"""``dartsim check``: what works on this machine, and whether a configuration would run on it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from dartsim.cli.console import out, plain_table, write_json
from dartsim.cli.machine_checks import MISSING, NEEDS, OK, OPTIONAL, Check, machine_checks
from dartsim.cli.options import (
    EVALUATION,
    Backend,
    Json,
    Out,
    Overrides,
    Ray,
    SchedulerArgument,
    Workers,
    backend_overrides,
    load_config,
    new_folder,
)

if TYPE_CHECKING:
    from dartsim.config import Config

STYLES = {OK: "green", MISSING: "bold red", OPTIONAL: "yellow"}


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
    ray: Ray = None,
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
    from dartsim.config.secrets import redact_tree
    from dartsim.core.errors import ConfigError

    changes = [*backend_overrides(backend, workers, False, ray), *(overrides or ())]
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
    if json_file != "-":
        _show_run(found)
    if json_file is not None:
        write_json(found, json_file)
    if found["missing"]:
        raise typer.Exit(1)


def _check_machine(json_file: str | None) -> None:
    checks = machine_checks()
    states = {check.name: check.state for check in checks}
    lacking = {use: [need for need in needs if states[need] is not OK] for use, needs in NEEDS.items()}
    if json_file is not None:
        works = {use: not lacks for use, lacks in lacking.items()}
        write_json({"works": works, "checks": [asdict(check) for check in checks]}, json_file)
    if json_file != "-":
        out.print(_check_table(checks))
        out.print()
        out.print(_use_table(lacking))
    if lacking["simulated runs"]:
        raise typer.Exit(1)


def _check_table(checks: Iterable[Check]) -> Table:
    table = plain_table("check", "", "found", "fix")
    for check in checks:
        table.add_row(check.name, Text(check.state, STYLES[check.state]), Text(check.found), Text(check.fix))
    return table


def _use_table(lacking: Mapping[str, Sequence[str]]) -> Table:
    table = plain_table("use", "works", "missing")
    for use, lacks in lacking.items():
        table.add_row(use, Text("no", "bold red") if lacks else Text("yes", "green"), ", ".join(lacks))
    return table


def _run_with_stand_ins(
    config: Config, stand_ins: Sequence[StandIn], minutes: float, folder: Path | None, json_file: str | None
) -> None:
    from dartsim.cli.progress import RunBar, bars
    from dartsim.cli.signals import report_interrupt
    from dartsim.lab.stand_ins import KEYS, Part, rates, twin_figures, with_stand_ins
    from dartsim.real.scratch import scratch_folder
    from dartsim.run.execute import execute

    parts: list[Part] = [part for part in KEYS if {part, StandIn.ALL} & set(stand_ins)]
    twin = twin_figures(config)
    path = folder or new_folder(f"{config.name}-stand-ins")
    with (
        report_interrupt(f"interrupted: what ran is in {path}"),
        scratch_folder("stand-ins") as place,
        bars() as progress,
    ):
        ran = with_stand_ins(config, parts, place, minutes)
        bar = RunBar(progress, "with stand-ins", ran.run.hours, simulated=False)
        _, result = execute(ran, path, [bar])
        if result.interrupted:
            raise KeyboardInterrupt
        bar.done()
    found = rates(twin, result.figures, path)
    short = [rate.name for rate in found if rate.short]
    if json_file != "-":
        table = plain_table("turns a minute", numbers=("needed", "delivered"), after=("",))
        for rate in found:
            delivered = "no update ended: --minutes" if rate.delivered is None else f"{rate.delivered:,.0f}"
            table.add_row(rate.name, f"{rate.needed:,.0f}", delivered, "too slow" if rate.short else "")
        out.print(table)
        out.print(f"run: {path}", soft_wrap=True, highlight=False, markup=False)
    if json_file is not None:
        write_json({"rates": [asdict(rate) for rate in found], "short": short, "run_dir": str(path)}, json_file)
    if short:
        raise typer.Exit(1)


def _show_run(found: dict[str, Any]) -> None:
    """Print what a run would start, with commands in shell syntax."""
    from dartsim.run.backends.vllm import MODEL, PORT

    out.print(f"{found['name']}: {found['hours']:g} hours by the {found['clock']} clock; nothing was started")
    for part in ("engines", "desktops", "learner"):
        out.print(f"\n{part}: {found[part]['what']}", style="bold")
        _show_part(found[part])
    if "processes" in found["engines"]:
        out.print(f"\n{PORT} and {MODEL} are a free port and a folder made at the start")
    if found["memory"] is not None:
        _show_memory(found["memory"])
    if found["tasks"] is not None:
        _show_tasks(found["tasks"])
    if found["missing"]:
        out.print("\nmissing on this machine", style="bold")
    for check in found["missing"]:
        _say(f"  {check['name']}: {check['found']}" + (f"; {check['fix']}" if check["fix"] else ""))


def _say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def _show_part(part: dict[str, Any]) -> None:
    for process in part.get("processes", ()):
        _show_process(process)
    for address in part.get("addresses", ()):
        _say(f"  {address}")
    for host in part.get("hosts", ()):
        limits = f"{host['gib_limit']:g} GiB, {host['cores_limit']:g} cores"
        _say(f"  {host['name']}: {host['desktops']} desktops, {host['gib_used']:g} GiB used (limits: {limits})")
    if (there := part.get("start_there")) is not None:
        out.print("start them there:")
        for process in there:
            _show_process(process)


def _show_process(process: dict[str, Any]) -> None:
    _say(f"# {process['name']}, {process['listens']}")
    words = [f"{name}={shlex.quote(value)}" for name, value in process["environment"].items()]
    _say(" ".join([*words, *map(shlex.quote, process["command"])]))


def _show_memory(memory: dict[str, Any]) -> None:
    out.print("\nmemory, estimated, GiB", style="bold")
    _say(
        f"  model: {memory['model']}, {memory['parameters'] / 1e9:.2f} G parameters ({memory['shape_source']}); a "
        f"screenshot has {memory['screen_tokens']} tokens, a full prompt {memory['prompt_tokens']}, the longest with "
        f"its reply {memory['longest_tokens']}"
    )
    if (engine := memory["engine"]) is not None:
        _say(
            f"  an engine's GPU: {engine['budget_gib']} = weights {engine['weights_gib']} + computing "
            f"{engine['working_gib']} + cache {engine['kv_gib']}, which holds {engine['kv_tokens']} tokens of "
            f"{engine['kv_bytes_per_token']} bytes: {engine['requests_of_full_prompt']} full prompts "
            f"(max_num_seqs x max_model_len would be {engine['wanted_kv_gib']})"
        )
    if (learner := memory["learner"]) is not None:
        parts = [
            f"{name.removesuffix('_gib')} {size}" for name, size in learner.items() if name != "total_gib" and size
        ]
        _say(f"  a rank's GPU: {learner['total_gib']} = {' + '.join(parts)}")
    for gpu in memory["gpus"]:
        holds = ", ".join(f"{name} {size}" for name, size in gpu["holds_gib"].items())
        _say(f"  {gpu['host']}, GPU {gpu['gpu']}: {holds}; {sum(gpu['holds_gib'].values()):.1f} of {memory['gpu_gib']}")
    _say(
        f"  this machine's memory: {memory['host_gib_at_start']} at the start, {memory['host_gib_later']} later at most"
    )
    disk = memory["disk_gib"]
    _say(
        f"  disk: {disk['total']} = learner {disk['learner']} + engines {disk['engines']} + run directory "
        f"{disk['run']}, and stored turns"
    )
    for note in memory["notes"]:
        _say(f"  note: {note}")


def _show_tasks(tasks: dict[str, Any]) -> None:
    out.print("\ntasks", style="bold")
    scorer = tasks["scorer"]
    if scorer is None and tasks["scorer_problem"]:
        scorer = f"desktop-env, taken to be complete because it could not be asked: {tasks['scorer_problem']}"
    will_run = f"{tasks['num_run']} of {tasks['num_listed']} will run"
    if tasks["num_internet"]:
        will_run += f" ({tasks['num_internet']} need the internet)"
    _say(f"  {tasks['list']}: {will_run}; scored by {scorer or 'our own metrics'}")
    if tasks["scorer_differs"]:
        _say(f"  {tasks['scorer_differs']}")
    for name, problem in tasks["problems"].items():
        _say(f"  will not run: {name}: {problem}")
    for name, note in tasks["notes"].items():
        _say(f"  note: {name}: {note}")
