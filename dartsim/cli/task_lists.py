"""Lists of tasks in OSWorld's layout: who can score them, the files that they need, and OSWorld's own evaluator."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import TextConsole, errors, out, result, table
from dartsim.cli.desktop import ImageVariant
from dartsim.cli.options import Json
from dartsim.core.errors import ConfigError, DartsimError, ScoreUnavailable

if TYPE_CHECKING:
    from dartsim.core.types import Task
    from dartsim.envs.tasks import TaskSuite
    from dartsim.real.osworld.coverage import Coverage
    from dartsim.real.osworld.fetch import Downloads
    from dartsim.real.scoring.sandbox import ScorerFacts

AT_ONCE = 8
"""Downloads at a time."""


def fetch(
    folder: Annotated[Path, typer.Argument(help="Task files in OSWorld's layout.", metavar="FOLDER")],
    list_name: Annotated[str, typer.Option("--list", help="Name of the list file.")] = "test_nogdrive",
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder for the files; default: where runs look for them.", show_default=False),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A host that may have a private address; repeatable.")
    ] = None,
    json_file: Json = None,
) -> None:
    r"""Download every file that a list's tasks name, and record its hash.

    A file that changed on disk is downloaded again. Runs find the files in DARTSIM_CACHE or the user's cache folder.

    Examples:
        dartsim desktop fetch OSWorld/evaluation_examples --list test_nogdrive
        dartsim desktop fetch OSWorld/evaluation_examples \
          --cache /data/dartsim --json files.json
    """
    import asyncio

    from dartsim.envs.tasks import load_suite
    from dartsim.real.osworld.fetch import Downloads, cache_folder

    suite = load_suite(folder, list_name, missing="skip", bad="skip")
    place = cache or cache_folder()
    downloads = Downloads(place, allowed=allow_host or ())
    with errors.status(f"fetching the files of {list_name}"):
        files = asyncio.run(fetch_files(suite.tasks, downloads))
    failed = [file for file in files if "problem" in file]
    console = result({"folder": str(place), "files": files, "unreadable_tasks": suite.problems}, json_file)
    size = sum(file.get("bytes", 0) for file in files)
    console.say(f"{len(files) - len(failed)} of {len(files)} files, {size:,} bytes, in {place}")
    for file in failed:
        errors.say(f"{', '.join(file['tasks'])}: {file['problem']}")
    for name, problem in suite.problems.items():
        errors.say(f"{name}: {problem}")
    if failed or suite.problems:
        raise typer.Exit(1)


async def fetch_files(tasks: Sequence[Task], downloads: Downloads) -> list[dict[str, Any]]:
    """Fetch all files of tasks; return ``url`` and ``tasks`` of each, and ``sha256`` and ``bytes``, or ``problem``."""
    import asyncio

    from dartsim.real.osworld.fetch import task_urls

    users: dict[str, list[str]] = {}
    for task in tasks:
        for url in task_urls(task):
            users.setdefault(url, []).append(task.id)
    room = asyncio.Semaphore(AT_ONCE)

    async def fetch_one(url: str) -> dict[str, Any]:
        try:
            async with room:
                path = await downloads.verified(url)
        except DartsimError as error:
            return {"url": url, "tasks": users[url], "problem": str(error)}
        digest = await asyncio.to_thread(_digest, path)
        return {"url": url, "tasks": users[url], "sha256": digest, "bytes": path.stat().st_size}

    return list(await asyncio.gather(*map(fetch_one, users)))


def _digest(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tasks(
    folder: Annotated[Path, typer.Argument(help="Task files in OSWorld's layout.", metavar="FOLDER")],
    list_name: Annotated[str, typer.Option("--list", help="Name of the list file.")] = "test_nogdrive",
    variant: Annotated[ImageVariant | None, typer.Option(help="Our image; default: OSWorld's own machine.")] = None,
    json_file: Json = None,
) -> None:
    """Show which tasks of a list run on our image or OSWorld's machine, and who scores them.

    Some need the internet (pages, or files that `desktop fetch` has not fetched), some lack an application or account,
    and some cannot be scored or read.

    Exit code 1 if no task can be read.

    Examples:
        dartsim desktop tasks OSWorld/evaluation_examples --list test_all
        dartsim desktop tasks OSWorld/evaluation_examples --variant apps
    """
    from dartsim.envs.tasks import load_suite
    from dartsim.real.osworld.coverage import coverage
    from dartsim.real.osworld.fetch import cache_folder
    from dartsim.real.osworld.needs import DesktopOffer, offer_of
    from dartsim.real.scoring.evaluator_venv import default_home, installed_version, other_version

    listed = load_suite(folder, list_name, missing="skip", bad="skip")
    home = default_home()
    facts = scorer_facts(home) if installed_version(home) else None
    cache = cache_folder()
    offer = DesktopOffer(cache=cache) if variant is None else offer_of(variant, cache=cache)
    found = coverage(listed.tasks, facts, folder=folder, offer=offer)
    differs = "" if facts is None else other_version(folder, facts.scorer)
    console = result(_figures(found, facts, listed) | {"scorer_differs": differs}, json_file)
    _show(found, facts, listed, differs, console)
    if not listed.tasks:
        raise typer.Exit(1)


def _show(found: Coverage, facts: ScorerFacts | None, listed: TaskSuite, differs: str, console: TextConsole) -> None:
    from dartsim.real.osworld.coverage import ScoredBy, TaskState

    rows = [
        (domain or "all", *found.states(domain).values(), *list(found.counts(domain).values())[:-1])
        for domain in (*found.domains(), None)
    ]
    console.print(table(["tasks", *(f"#{state}" for state in TaskState), "#by us", "#by desktop-env"], rows))
    console.say("internet: runs if the desktops reach it; missing: an application or account; the last two: who scores")
    if facts is None:
        console.say("desktop-env: not installed, assumed complete; install it with `dartsim desktop evaluator`")
    else:
        console.say(f"{facts.scorer} under Python {facts.python}")
    if differs:
        console.say(differs)
    if listed.missing:
        console.say(f"{len(listed.missing)} tasks of the list have no file")
    for name, why in listed.bad.items():
        console.say(f"{name} cannot be read: {why}")
    for need, count in found.needs().items():
        console.say(f"{need}: {count}")
    for why, count in found.reasons(ScoredBy.UNSUPPORTED).items():
        console.say(f"unsupported, {count}: {why}")


def _figures(found: Coverage, facts: ScorerFacts | None, listed: TaskSuite) -> dict[str, object]:
    from dartsim.real.osworld.coverage import ScoredBy

    def counted(domain: str | None = None) -> dict[str, dict[str, int]]:
        return {"counts": _texts(found.counts(domain)), "states": _texts(found.states(domain))}

    return {
        **counted(),
        "domains": {domain: counted(domain) for domain in found.domains()},
        "tasks": {
            verdict.name: {"state": str(verdict.state), "reasons": list(verdict.reasons), "scored_by": str(verdict.by)}
            for verdict in found.verdicts
        },
        "reasons": {str(by): found.reasons(by) for by in (ScoredBy.DESKTOP_ENV, ScoredBy.UNSUPPORTED)},
        "scorer": None if facts is None else facts.scorer,
        "missing": list(listed.missing),
        "unreadable": dict(listed.bad),
    }


def _texts(counts: Mapping[Any, int]) -> dict[str, int]:
    return {str(key): count for key, count in counts.items()}


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
    errors.say(f"creating {home} with packages of 1.2 GB: a minute or more without further output …")
    venv.install(home, ocr=ocr, python=python or sys.executable, source=source)
    facts = scorer_facts(home)
    lacking = [f"{name} ({', '.join(lacks)})" for name, lacks in {**facts.metrics, **facts.getters}.items() if lacks]
    out.say(
        f"{facts.scorer} in {home}: {len(facts.metrics)} metrics and {len(facts.getters)} getters; "
        f"missing dependencies: {', '.join(lacking) or 'none'}"
    )


def scorer_facts(home: Path) -> ScorerFacts:
    """Return the metrics and getters that an evaluator environment offers.

    Raises:
        ConfigError: If it does not answer.
    """
    import asyncio

    from dartsim.real.scoring.container import open_pool

    async def ask() -> ScorerFacts:
        async with open_pool(home, size=1) as pool:
            return await pool.facts()

    try:
        return asyncio.run(ask())
    except ScoreUnavailable as error:
        raise ConfigError(str(error), f"if {home} is broken, `dartsim desktop evaluator` makes it anew") from error
