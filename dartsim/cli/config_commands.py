"""Commands that print presets, profiles, faults and settings; they run nothing."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.command_group import CommandGroup
from dartsim.cli.console import out, plain_table, write_json
from dartsim.cli.options import (
    FaultsOption,
    Json,
    JsonInstead,
    OnOption,
    Overrides,
    ProfileOption,
    SchedulerArgument,
    json_target,
    settings,
)

config_app = typer.Typer(
    cls=CommandGroup,
    help="Show a resolved configuration; list every setting, profile or kind of fault.",
    no_args_is_help=True,
)


def _distributions() -> Table:
    """Return the kinds of distributions with their fields."""
    from dartsim.sim.latency import FIELDS, kinds

    table = plain_table(
        "kind", "what", "fields", title="distributions (cluster.env.latency.*, …): a number, or a table with a kind"
    )
    for kind, forms, meaning in kinds():
        fields = "; or ".join(", ".join(f"{key} ({FIELDS[key]})" for key in keys) for keys in forms)
        table.add_row(kind, meaning, fields)
    return table


def presets(
    names: Annotated[
        list[str] | None, typer.Argument(help="Show the details of these presets; default: list all.", metavar="PRESET")
    ] = None,
    json_file: JsonInstead = None,
) -> None:
    """List the presets; for named presets, show the source and the departures from it.

    Examples:
        dartsim presets
        dartsim presets areal-eta4 prime-rl
        dartsim presets --json - | jq 'keys'
    """
    from dartsim.config import preset
    from dartsim.config import presets as known

    for name in names or ():
        preset(name)  # raises for an unknown name
    abouts = {name: tree.get("about", {}) for name, tree in known().items() if not names or name in names}
    if json_file is not None:
        write_json(abouts, json_file)
        return
    table = plain_table("preset", "what", show_header=not names)
    table.columns[0].no_wrap = True
    for name, about in abouts.items():
        table.add_row(name, about["title"])
        if names:
            table.add_row("  source", about["source"])
            for number, departure in enumerate(about["departures"]):
                table.add_row("" if number else "  departures", departure)
    out.print(table)
    if not names:
        out.print("\n`dartsim presets PRESET` shows its source and its departures from it", highlight=False)


@config_app.command("show")
def show(
    scheduler: SchedulerArgument = None,
    preset: Annotated[str | None, typer.Option(help="What to build on.")] = None,
    on: OnOption = None,
    profile: ProfileOption = None,
    faults: FaultsOption = None,
    overrides: Overrides = None,
    json_file: JsonInstead = None,
) -> None:
    """Print the resolved configuration as TOML, ready to edit and run.

    Examples:
        dartsim config show --preset dart > my.toml
        dartsim config show --preset areal-eta4 --on osworld --faults calm
        dartsim config show my.toml --json - | jq .rollout
    """
    from dartsim.cli.options import load_config
    from dartsim.config import to_toml

    resolved = load_config(
        scheduler,
        preset_name=preset,
        on=on,
        profile=profile,
        overrides=settings(overrides, None, None, faults),
    )
    if json_file is not None:
        write_json(resolved.model_dump(mode="json"), json_file)
    else:
        typer.echo(to_toml(resolved), nl=False)


@config_app.command("schema")
def schema(
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", callback=json_target, help="Write a JSON schema instead; - for standard output."
        ),
    ] = None,
) -> None:
    """Print every setting with its default and meaning, and every kind of distribution with its fields.

    Examples:
        dartsim config schema
        dartsim config schema --json schema.json
    """
    from dartsim.config import Config
    from dartsim.config.load import describe
    from dartsim.sim.latency import FIELDS, kinds

    if json_file is not None:
        known = [
            {"kind": kind, "meaning": meaning, "forms": [{key: FIELDS[key] for key in keys} for keys in forms]}
            for kind, forms, meaning in kinds()
        ]
        write_json({**Config.model_json_schema(), "distributions": known}, json_file)
        return
    table = plain_table("setting", "default", "meaning")
    for setting in describe():
        table.add_row(setting.key, setting.default, setting.meaning)
    out.print(table)
    out.print()
    out.print(_distributions())


@config_app.command("profiles")
def profiles(json_file: JsonInstead = None) -> None:
    """List the latency profiles of desktops and the GPU profiles of engines.

    Examples:
        dartsim config profiles
        dartsim config profiles --json - | jq .gpus
        dartsim run --preset dart --profile osworld
    """
    from dartsim.sim.env_profiles import PROFILES as ENVS
    from dartsim.sim.gpu import PROFILES as GPUS

    parts = ("setup", "step", "evaluate", "teardown")
    desktops = {
        name: {
            "boot_seconds": env.start.mean + env.boot.mean,
            **{f"{part}_seconds": getattr(env, part).mean for part in parts},
            "memory_gib": env.memory_gib,
        }
        for name, env in ENVS.items()
    }
    gpus = {
        name: {
            "milliseconds_per_token_alone": gpu.iteration_seconds(1) * 1e3,
            "kv_tokens": gpu.kv_capacity_tokens,
            "source": gpu.source,
        }
        for name, gpu in GPUS.items()
    }
    if json_file is not None:
        write_json({"desktops": desktops, "gpus": gpus}, json_file)
        return
    columns = ("boot s", *(f"{part} s" for part in parts), "memory GiB")
    table = plain_table("profile", numbers=columns, title="desktops (cluster.env.profile; means)")
    for name, means in desktops.items():
        table.add_row(name, *(f"{value:.1f}" for value in means.values()))
    gpu_columns = ("ms/token alone", "KV tokens")
    gpu_table = plain_table("profile", numbers=gpu_columns, after=("source",), title="GPUs (cluster.engine.gpu)")
    table.columns[0].no_wrap = gpu_table.columns[0].no_wrap = True
    for name, (per_token, tokens, source) in ((name, gpu.values()) for name, gpu in gpus.items()):
        gpu_table.add_row(name, f"{per_token:.1f}", f"{tokens:,}", str(source))
    out.print(table)
    out.print()
    out.print(gpu_table)


@config_app.command("faults")
def faults(
    sources: Annotated[bool, typer.Option("--sources", help="Show the response and the source of each instead.")] = (
        False
    ),
    json_file: Json = None,
) -> None:
    r"""List the kinds of faults of a modeled cluster, with their rates in each profile.

    Rates are shares of calls or messages, or numbers per hour of each desktop, host or worker.
    `cluster.faults.kinds.NAME` changes one, `cluster.faults.schedule` adds windows at set times.

    Examples:
        dartsim config faults
        dartsim config faults --json - | jq '.kinds[] | select(.place == "worker")'
        dartsim run --preset dart --faults osworld \
          --set cluster.faults.kinds.worker_crash.per_hour=1
        dartsim run --preset dart \
          --set 'cluster.faults.schedule=[{kind="host_lost", at_seconds=3600}]'
    """
    from dartsim.sim.faults import PROFILES, as_data

    kinds = as_data()
    if json_file is not None:
        write_json({"profiles": ["none", *PROFILES], "kinds": kinds}, json_file)
        if json_file == "-":
            return
    if sources:
        for kind in kinds:
            out.print(_description(kind))
    else:
        out.print(_table(kinds, PROFILES))
        out.print("rates: per 1,000 calls of that kind, or per 1,000 hours of each component")


def _table(kinds: list[dict[str, Any]], profiles: tuple[str, ...]) -> Table:
    table = plain_table("kind", numbers=profiles, after=("of 1,000",))
    for column in table.columns:
        column.no_wrap = True
    for kind in kinds:
        rates = (f"{1000.0 * kind['rates'][profile]:g}" for profile in profiles)
        table.add_row(kind["name"], *rates, kind["unit"])
    return table


def _description(kind: dict[str, Any]) -> str:
    seen = f"counted as {kind['cause']}" if kind["cause"] else "not seen as a fault"
    together = "" if kind["correlation"] == "independent" else f", {kind['correlation']}"
    what = f"{kind['description']}; {seen}. Response: {kind['response'] or 'see its plug-in'}. Source: {kind['source']}"
    return f"{kind['name']} ({kind['place']}{together}): {what}"
