"""``dartsim run --dry-run``: the processes and containers that a run would start, and where; nothing is started."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from dartsim.config import Config

PORT = "PORT"
"""Stands for a free port that is taken at the start."""
MODEL = "MODEL"
"""Stands for the folder that the model is exported to at the start."""
SITE = "SITE"
"""Stands for the folder with our plugin for vLLM, which is written at the start."""


def plan(config: Config) -> dict[str, Any]:
    """Return what a run of this configuration would start, as plain values.

    Raises:
        ConfigError: If the run would be refused: no interpreter with vLLM is named, numbers do not match, a disk is
            not there.
    """
    return {
        "preset": config.preset,
        "clock": "virtual" if config.backend.virtual else "real",
        "hours": config.run.hours,
        "engines": _engines(config),
        "desktops": _desktops(config),
        "learner": _learner(config),
    }


def show(found: dict[str, Any], console: Console) -> None:
    """Print it, commands as a shell would take them."""
    console.print(f"{found['preset']}: {found['hours']:g} hours by the {found['clock']} clock; nothing was started")
    for part in ("engines", "desktops", "learner"):
        console.print(f"\n[bold]{part}[/bold]: {found[part]['what']}")
        processes = found[part].get("processes", ())
        for one in processes:
            _show_process(one, console)
        if processes:
            console.print(f"{PORT}, {MODEL} and {SITE} are a free port and folders that are made at the start")
        if (container := found[part].get("container")) is not None:
            for name, value in container.items():
                if value not in (None, False, [], {}, ()):
                    console.print(f"  {name}: {value}", highlight=False, markup=False, soft_wrap=True)
        for address in found[part].get("addresses", ()):
            console.print(f"  {address}", highlight=False, markup=False)


def _show_process(one: dict[str, Any], console: Console) -> None:
    console.print(f"# {one['name']}, {one['listens']}", highlight=False, markup=False)
    words = [f"{name}={shlex.quote(value)}" for name, value in one["environment"].items()]
    words += [shlex.quote(word) for word in one["command"]]
    console.print(" ".join(words), highlight=False, markup=False, soft_wrap=True)


def _engines(config: Config) -> dict[str, Any]:
    kind, number = config.backend.workers, config.rollout.num_workers
    if kind == "sim":
        return {"what": f"{number} modelled"}
    if kind == "local":
        return {"what": f"{number} in threads of this process"}
    # Loaded here: it needs torch, which a plan of a modelled run does not.
    from dartsim.run.engines import engine_options, refuse_other_numbers

    addresses = config.vllm.addresses
    if addresses:
        refuse_other_numbers(config, len(addresses))
        return {"what": f"{number} vLLM servers that run already are attached to", "addresses": list(addresses)}
    options = engine_options(config, Path(MODEL))
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


def _desktops(config: Config) -> dict[str, Any]:
    kind, number = config.backend.desktops, config.rollout.num_desktops
    if kind in ("sim", "mock"):
        return {"what": f"{number} {'modelled' if kind == 'sim' else 'mock desktops in this process'}"}
    from dartsim.run.desktops import container_spec, host_settings

    spec = asdict(container_spec(config))
    hosts = [
        {"url": host.url or "DOCKER_HOST or the local engine", "most": host.capacity, "bind": host.bind_address}
        for host in host_settings(config.desktop)
    ]
    ports = ", ".join(f"{name} {port}" for name, port in spec["ports"].items())
    return {
        "what": f"{number} containers, on one port each of the host's choice for: {ports}",
        "container": spec,
        "addresses": [f"{host['url']}: at most {host['most']}, ports on {host['bind']}" for host in hosts],
    }


def _learner(config: Config) -> dict[str, Any]:
    kind = config.backend.learner
    if kind != "fsdp":
        return {"what": "modelled" if kind == "sim" else "a thread of this process"}
    fsdp = config.trainer.fsdp
    return {"what": f"{fsdp.ranks} processes of torch FSDP2 ({fsdp.device}, {fsdp.precision}), by torchrun"}
