"""``dartsim desktop evaluator``: install the environment in which OSWorld's own metrics run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dartsim.cli.console import errors, out
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.real.scoring.sandbox import ScorerFacts


def evaluator(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Checkout of OSWorld's repository, to use its evaluators in place of PyPI's; take that of your tasks.",
            metavar="CHECKOUT",
            show_default=False,
        ),
    ] = None,
    ocr: Annotated[
        bool,
        typer.Option("--ocr", help="Also install easyocr with its weights (1 GB more), for compare_image_text."),
    ] = False,
    python: Annotated[str | None, typer.Option(help="Interpreter, 3.10 to 3.12; default: this one.")] = None,
) -> None:
    """Install OSWorld's own metrics in a separate virtual environment, replacing an existing one.

    Examples:
        dartsim desktop evaluator --from OSWorld
        dartsim desktop evaluator --ocr --python python3.11
    """
    from dartsim.real.scoring import evaluator_venv as venv

    home = venv.default_home()
    errors.print(f"creating {home} …", highlight=False)
    venv.install(home, ocr=ocr, python=python or sys.executable, source=source)
    facts = scorer_facts(home)
    lacking = [f"{name} ({', '.join(lacks)})" for name, lacks in {**facts.metrics, **facts.getters}.items() if lacks]
    out.print(
        f"{facts.scorer} in {home}: {len(facts.metrics)} metrics and {len(facts.getters)} getters; "
        f"missing dependencies: {', '.join(lacking) or 'none'}",
        soft_wrap=True,
        highlight=False,
    )


def scorer_facts(home: Path) -> ScorerFacts:
    """Return the metrics and getters that an evaluator environment offers.

    Raises:
        ConfigError: If it does not answer.
    """
    import asyncio

    from dartsim.core.errors import ScoreUnavailable
    from dartsim.real.scoring.container import open_pool

    async def ask() -> ScorerFacts:
        async with open_pool(home, size=1) as pool:
            return await pool.facts()

    try:
        return asyncio.run(ask())
    except ScoreUnavailable as error:
        raise ConfigError(str(error), f"if {home} is broken, `dartsim desktop evaluator` makes it anew") from error
