"""``dartsim config``: a resolved configuration as TOML; lists of presets, settings, profiles and faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from dartsim.cli.console import result, table
from dartsim.cli.options import (
    FaultsOption,
    Json,
    OnOption,
    Overrides,
    SchedulerArgument,
    load_config,
    settings,
)
from dartsim.core.errors import ConfigError


def config(
    scheduler: SchedulerArgument = None,
    on: OnOption = None,
    faults: FaultsOption = None,
    overrides: Overrides = None,
    listing: Annotated[
        Literal["presets", "settings", "profiles", "faults"] | None,
        typer.Option(
            "--list",
            help="Without a scheduler: presets (the default); settings, with defaults and meanings; profiles of "
            "desktops and GPUs; kinds of faults.",
        ),
    ] = None,
    json_file: Json = None,
) -> None:
    """Print the resolved configuration of a scheduler as TOML, ready to edit and run, or a list of names.

    Comments at the top name a preset's source, and where the preset departs from it. With --json the list of settings
    is a JSON schema.

    Examples:
        dartsim config
        dartsim config dart > my.toml
        dartsim config areal-eta4 --on osworld --faults calm
        dartsim config my.toml --json - | jq .rollout
        dartsim config --list settings
        dartsim config --list faults --json - | jq '.kinds[].source'
    """
    if scheduler is None:
        if on or faults or overrides:
            raise ConfigError("name the scheduler whose configuration is printed; `dartsim config` lists the presets")
        lists = {"presets": _presets, "settings": _settings, "profiles": _profiles, "faults": _faults}
        as_json, tables = lists[listing or "presets"]()
        console = result(as_json, json_file)
        for number, shown in enumerate(tables):
            if number > 0:
                console.print()
            console.print(shown)
        return
    if listing is not None:
        raise ConfigError(f"--list {listing} takes no scheduler; leave {scheduler} out")
    from dartsim.config import presets, to_toml

    resolved = load_config(scheduler, on=on, overrides=settings(overrides, None, None, faults))
    result(resolved.model_dump(mode="json"), json_file)
    if json_file == "-":
        return
    if (about := presets().get(scheduler, {}).get("about")) is not None:
        lines = [about["title"], f"Source: {about['source']}", *(f"Departs: {text}" for text in about["departures"])]
        typer.echo("\n".join(f"# {line}" for line in lines))
    typer.echo(to_toml(resolved), nl=False)


Listed = tuple[Any, Sequence[Table | str]]
"""A list as JSON, and as tables with a line of text below them."""


def _presets() -> Listed:
    from dartsim.config import presets

    abouts = {name: tree.get("about", {}) for name, tree in presets().items()}
    shown = table(["preset", "what"], [(name, about["title"]) for name, about in abouts.items()])
    return abouts, [shown, "`dartsim config PRESET` shows its settings, its source and its departures from it"]


def _settings() -> Listed:
    from dartsim.config import Config
    from dartsim.config.settings import describe
    from dartsim.sim.latency import describe_kinds

    rows = [(setting.key, setting.default, setting.meaning) for setting in describe()]
    title = "distributions (cluster.env.latency.*, …): a number, or a table with a kind"
    known, distributions = [], []
    for kind, forms, meaning in describe_kinds():
        known.append({"kind": kind, "meaning": meaning, "forms": forms})
        fields = "; or ".join(", ".join(f"{key} ({what})" for key, what in form.items()) for form in forms)
        distributions.append((kind, meaning, fields))
    tables = [
        table(["setting", "default", "meaning"], rows),
        table(["kind", "what", "fields"], distributions, title),
    ]
    return {**Config.model_json_schema(), "distributions": known}, tables


def _profiles() -> Listed:
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
    tables = [
        table(
            ["profile", "#boot s", *(f"#{part} s" for part in parts), "#memory GiB"],
            [(name, *means.values()) for name, means in desktops.items()],
            "desktops (cluster.env.profile; means)",
        ),
        table(
            ["profile", "#ms/token alone", "#KV tokens", "source"],
            [(name, *gpu.values()) for name, gpu in gpus.items()],
            "GPUs (cluster.engine.gpu)",
        ),
    ]
    return {"desktops": desktops, "gpus": gpus}, tables


def _faults() -> Listed:
    from dartsim.sim.faults import PROFILES, as_data

    kinds = as_data()
    rows = [(kind["name"], *(1000.0 * kind["rates"][profile] for profile in PROFILES), kind["unit"]) for kind in kinds]
    shown = table(["kind", *(f"#{profile}" for profile in PROFILES), "of 1,000"], rows)
    rates_of = "rates: per 1,000 calls of that kind, or per 1,000 hours of each component; sources: --json"
    return {"profiles": ["none", *PROFILES], "kinds": kinds}, [shown, rates_of]
