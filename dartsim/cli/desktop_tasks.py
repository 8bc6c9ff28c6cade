"""``dartsim desktop tasks``: list the tasks of our desktop image or of a folder, or check ours on real desktops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import errors, result, table
from dartsim.cli.desktop import Host, ImageVariant, engine_settings
from dartsim.cli.options import Json
from dartsim.cli.task_lists import show_list
from dartsim.core.errors import ConfigError, EnvFault, ScoreUnavailable

if TYPE_CHECKING:
    from dartsim.config.schema import DockerHostConfig
    from dartsim.core.ports import EnvProvider
    from dartsim.core.types import Task
    from dartsim.real.containers import ContainerSpec


Row = dict[str, Any]
"""A task with its applications and the number of its oracle's steps, and what a check found."""


def tasks(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASK...|FOLDER", help="Ids of our tasks, by default all; or a folder in OSWorld's layout."
        ),
    ] = None,
    list_name: Annotated[str, typer.Option("--list", help="Name of the folder's list file.")] = "test_nogdrive",
    check: Annotated[
        bool, typer.Option("--check", help="Run each oracle, and an attempt without actions, on real desktops.")
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, help="Desktops that run at the same time.")] = 2,
    variant: Annotated[
        ImageVariant | None,
        typer.Option(help="Our image; default: skeleton for our tasks, OSWorld's own machine for a folder's."),
    ] = None,
    width: Annotated[int, typer.Option(min=1024, help="Screen size, pixels.")] = 1280,
    height: Annotated[int, typer.Option(min=720, help="Screen size, pixels.")] = 720,
    host: Host = None,
    json_file: Json = None,
) -> None:
    """List the tasks of our desktop image, check them, or show which tasks of a folder run.

    --check solves each of our tasks with its scripted solution (oracle), and checks that doing nothing does not solve
    it. For a folder in OSWorld's layout the command shows which tasks run, which need the internet (pages, or files
    that `desktop fetch` has not fetched), which lack an application or account, which cannot be scored or read, and
    who scores them.

    Exit code 1 if a check fails, or no task of the folder can be read.

    Examples:
        dartsim desktop tasks
        dartsim desktop tasks OSWorld/evaluation_examples --list test_all
        dartsim desktop tasks --check --at-once 4
    """
    if names and len(names) == 1 and Path(names[0]).is_dir():
        show_list(Path(names[0]), list_name, None if variant is None else variant.value, json_file)
        return
    chosen = _choose(names or [])
    if check:
        settings = engine_settings(host)
        import asyncio

        from dartsim.config.schema import DesktopConfig
        from dartsim.real.desktop import build, desktop_spec

        variant = variant or ImageVariant.SKELETON
        image = asyncio.run(build(variant.value, settings))
        spec = desktop_spec(DesktopConfig(variant=variant.value, width=width, height=height, image=image))
        rows = asyncio.run(_check(chosen, spec, settings, (width, height), at_once))
    else:
        rows = [_row(task) for task in chosen]
    result(rows, json_file).print(_results_table(rows) if check else _listing(rows, chosen))
    failed = [row["task"] for row in rows if check and not row["passed"]]
    if failed:
        errors.print(f"{len(failed)} of {len(rows)} tasks failed: {', '.join(failed)}")
        raise typer.Exit(1)


def _row(task: Task) -> Row:
    from dartsim.real.desktop.tasks.oracles import ORACLES

    apps = [str(app) for app in task.spec.get("related_apps", ())]
    return {"task": task.id, "apps": apps, "steps": len(ORACLES[task.id])}


def _choose(names: Sequence[str]) -> list[Task]:
    """Return the named tasks, all if none is named, in the order of the list."""
    from dartsim.real.desktop.tasks import desktop_tasks

    known = desktop_tasks()
    unknown = sorted(set(names) - {task.id for task in known})
    if unknown:
        raise ConfigError(f"no task is named {', '.join(unknown)}; `dartsim desktop tasks` lists them")
    return [task for task in known if not names or task.id in names]


async def _check(
    chosen: Sequence[Task], spec: ContainerSpec, settings: DockerHostConfig, screen: tuple[int, int], at_once: int
) -> list[Row]:
    """Check tasks on some desktops at a time; a fault is recorded in a task's row."""
    import asyncio

    from dartsim.real.desktop.tasks.playing import check_task, desktops

    free = list(range(at_once))
    limit = asyncio.Semaphore(at_once)
    done = 0

    async def check(provider: EnvProvider, task: Task) -> Row:
        nonlocal done
        found: Row = {"oracle": None, "nothing": None, "seconds": None, "fault": None, "passed": False}
        async with limit:
            slot = free.pop()
            try:
                checked = await check_task(provider, task, slot=slot)
            except (EnvFault, ScoreUnavailable) as fault:
                found["fault"] = str(fault)
            else:
                found |= {"oracle": checked.oracle.score, "nothing": checked.nothing, "passed": checked.passed}
                found["seconds"] = round(checked.oracle.seconds, 2)
            free.append(slot)
        done += 1
        status.update(f"{done} of {len(chosen)} tasks")
        return {**_row(task), **found}

    with errors.status(f"0 of {len(chosen)} tasks") as status:
        async with desktops(spec, settings, screen=screen) as provider, asyncio.TaskGroup() as group:
            rows = [group.create_task(check(provider, task)) for task in chosen]
    return [row.result() for row in rows]


def _listing(rows: Sequence[Row], chosen: Sequence[Task]) -> Table:
    lines = [
        (row["task"], ", ".join(row["apps"]), row["steps"], task.instruction)
        for row, task in zip(rows, chosen, strict=True)
    ]
    return table(["task", "app", "#steps", "instruction"], lines)


def _results_table(rows: Sequence[Row]) -> Table:
    lines = []
    for row in rows:
        verdict = "ok" if row["passed"] else f"failed{': ' + row['fault'] if row['fault'] else ''}"
        figures = (row[name] for name in ("steps", "oracle", "nothing", "seconds"))
        lines.append((row["task"], ", ".join(row["apps"]), *figures, verdict))
    return table(["task", "app", "#steps", "#oracle", "#nothing", "#seconds", ""], lines)
