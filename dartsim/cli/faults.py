"""``dartsim faults``: the faults of the modelled cluster, their rates in each profile, and their sources."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import out, write_json
from dartsim.cli.options import Json
from dartsim.cli.tables import plain_table

EXAMPLES = (
    "Examples:\n\n"
    "dartsim faults\n\n"
    "dartsim faults --json - | jq '.kinds[] | select(.place == \"worker\")'\n\n"
    "dartsim run --preset dart --faults osworld \\\n  --set cluster.faults.kinds.worker_crash.per_hour=1\n\n"
    "dartsim run --preset dart \\\n  --set 'cluster.faults.schedule=[{kind=\"host_lost\", at_seconds=3600}]'"
)


def faults(
    sources: Annotated[bool, typer.Option("--sources", help="Also show what happens, and the source.")] = (False),
    json_file: Json = None,
) -> None:
    """List the kinds of faults of a modelled cluster, with their rates in each profile.

    Rates are shares of calls or messages, or numbers per hour of each desktop, host or worker.
    `cluster.faults.kinds.NAME` changes one, `cluster.faults.schedule` adds windows at set times.
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
    table = plain_table()
    table.add_column("kind", no_wrap=True)
    for profile in profiles:
        table.add_column(profile, justify="right", no_wrap=True)
    table.add_column("of 1,000", no_wrap=True)
    for kind in kinds:
        rates = (f"{1000.0 * kind['rates'][profile]:g}" for profile in profiles)
        table.add_row(kind["name"], *rates, kind["unit"])
    return table


def _description(kind: dict[str, Any]) -> str:
    seen = f"counted as {kind['cause']}" if kind["cause"] else "not seen as a fault"
    together = "" if kind["correlation"] == "independent" else f", {kind['correlation']}"
    what = f"{kind['description']}; {seen}. Source: {kind['source']}"
    return f"[bold]{kind['name']}[/bold] ({kind['place']}{together}): {what}"
