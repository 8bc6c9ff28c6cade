"""``dartsim run --dry-run``: which processes and containers a run would start, where, and whether they fit.

Nothing is started, and no weights are needed. Missing requirements are listed; impossible configurations are refused.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dartsim.cli.requirements import missing_requirements
from dartsim.cli.service_checks import MISSING, DoctorCheck
from dartsim.config import Config
from dartsim.lab.estimate import estimate
from dartsim.real.ray_cluster.backend import Kind, actors, placed
from dartsim.real.ray_cluster.parts import actor_options
from dartsim.run.backends.fsdp import FOLDER
from dartsim.run.backends.vllm import MODEL, PORT
from dartsim.run.prepare import prepare

if TYPE_CHECKING:
    from dartsim.real.osworld.task_list import TaskListCheck


def plan(config: Config) -> dict[str, Any]:
    """Return what a run of this configuration would start, as plain values.

    Raises:
        ConfigError: If it cannot work on any machine: a name is unknown, numbers do not match, or processes do not fit.
        TaskFileError: If an existing list of tasks is invalid.
    """
    needed = estimate(config)
    prepare(_with_tasks(config))
    checked = _checked_tasks(config)
    missing = missing_requirements(config, needed)
    if checked is not None and checked.refused:
        found = f"{len(checked.refused)} of {checked.num_listed} cannot run here, and the run refuses to leave them out"
        missing.append(DoctorCheck("tasks", MISSING, found, "--set tasks.unsupported=skip"))
    return {
        "name": config.name,
        "preset": config.preset,
        "clock": "virtual" if config.backend.virtual else "real",
        "hours": config.run.hours,
        "engines": _placed(config, "workers", config.backend.engine_backend.plan(config)),
        "desktops": _placed(config, "desktops", config.backend.desktop_backend.plan(config)),
        "learner": _placed(config, "learner", config.backend.learner_backend.plan(config)),
        "memory": None if needed is None else needed.as_json(),
        "tasks": None if checked is None else {"list": config.tasks.list_name, **asdict(checked)},
        "missing": [asdict(check) for check in missing],
    }


def _checked_tasks(config: Config) -> TaskListCheck | None:
    """Return which tasks of OSWorld's list would run; None without real desktops or without the list."""
    if not config.backend.boots or not _has_list(config):
        return None
    from dartsim.real.osworld.task_list import check_list

    return check_list(config)


def _has_list(config: Config) -> bool:
    tasks = config.tasks
    return tasks.source == "osworld" and (Path(str(tasks.folder)) / f"{tasks.list_name}.json").is_file()


def _with_tasks(config: Config) -> Config:
    """Return the configuration, with generated tasks if the list, a requirement, is missing or checked task by task."""
    if config.tasks.source != "osworld" or (_has_list(config) and not config.backend.boots):
        return config
    return config.model_copy(update={"tasks": config.tasks.model_copy(update={"source": "generated", "exclude": []})})


