"""``dartsim osworld``: the environment in which OSWorld's own metrics run, which tasks can be scored, their files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dartsim.cli.command_group import CommandGroup
from dartsim.cli.console import errors, out, plain_table, write_json
from dartsim.cli.options import Json
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.envs.tasks import TaskSuite
    from dartsim.real.osworld.coverage import Coverage
    from dartsim.real.scoring.sandbox import ScorerFacts

osworld_app = typer.Typer(
    cls=CommandGroup,
    help="Install OSWorld's metrics, check which tasks can be scored, and fetch the tasks' files.",
    no_args_is_help=True,
)

Home = Annotated[
    Path | None,
    typer.Option("--home", help="The evaluator's environment; default: the user's cache.", show_default=False),
]


@osworld_app.command("install")
def install(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Checkout of OSWorld's repository: its evaluators in place of PyPI's; use that of your tasks.",
            metavar="CHECKOUT",
            show_default=False,
        ),
    ] = None,
    light: Annotated[
        bool,
        typer.Option("--light/--full", help="Only what the metrics import (1.2 GB), or all of desktop-env (7 GB)."),
    ] = True,
    ocr: Annotated[
        bool,
        typer.Option("--ocr", help="Also easyocr with its weights (1 GB more), which compare_image_text reads with."),
    ] = False,
    python: Annotated[str | None, typer.Option(help="Interpreter, 3.10 to 3.12; default: this one.")] = None,
    home: Home = None,
) -> None:
    """Install OSWorld's own metrics in a virtual environment of their own, replacing an existing one.

    Examples:
        dartsim osworld install --from OSWorld
        dartsim osworld install --ocr
        dartsim osworld install --full --python python3.11
    """
    import sys

    from dartsim.real.scoring import evaluator_venv as venv

    place = home or venv.default_home()
    errors.print(f"creating {place} …", highlight=False)
    venv.install(place, light=light, ocr=ocr, python=python or sys.executable, source=source)
    facts = _facts(place)
    lacking = [f"{name} ({', '.join(lacks)})" for name, lacks in {**facts.metrics, **facts.getters}.items() if lacks]
    out.print(
        f"{facts.scorer} in {place}: {len(facts.metrics)} metrics and {len(facts.getters)} getters; "
        f"missing dependencies: {', '.join(lacking) or 'none'}",
        soft_wrap=True,
        highlight=False,
    )


@osworld_app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(help="Task files in OSWorld's layout.", metavar="FOLDER")],
    suite: Annotated[str, typer.Option("--list", help="Name of the list file.")] = "test_all",
    home: Home = None,
    json_file: Json = None,
) -> None:
    """Show which tasks the built-in metrics can score, which need desktop-env, and which are unsupported.

    Examples:
        dartsim osworld check osworld_tasks
        dartsim osworld check osworld_tasks --json -
    """
    from dartsim.envs.tasks import load_suite
    from dartsim.real.osworld.coverage import coverage
    from dartsim.real.scoring.evaluator_venv import default_home, other_version

    listed = load_suite(folder, suite, missing="skip", bad="skip")
    place = home or default_home()
    facts = _facts(place) if home or (place / "pyvenv.cfg").is_file() else None
    result = coverage(listed.tasks, facts)
    other = "" if facts is None else other_version(folder, facts.scorer)
    if json_file is not None:
        write_json(_figures(result, facts, listed) | ({"scorer_differs": other} if other else {}), json_file)
    if json_file != "-":
        _show(result, facts, listed)
        if other:
            out.print(other, highlight=False, markup=False, soft_wrap=True)


def _facts(home: Path) -> ScorerFacts:
    """Return the metrics and getters that an evaluator environment offers."""
    from dartsim.core.errors import ScoreUnavailable
    from dartsim.real.scoring.container import open_pool

    async def ask() -> ScorerFacts:
        async with open_pool(home, size=1) as pool:
            return await pool.facts()

    try:
        return asyncio.run(ask())
    except ScoreUnavailable as exc:
        raise ConfigError(f"{exc}; recreate {home} with `dartsim osworld install`") from exc


def _show(result: Coverage, facts: ScorerFacts | None, listed: TaskSuite) -> None:
    from dartsim.real.osworld.coverage import ScoredBy

    table = plain_table("tasks", numbers=list(ScoredBy))
    for domain in result.domains():
        table.add_row(domain, *(str(count) for count in result.counts(domain).values()))
    table.add_row("all", *(str(count) for count in result.counts().values()), style="bold")
    out.print(table)
    if facts is None:
        out.print("desktop-env: not installed, assumed complete; install it with `dartsim osworld install`")
    else:
        out.print(f"{facts.scorer} under Python {facts.python}")
    if listed.missing:
        out.print(f"{len(listed.missing)} tasks of the list have no file")
    for name, why in listed.bad.items():
        out.print(f"{name} cannot be read: {why}", highlight=False, markup=False, soft_wrap=True)
    for why, count in result.reasons(ScoredBy.UNSUPPORTED).items():
        out.print(f"unsupported, {count}: {why}", highlight=False, markup=False, soft_wrap=True)


def _figures(result: Coverage, facts: ScorerFacts | None, listed: TaskSuite) -> dict[str, object]:
    from dartsim.real.osworld.coverage import ScoredBy

    return {
        "counts": {str(by): count for by, count in result.counts().items()},
        "domains": {
            domain: {str(by): count for by, count in result.counts(domain).items()} for domain in result.domains()
        },
        "reasons": {str(by): result.reasons(by) for by in (ScoredBy.DESKTOP_ENV, ScoredBy.UNSUPPORTED)},
        "scorer": None if facts is None else facts.scorer,
        "missing": list(listed.missing),
        "unreadable": dict(listed.bad),
    }
