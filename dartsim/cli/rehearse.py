"""``dartsim rehearse``: run a configuration for a few minutes here, with stand-ins for what is not up yet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import errors, out, plain_table, write_json
from dartsim.cli.options import Json, Out, Overrides, folder_target, new_folder
from dartsim.cli.progress import RunBar, bars
from dartsim.cli.signals import report_interrupt

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.estimate import Estimate
    from dartsim.lab.rehearse import Rehearsal, RehearsedPart, StandIn

ENGINE_CHECKS = frozenset({"real packages", "vLLM's interpreter", "engines", "model", "gpus"})
DESKTOP_CHECKS = frozenset(
    {"real packages", "engine", "desktop image", "disk", "kvm", "screen", "evaluator", "tasks", "host"}
)
LEARNER_CHECKS = frozenset({"train packages", "model", "gpus"})


def rehearse(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="A TOML file; see `dartsim config schema`.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="What to build on; see `dartsim presets`.")] = None,
    overrides: Overrides = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes of the run.")] = 10.0,
    sample_gib: Annotated[
        float, typer.Option(min=0.001, help="Most of a checkpoint that is written; the rest is extrapolated.")
    ] = 4.0,
    stand_in: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART", help="Use a stand-in for desktops, engines or learner though it is up; repeat as needed."
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=URL",
            help="Measure the network of a part, as 'desktops of vm-1' or 'engine 0', with a stand-in that runs there.",
        ),
    ] = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    """Rehearse a configuration of real desktops, engines and a learner at full shapes on this machine.

    The run is a real one, with stand-ins for what is not up: servers that speak the protocols of OSWorld's desktops
    and of vLLM and answer at once, and ranks that train nothing. Disk, network and scorers are measured alone. The
    table shows what each part needs, by the configuration's twin and estimate, and what it delivered. To measure the
    network of another machine, start `python -m dartsim.real.stand_ins.desktops --host 0.0.0.0 --ports 5000` there.

    Exit code 1 if a part falls short, 2 if the configuration cannot work.

    Examples:
        dartsim rehearse --preset osworld-8gpu
        dartsim rehearse my.toml --minutes 30 --json rehearsal.json
        dartsim rehearse my.toml --stand-in learner
        dartsim rehearse my.toml --server "desktops of vm-1=http://vm-1:5000"
    """
    from dartsim.config import load
    from dartsim.lab.rehearse import num_steps, refuse_modeled
    from dartsim.lab.rehearse import rehearse as rehearse_config

    resolved = load(config, preset_name=preset, overrides=overrides or [])
    needed = refuse_modeled(resolved)
    forced, servers = _parts(stand_in or []), _servers(server or [])
    path = folder_target(out_folder) or new_folder(f"{resolved.name}-rehearsal")
    with report_interrupt(f"interrupted: there are no figures; what ran is in {path}"), bars() as progress:
        progress_bar = RunBar(progress, "rehearsal", minutes / 60.0, simulated=False)

        numbers, total = count(1), num_steps(resolved)

        def step(name: str) -> None:
            progress_bar.preparing(name, next(numbers), total)

        missing = not_up(resolved, needed)
        for part, why in missing.items():
            errors.print(f"a stand-in for {part}: {why}", highlight=False, markup=False, soft_wrap=True)
        found = rehearse_config(
            resolved,
            {*missing, *forced},
            path,
            minutes=minutes,
            sample_bytes=round(sample_gib * 2**30),
            servers=servers,
            instruments=[progress_bar],
            on_step=step,
        )
        progress_bar.done()
    if json_file != "-":
        _show(found, path)
    if json_file is not None:
        write_json(_as_json(found, path), json_file)
    if found.short:
        raise typer.Exit(1)


def not_up(config: Config, needed: Estimate) -> dict[StandIn, str]:
    """Return the parts of a configuration that cannot be used from here, each with the first reason."""
    from dartsim.cli.requirements import missing_requirements

    # Checks of single hosts are called "host NAME".
    lacking = {
        check.name.partition("host ")[0] or "host": check.found for check in missing_requirements(config, needed)
    }
    found: dict[StandIn, str] = {}

    def add(part: StandIn, checks: frozenset[str]) -> None:
        why = next((f"{name}: {lacking[name]}" for name in lacking if name in checks), None)
        if why is not None:
            found[part] = why

    add("desktops", DESKTOP_CHECKS)
    add("engines", ENGINE_CHECKS)
    add("learner", LEARNER_CHECKS)
    if "desktops" not in found and (why := asyncio.run(_desktop_problem(config))):
        found["desktops"] = why
    return found


async def _desktop_problem(config: Config) -> str | None:
    """Return which Docker engine does not answer, or does not have the image; None if all do."""
    from dartsim.core.errors import DartsimError
    from dartsim.real.containers import DockerHost
    from dartsim.real.containers.plan import container_spec, docker_hosts

    spec = container_spec(config, look=False)
    for settings in docker_hosts(config.desktop).values():
        try:
            async with DockerHost(settings) as host:
                await host.require(spec.image)
        except DartsimError as error:
            return str(error)
    return None


def _parts(names: Sequence[str]) -> list[StandIn]:
    from dartsim.core.errors import ConfigError
    from dartsim.lab.rehearse import STAND_INS

    known = {str(name): name for name in STAND_INS}
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"--stand-in {unknown[0]} is unknown; wanted {', '.join(known)}")
    return [known[name] for name in names]


def _servers(pairs: Sequence[str]) -> dict[str, str]:
    from dartsim.core.errors import ConfigError

    if bad := [pair for pair in pairs if "=http" not in pair]:
        raise ConfigError(f"--server {bad[0]!r} is not PART=URL, such as 'desktops of vm-1=http://vm-1:5000'")
    return {name: url.rstrip("/") for name, _, url in (pair.partition("=") for pair in pairs)}


def _show(found: Rehearsal, path: Path) -> None:
    table = plain_table("part", numbers=("needed", "delivered"), after=("", "verdict", ""))
    for part in found.parts:
        style = {"ok": "green", "short": "bold red", "not measured": "yellow"}[part.verdict]
        delivered = "–" if part.delivered is None else _number(part.delivered)
        verdict = f"[{style}]{part.verdict}[/{style}]"
        table.add_row(part.name, _number(part.needed), delivered, part.unit, verdict, part.note)
    out.print(table)
    names = ", ".join(found.stand_ins) or "nothing"
    out.print(f"{found.minutes:g} minutes, with stand-ins for {names}; {path}", soft_wrap=True, highlight=False)
    if found.short:
        out.print(f"falls short: {', '.join(found.short)}", soft_wrap=True, highlight=False)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def _as_json(found: Rehearsal, path: Path) -> dict[str, Any]:
    def as_row(part: RehearsedPart) -> dict[str, Any]:
        return {**asdict(part), "verdict": part.verdict}

    def plain(figures: Mapping[str, Any]) -> dict[str, float]:
        return {name: value for name, value in figures.items() if isinstance(value, int | float)}

    return {
        "parts": [as_row(part) for part in found.parts],
        "short": found.short,
        "stand_ins": list(found.stand_ins),
        "minutes": found.minutes,
        "figures": plain(found.figures),
        "twin": plain(found.twin),
        "run_dir": str(path),
    }
