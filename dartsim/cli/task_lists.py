"""Lists of tasks in OSWorld's layout: who can score them, and the files that they need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import errors, out, plain_table, write_json
from dartsim.cli.desktop import ImageVariant
from dartsim.cli.options import Json

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
    if json_file is not None:
        write_json({"folder": str(place), "files": files, "unreadable_tasks": suite.problems}, json_file)
    if json_file != "-":
        size = sum(file.get("bytes", 0) for file in files)
        out.print(f"{len(files) - len(failed)} of {len(files)} files, {size:,} bytes, in {place}", highlight=False)
    for file in failed:
        errors.print(f"{', '.join(file['tasks'])}: {file['problem']}", highlight=False, markup=False, soft_wrap=True)
    for name, problem in suite.problems.items():
        errors.print(f"{name}: {problem}", highlight=False, markup=False, soft_wrap=True)
    if failed or suite.problems:
        raise typer.Exit(1)


async def fetch_files(tasks: Sequence[Task], downloads: Downloads) -> list[dict[str, Any]]:
    """Fetch all files of tasks; return ``url`` and ``tasks`` of each, and ``sha256`` and ``bytes``, or ``problem``."""
    import asyncio

    from dartsim.core.errors import DartsimError
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
    from dartsim.cli.evaluator import scorer_facts
    from dartsim.envs.tasks import load_suite
    from dartsim.real.osworld.coverage import coverage
    from dartsim.real.osworld.fetch import cache_folder
    from dartsim.real.osworld.needs import DesktopOffer, offer_of
    from dartsim.real.scoring.evaluator_venv import default_home, other_version

    listed = load_suite(folder, list_name, missing="skip", bad="skip")
    home = default_home()
    facts = scorer_facts(home) if (home / "pyvenv.cfg").is_file() else None
    cache = cache_folder()
    offer = DesktopOffer(cache=cache) if variant is None else offer_of(variant.value, cache=cache)
    result = coverage(listed.tasks, facts, folder=folder, offer=offer)
    differs = "" if facts is None else other_version(folder, facts.scorer)
    if json_file is not None:
        write_json(_figures(result, facts, listed) | {"scorer_differs": differs}, json_file)
    if json_file != "-":
        _show(result, facts, listed, differs)
    if not listed.tasks:
        raise typer.Exit(1)


def _show(result: Coverage, facts: ScorerFacts | None, listed: TaskSuite, differs: str) -> None:
    from dartsim.real.osworld.coverage import ScoredBy, TaskState

    def say(text: str) -> None:
        out.print(text, highlight=False, markup=False, soft_wrap=True)

    def row(domain: str | None) -> list[str]:
        return [str(count) for count in (*result.states(domain).values(), *list(result.counts(domain).values())[:-1])]

    table = plain_table("tasks", numbers=[*TaskState, "by us", "by desktop-env"])
    for domain in result.domains():
        table.add_row(domain, *row(domain))
    table.add_row("all", *row(None), style="bold")
    out.print(table)
    say("internet: runs if the desktops reach it; missing: an application or account; the last two: who scores")
    if facts is None:
        say("desktop-env: not installed, assumed complete; install it with `dartsim desktop evaluator`")
    else:
        say(f"{facts.scorer} under Python {facts.python}")
    if differs:
        say(differs)
    if listed.missing:
        say(f"{len(listed.missing)} tasks of the list have no file")
    for name, why in listed.bad.items():
        say(f"{name} cannot be read: {why}")
    for need, count in result.needs().items():
        say(f"{need}: {count}")
    for why, count in result.reasons(ScoredBy.UNSUPPORTED).items():
        say(f"unsupported, {count}: {why}")


def _figures(result: Coverage, facts: ScorerFacts | None, listed: TaskSuite) -> dict[str, object]:
    from dartsim.real.osworld.coverage import ScoredBy

    return {
        "counts": {str(by): count for by, count in result.counts().items()},
        "states": {str(state): count for state, count in result.states().items()},
        "domains": {
            domain: {
                "counts": {str(by): count for by, count in result.counts(domain).items()},
                "states": {str(state): count for state, count in result.states(domain).items()},
            }
            for domain in result.domains()
        },
        "tasks": {
            verdict.name: {"state": str(verdict.state), "reasons": list(verdict.reasons), "scored_by": str(verdict.by)}
            for verdict in result.verdicts
        },
        "reasons": {str(by): result.reasons(by) for by in (ScoredBy.DESKTOP_ENV, ScoredBy.UNSUPPORTED)},
        "scorer": None if facts is None else facts.scorer,
        "missing": list(listed.missing),
        "unreadable": dict(listed.bad),
    }
