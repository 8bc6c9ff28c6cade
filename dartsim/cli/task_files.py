"""``dartsim osworld fetch``: download the files of a list's tasks before a run needs them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import errors, out, write_json
from dartsim.cli.options import Json

if TYPE_CHECKING:
    from dartsim.core.types import Task
    from dartsim.real.osworld.fetch import Downloads

AT_ONCE = 8
"""Downloads at a time."""


def fetch(
    folder: Annotated[Path, typer.Argument(help="Task files in OSWorld's layout.", metavar="FOLDER")],
    list_name: Annotated[str, typer.Option("--list", help="Name of the list file.")] = "test_nogdrive",
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Where files are kept; default: where runs look.", show_default=False),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A host that may be private; repeat as needed.")
    ] = None,
    json_file: Json = None,
) -> None:
    r"""Download every file that a list's tasks name, and keep it by its hash.

    A file that changed on disk is fetched again. Runs find the files in DARTSIM_CACHE or the user's cache folder.

    Examples:
        dartsim osworld fetch OSWorld/evaluation_examples --list test_nogdrive
        dartsim osworld fetch OSWorld/evaluation_examples \
          --cache /data/dartsim --json files.json
    """
    from dartsim.envs.tasks import load_suite
    from dartsim.real.osworld.backend import cache_folder
    from dartsim.real.osworld.fetch import Downloads

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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