def _placed(config: Config, kind: Kind, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry, with its placement by Ray."""
    if not placed(config, kind):
        return entry
    number, part = actors(config, kind)
    return {
        **entry,
        "what": f"{entry['what']}; on Ray ({config.ray.address}), actors: {number}, each with {actor_options(part)}",
    }


def show(plan: dict[str, Any], console: Console) -> None:
    """Print the plan, with commands in shell syntax."""
    console.print(f"{plan['name']}: {plan['hours']:g} hours by the {plan['clock']} clock; nothing was started")
    for part in ("engines", "desktops", "learner"):
        console.print(f"\n[bold]{part}[/bold]: {plan[part]['what']}")
        _show_part(plan[part], console)
    if any("processes" in plan[part] for part in ("engines", "learner")):
        console.print(f"\n{PORT}, {MODEL} and {FOLDER} are a free port and folders made at the start")
    if plan["memory"] is not None:
        _show_memory(plan["memory"], console)
    if plan["tasks"] is not None:
        _show_tasks(plan["tasks"], console)
    _show_missing(plan["missing"], console)


def _show_part(part: dict[str, Any], console: Console) -> None:
    for process in part.get("processes", ()):
        _show_process(process, console)
    for address in part.get("addresses", ()):
        console.print(f"  {address}", highlight=False, markup=False)
    for host in part.get("hosts", ()):
        console.print(
            f"  {host['name']}: {host['desktops']} desktops, {host['gib_used']:g} GiB used (limits: "
            f"{host['gib_limit']:g} GiB, {host['cores_limit']:g} cores)",
            highlight=False,
            markup=False,
        )
    if (there := part.get("start_there")) is not None:
        console.print("start them there:")
        for process in there:
            _show_process(process, console)


def _show_process(process: dict[str, Any], console: Console) -> None:
    console.print(f"# {process['name']}, {process['listens']}", highlight=False, markup=False)
    words = [f"{name}={shlex.quote(value)}" for name, value in process["environment"].items()]
    words += [shlex.quote(word) for word in process["command"]]
    console.print(" ".join(words), highlight=False, markup=False, soft_wrap=True)


def _show_memory(memory: dict[str, Any], console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    console.print("\n[bold]memory[/bold], estimated, GiB")
    say(
        f"  model: {memory['model']}, {memory['parameters'] / 1e9:.2f} G parameters ({memory['shape_source']}); a "
        f"screenshot has {memory['screen_tokens']} tokens, a full prompt {memory['prompt_tokens']}, the longest with "
        f"its reply {memory['longest_tokens']}"
    )
    if (engine := memory["engine"]) is not None:
        say(
            f"  an engine's GPU: {engine['budget_gib']} = weights {engine['weights_gib']} + computing "
            f"{engine['working_gib']} + cache {engine['kv_gib']}, which holds {engine['kv_tokens']} tokens of "
            f"{engine['kv_bytes_per_token']} bytes: {engine['requests_of_full_prompt']} full prompts "
            f"(max_num_seqs x max_model_len would be {engine['wanted_kv_gib']})"
        )
    if (learner := memory["learner"]) is not None:
        parts = [
            f"{name.removesuffix('_gib')} {size}" for name, size in learner.items() if name != "total_gib" and size
        ]
        say(f"  a rank's GPU: {learner['total_gib']} = {' + '.join(parts)}")
    for gpu in memory["gpus"]:
        holds = ", ".join(f"{name} {size}" for name, size in gpu["holds_gib"].items())
        say(f"  {gpu['host']}, GPU {gpu['gpu']}: {holds}; {sum(gpu['holds_gib'].values()):.1f} of {memory['gpu_gib']}")
    say(
        f"  this machine's memory: {memory['host_gib_at_start']} at the start, {memory['host_gib_in_update']} in the "
        "largest update"
    )
    disk = memory["disk_gib"]
    say(
        f"  disk: {disk['total']} = learner {disk['learner']} + engines {disk['engines']} + run directory "
        f"{disk['run']}, and stored turns"
    )
    for note in memory["notes"]:
        say(f"  note: {note}")


def _show_tasks(tasks: dict[str, Any], console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    console.print("\n[bold]tasks[/bold]")
    scorer = tasks["scorer"]
    if scorer is None and tasks["scorer_problem"]:
        scorer = f"desktop-env, taken to be complete because it could not be asked: {tasks['scorer_problem']}"
    will_run = f"{tasks['num_run']} of {tasks['num_listed']} will run"
    say(f"  {tasks['list']}: {will_run}; scored by {scorer or 'our own metrics'}")
    if tasks["scorer_differs"]:
        say(f"  {tasks['scorer_differs']}")
    for name, problem in tasks["problems"].items():
        say(f"  will not run: {name}: {problem}")
    for name, note in tasks["notes"].items():
        say(f"  note: {name}: {note}")


def _show_missing(missing: list[dict[str, str]], console: Console) -> None:
    if not missing:
        return
    console.print("\n[bold]missing on this machine[/bold]")
    for check in missing:
        text = f"  {check['name']}: {check['found']}" + (f"; {check['fix']}" if check["fix"] else "")
        console.print(text, highlight=False, markup=False, soft_wrap=True)
