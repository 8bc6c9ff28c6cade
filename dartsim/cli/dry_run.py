"""``dartsim run --dry-run``: which processes and containers a run would start, where, and whether they fit.

Nothing is started, and no weights are needed. Missing requirements are listed; impossible configurations are refused.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from dartsim.cli.requirements import missing_requirements
from dartsim.config import Config
from dartsim.config.sections.backend import DESKTOPS
from dartsim.config.sections.vllm import VARIABLE
from dartsim.lab.estimate import engine_places, estimate
from dartsim.real.engines.options import engine_options, refuse_other_numbers
from dartsim.real.ray_cluster.backend import Kind, actors, placed
from dartsim.run.prepare import prepare

PORT = "PORT"
"""Stands for a free port that is taken at the start."""
MODEL = "MODEL"
"""Stands for the folder that the model is exported to at the start."""
SITE = "SITE"
"""Stands for the folder with our plugin for vLLM, which is written at the start."""
FOLDER = "FOLDER"
"""Stands for the learner's folder, which is made at the start."""
PYTHON = "VLLM_PYTHON"
"""Stands for the interpreter with vLLM where none is named."""


def plan(config: Config) -> dict[str, Any]:
    """Return what a run of this configuration would start, as plain values.

    Raises:
        ConfigError: If it could not work on any machine: a name is unknown, numbers do not match, or parts do not fit
            where they are put.
        TaskFileError: If a task file that is there cannot be used.
    """
    needed = estimate(config)
    prepare(_with_tasks(config))
    return {
        "preset": config.preset,
        "clock": "virtual" if config.backend.virtual else "real",
        "hours": config.run.hours,
        "engines": _placed(config, "workers", _engines(config)),
        "desktops": _placed(config, "desktops", _desktops(config)),
        "learner": _placed(config, "learner", _learner(config)),
        "memory": None if needed is None else needed.as_json(),
        "missing": [asdict(check) for check in missing_requirements(config, needed)],
    }


def _with_tasks(config: Config) -> Config:
    """Return the configuration with tasks that are there: missing task files are listed with the other requirements."""
    tasks = config.tasks
    if tasks.source != "osworld" or (Path(str(tasks.folder)) / f"{tasks.list_name}.json").is_file():
        return config
    return config.model_copy(update={"tasks": tasks.model_copy(update={"source": "generated"})})


def _placed(config: Config, kind: Kind, found: dict[str, Any]) -> dict[str, Any]:
    """Return what would start, with where Ray would place it."""
    if not placed(config, kind):
        return found
    number, part = actors(config, kind)
    asked = {"cpus": part.cpus, "gpus": part.gpus, "memory_gib": part.memory_gib, **part.resources}
    each = ", ".join(f"{name} {amount:g}" for name, amount in asked.items() if amount)
    return {**found, "what": f"{found['what']}; on Ray ({config.ray.address}), actors: {number}, each {each}"}


# ---- what would start


def _engines(config: Config) -> dict[str, Any]:
    kind, number = config.backend.workers, config.rollout.num_workers
    if kind == "sim":
        return {"what": f"{number} modelled"}
    if kind == "local":
        return {"what": f"{number} in threads of this process"}
    addresses = config.vllm.addresses
    python = config.vllm.python or os.environ.get(VARIABLE) or PYTHON
    named = config.model_copy(update={"vllm": config.vllm.model_copy(update={"python": python})})
    if addresses:
        refuse_other_numbers(config, len(addresses))
        return {
            "what": f"{number} vLLM servers that run already are attached to",
            "addresses": list(addresses),
            "start_there": _elsewhere(named),
        }
    options = engine_options(named, Path(MODEL))
    refuse_other_numbers(config, len(options))
    processes = []
    for index, one in enumerate(options):
        command = one.command(one.port)
        if not one.port:
            command[command.index("--port") + 1] = PORT
        processes.append(
            {
                "name": f"engine-{index}",
                "listens": f"on {one.host}, {f'port {one.port}' if one.port else 'a free port'}",
                "command": command,
                "environment": one.variables(Path(SITE)),
            }
        )
    return {"what": f"{number} vLLM servers, started again when they end", "processes": processes}


def _elsewhere(config: Config) -> list[dict[str, Any]]:
    """Return what somebody has to start so that engines can be attached to."""
    alone = config.model_copy(update={"vllm": config.vllm.model_copy(update={"addresses": [], "gpus": []})})
    option = engine_options(alone, Path(config.policy.model or MODEL))[0]
    found = []
    for number, (host, gpus) in enumerate(engine_places(config)):
        port = urlsplit(config.vllm.addresses[number]).port or 80
        one = replace(option, devices=tuple(gpus) if option.device == "cuda" else (), port=port)
        site = Path(SITE) if one.transfer is not None else None
        found.append(
            {
                "name": f"engine-{number}",
                "listens": f"on the loopback of {host}, port {port}; reached through an ssh tunnel",
                "command": one.command(port),
                "environment": one.variables(site),
            }
        )
    return found


