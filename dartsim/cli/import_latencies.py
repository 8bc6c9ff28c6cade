"""``dartsim import-latencies``: measured latencies of desktops as a profile."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dartsim.cli.console import out, plain_table, write_json
from dartsim.cli.options import Json, file_target


class TimeUnit(StrEnum):
    """Units of times in a file."""

    S = "s"
    MS = "ms"


class FittedKind(StrEnum):
    """Kinds of distributions that are fitted."""

    BEST = "best"
    EMPIRICAL = "empirical"
    LOGNORMAL = "lognormal"
    GAMMA = "gamma"
    SHIFTED = "shifted lognormal"


def import_latencies(
    file: Annotated[Path, typer.Argument(metavar="CSV", help="A CSV file with a line of column names.")],
    column: Annotated[
        list[str],
        typer.Option(
            metavar="STEP[=COLUMN]",
            help="A latency of a desktop (start, boot, setup, step, evaluate, teardown), and its column if that has "
            "another name; repeatable.",
        ),
    ],
    unit: Annotated[TimeUnit, typer.Option(help="Unit of the times: s or ms.")] = TimeUnit.S,
    kind: Annotated[
        FittedKind,
        typer.Option(help="The kind to write; best: the closest with a formula."),
    ] = FittedKind.EMPIRICAL,
    out_file: Annotated[Path, typer.Option("--out", callback=file_target, help="The profile to write.")] = Path(
        "latencies.toml"
    ),
    plot: Annotated[
        Path | None, typer.Option(callback=file_target, help="The page of plots; default: beside the profile.")
    ] = None,
    json_file: Json = None,
) -> None:
    r"""Fit distributions to measured latencies, and write a profile for --profile.

    The table and the page show how well each kind fits: the Kolmogorov-Smirnov distance is the largest difference
    between the shares of times below any value, from 0 (the same) to 1. By default the profile repeats the measured
    times themselves (kind empirical), which is right unless there are few of them.

    Examples:
        dartsim import-latencies times.csv --column step
        dartsim import-latencies times.csv --column step=action_ms --unit ms \
          --column boot=boot_ms --out mine.toml
        dartsim compare dartsim areal-eta4 --on cluster.toml \
          --profile latencies.toml
    """
    import tomli_w

    from dartsim.config.load import from_tree
    from dartsim.core.errors import ConfigError
    from dartsim.lab.import_latencies import MAX_SHOWN, SHOWN, STEPS, candidates, chosen, read_column
    from dartsim.observe.report import render_latencies
    from dartsim.observe.rundir import write_text

    named = {name: source or name for name, _, source in (text.partition("=") for text in column)}
    if unknown := [name for name in named if name not in STEPS]:
        raise ConfigError(f"a desktop has no latency {unknown[0]!r}; it has: {', '.join(STEPS)} (--column step=NAME)")
    if out_file.exists():
        raise ConfigError(f"{out_file} exists already; name another file with --out, or remove it")
    times = {name: read_column(file, source, unit.value) for name, source in named.items()}
    fits = {name: candidates(seconds) for name, seconds in times.items()}
    used = {name: chosen(fitted, None if kind is FittedKind.BEST else kind.value) for name, fitted in fits.items()}
    tree = {"cluster": {"env": {"latency": {name: dict(candidate.spec) for name, candidate in used.items()}}}}
    from_tree(tree)
    about = {"title": f"Measured latencies of {file.name}", "source": f"dartsim import-latencies {file}"}
    write_text(out_file, tomli_w.dumps({"about": about, **tree}))
    page = render_latencies(
        {
            name: {
                "measured": sorted(seconds.tolist())[:: -(-len(seconds) // MAX_SHOWN)],
                "count": len(seconds),
                "mean": float(seconds.mean()),
                "used": used[name].kind,
                "fits": [asdict(candidate) for candidate in fits[name]],
            }
            for name, seconds in times.items()
        },
        SHOWN,
        plot or out_file.with_suffix(".html"),
        title=file.name,
    )
    if json_file != "-":
        table = plain_table("latency", "kind", numbers=("n", "mean s", "mean fitted s", "KS distance"), after=("",))
        for name, fitted in fits.items():
            for candidate in fitted:
                mark = "written" if candidate is used[name] else ""
                means = (f"{times[name].mean():.4g}", f"{candidate.mean:.4g}")
                table.add_row(name, candidate.kind, f"{len(times[name]):,}", *means, f"{candidate.ks:.3f}", mark)
        out.print(table)
        out.print(f"profile: {out_file}", soft_wrap=True, highlight=False)
        out.print(f"plot: {page.resolve().as_uri()}", soft_wrap=True)
        commands = [] if Path("cluster.toml").exists() else ["dartsim new cluster.toml"]
        commands.append(f"dartsim compare dartsim areal-eta4 --on cluster.toml --profile {out_file}")
        for label, command in zip(("next:", "     "), commands, strict=False):
            out.print(label, command, soft_wrap=True, highlight=False)
    if json_file is not None:
        rows = {
            name: [{"kind": one.kind, "ks": one.ks, "mean": one.mean, "spec": dict(one.spec)} for one in fitted]
            for name, fitted in fits.items()
        }
        write_json({"profile": str(out_file), "plot": str(page), "fits": rows}, json_file)