def _desktops(config: Config) -> dict[str, Any]:
    kind, number = config.backend.desktops, config.rollout.num_desktops
    planner = DESKTOPS[kind].planner()
    if planner is not None:
        return planner(config)
    return {"what": f"{number} {'modelled' if kind == 'sim' else f'{kind} desktops in this process'}"}


def _learner(config: Config) -> dict[str, Any]:
    kind = config.backend.learner
    if kind != "fsdp":
        return {"what": "modelled" if kind == "sim" else "a thread of this process"}
    from dartsim.real.learners.fsdp.group import node_command, rank_command, rank_variables

    fsdp = config.trainer.fsdp
    folder, environment = fsdp.folder or FOLDER, rank_variables(fsdp)
    there = [
        {
            "name": f"torchrun on node {node}",
            "listens": "started there by you, before the run or within trainer.fsdp.start_seconds; ends with the run",
            "command": node_command(fsdp, folder, node),
            "environment": environment,
        }
        for node in range(1, fsdp.nodes)
    ]
    on = "" if fsdp.nodes == 1 else f" on {fsdp.nodes} nodes"
    trains = "all weights" if config.trainer.lora.rank is None else f"LoRA of rank {config.trainer.lora.rank}"
    return {
        "what": f"{fsdp.ranks} processes{on} of torch FSDP2 ({fsdp.device}, {fsdp.precision}), by torchrun; {trains}",
        "processes": [
            {
                "name": "torchrun",
                "listens": "on the loopback" if fsdp.nodes == 1 else f"node 0, this machine; listens at {fsdp.address}",
                "command": rank_command(fsdp, folder),
                "environment": environment,
            }
        ],
        **({"start_there": there} if there else {}),
    }


# ---- printing


def show(found: dict[str, Any], console: Console) -> None:
    """Print the plan, with commands in shell syntax."""
    console.print(f"{found['preset']}: {found['hours']:g} hours by the {found['clock']} clock; nothing was started")
    for part in ("engines", "desktops", "learner"):
        console.print(f"\n[bold]{part}[/bold]: {found[part]['what']}")
        _show_part(found[part], console)
    if any("processes" in found[part] for part in ("engines", "learner")):
        console.print(f"\n{PORT}, {MODEL}, {SITE} and {FOLDER} are a free port and folders made at the start")
    if found["memory"] is not None:
        _show_memory(found["memory"], console)
    _show_missing(found["missing"], console)


def _show_part(part: dict[str, Any], console: Console) -> None:
    for one in part.get("processes", ()):
        _show_process(one, console)
    if (command := part.get("command")) is not None:
        console.print(shlex.join(command), highlight=False, markup=False, soft_wrap=True)
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
        for one in there:
            _show_process(one, console)


def _show_process(one: dict[str, Any], console: Console) -> None:
    console.print(f"# {one['name']}, {one['listens']}", highlight=False, markup=False)
    words = [f"{name}={shlex.quote(value)}" for name, value in one["environment"].items()]
    words += [shlex.quote(word) for word in one["command"]]
    console.print(" ".join(words), highlight=False, markup=False, soft_wrap=True)


def _show_memory(memory: dict[str, Any], console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    console.print("\n[bold]memory[/bold], estimated, GiB")
    say(
        f"  model: {memory['model']}, {memory['parameters'] / 1e9:.2f} G parameters ({memory['shape_source']}); a "
        f"screenshot has {memory['screen_tokens']} tokens, the longest prompt {memory['prompt_tokens']}"
    )
    if (engine := memory["engine"]) is not None:
        say(
            f"  an engine's GPU: {engine['budget_gib']} = weights {engine['weights_gib']} + computing "
            f"{engine['working_gib']} + cache {engine['kv_gib']}, which holds {engine['kv_tokens']} tokens of "
            f"{engine['kv_bytes_per_token']} bytes: {engine['requests_of_longest_prompt']} of the longest prompts "
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
    say(f"  this machine's memory at the start: {memory['host_gib_at_start']}; disk: {memory['disk_gib']}")
    for note in memory["notes"]:
        say(f"  note: {note}")


def _show_missing(missing: list[dict[str, str]], console: Console) -> None:
    if not missing:
        return
    console.print("\n[bold]missing on this machine[/bold]")
    for check in missing:
        text = f"  {check['name']}: {check['found']}" + (f"; {check['fix']}" if check["fix"] else "")
        console.print(text, highlight=False, markup=False, soft_wrap=True)
