"""OSWorld's tasks on our image ``apps``: which run, what doing nothing scores, and what scripted solutions score.

python -m experiments.osworld_apps --tasks OSWorld/evaluation_examples

A task of OSWorld runs here if its files are not downloaded and it needs neither a proxy nor an application that Debian
lacks; beside these are office tasks on files that we make. Each task is set up twice on a fresh desktop: nothing is
done, then its solution is played, or FAIL if it cannot be solved; office tasks a third time, with a wrong answer. The
scores are those of ``desktop-env``'s functions in the sandbox. One desktop runs at a time. With ``--results FILE`` an
interrupted run goes on after the last task that it finished.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import ConfigError, EnvFault, ScoreUnavailable
from dartsim.core.types import Task
from dartsim.envs.base import FAIL, is_infeasible
from dartsim.envs.tasks import load_suite
from dartsim.real.containers import DesktopFleet, DockerHost
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.images import image_name
from dartsim.real.desktop.tasks.playing import do_nothing, play
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.coverage import coverage
from dartsim.real.osworld.fetch import Downloads, task_urls
from dartsim.real.osworld.needs import offer_of
from dartsim.real.osworld.provider import DesktopProvider
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import OWN_SERVER
from dartsim.real.scoring.container import open_pool
from dartsim.real.scoring.evaluator_venv import default_home
from dartsim.real.scratch import scratch_folder
from experiments.office_tasks import LIST, RIGHT, WRONG, make_office_tasks
from experiments.osworld_solutions import SOLUTIONS
from experiments.study import Experiment, Figures, Options, Rows, rows_of, short_commit

MEMORY_MIB = 3072
TRIES = 3
"""Attempts at a task whose desktop fails; the last failure is recorded."""

Row = dict[str, Any]


def measure(options: Options) -> Figures:
    """Play the tasks, then measure the desktop itself."""
    from experiments.apps_boot import measured

    if options.own.tasks is None:
        raise ConfigError("--tasks names the folder of OSWorld's task files, evaluation_examples of its repository")
    figures = asyncio.run(_played(options))
    desktop = measured(boots=3 if options.quick else 10, say=options.console.print)
    return {**figures, **desktop, "config": {"image": image_name("apps")}}


async def _played(options: Options) -> Figures:
    home = default_home()
    with scratch_folder("office") as office:
        make_office_tasks(office, home)
        suite = load_suite(options.own.tasks, "test_all", missing="skip", bad="skip")
        ours = load_suite(office, LIST)
        async with _desktops(office, home) as (provider, pool):
            facts = await pool.facts()
            found = coverage([*suite.tasks, *ours.tasks], facts, offer=offer_of("apps", internet=False))
            states = Counter(str(verdict.state) for verdict in found.verdicts if verdict.task in suite.tasks)
            rows: list[Row] = []
            for verdict in found.verdicts:
                task = verdict.task
                if not (task in ours.tasks or needs_no_files(task)):
                    continue
                row = {
                    "id": task.id,
                    "app": task.domain,
                    "runs": not verdict.reasons,
                    "reason": "; ".join(verdict.reasons),
                }
                if row["runs"] and not (options.quick and len(rows) > 3):
                    row |= await _finished(provider, task, options)
                rows.append(row)
    return {**summary(rows), "states": dict(states), "scorer": facts.scorer, "tasks": rows}


def needs_no_files(task: Task) -> bool:
    """Whether a task of OSWorld downloads nothing and is not run behind a proxy."""
    return not task_urls(task) and not task.spec.get("proxy")


def summary(rows: Sequence[Row]) -> Figures:
    """Return the counts of rows."""
    osworld = [row for row in rows if row["app"] != LIST]
    office = [row for row in rows if row["app"] == LIST]
    return {
        "listed": len(osworld),
        "run": sum(row["runs"] for row in osworld),
        "solved": sum(row.get("solution_score") == 1.0 and not row.get("infeasible") for row in osworld),
        "infeasible": sum(bool(row.get("infeasible")) and row["solution_score"] == 1.0 for row in osworld),
        "office": len(office),
        "office_right": sum(row.get("solution_score") == 1.0 for row in office),
        "office_wrong": sum(row.get("wrong_score") == 0.0 for row in office),
    }


async def _finished(provider: DesktopProvider, task: Task, options: Options) -> Row:
    """Return the scores of a task, from the file of results if it has them."""
    key = f"{image_name('apps')} {task.id}"
    file = options.results
    done = {} if file is None or not file.is_file() else dict(map(json.loads, file.read_text().splitlines()))
    if key in done:
        return dict(done[key])
    scores: Row = {}
    for number in range(1, TRIES + 1):
        try:
            scores = await _scores(provider, task)
            break
        except (EnvFault, ScoreUnavailable) as fault:
            scores = {"fault": str(fault)[:300]}
            options.console.print(f"{task.domain}/{task.id}, try {number}: {fault}", highlight=False, markup=False)
    options.console.print(f"{task.domain}/{task.id}: {scores}", highlight=False)
    if file is not None and "fault" not in scores:
        with file.open("a") as lines:
            lines.write(json.dumps([key, scores]) + "\n")
    return scores


async def _scores(provider: DesktopProvider, task: Task) -> Row:
    nothing = await do_nothing(provider, task)
    if is_infeasible(task):
        right = await play(provider, task, [FAIL])
        return {"infeasible": True, "nothing_score": nothing, "solution_score": right.score}
    turns = SOLUTIONS.get(task.id) or RIGHT.get(task.id)
    if turns is None:
        return {"nothing_score": nothing, "solution_score": None}
    right = await play(provider, task, turns)
    scores = {"nothing_score": nothing, "solution_score": right.score, "seconds": round(right.seconds, 1)}
    if task.id in WRONG:
        scores["wrong_score"] = (await play(provider, task, WRONG[task.id])).score
    return scores


@asynccontextmanager
async def _desktops(folder: Path, home: Path) -> AsyncIterator[tuple[DesktopProvider, Any]]:
    spec = desktop_spec(DesktopConfig(variant="apps", memory_mib=MEMORY_MIB))
    async with DesktopFleet([DockerHost(DockerHostConfig())]) as fleet, open_pool(home, size=1) as pool:
        await fleet.require(spec.image)
        options = DesktopOptions(
            settings=DesktopSettings(),
            server=OWN_SERVER,
            downloads=Downloads(folder / "downloads", sources=(folder,)),
            scorer=Scorer(pool),
        )
        yield DesktopProvider(fleet, spec, options), pool


def apps_found(figures: Figures) -> str:
    """Say in a few sentences what ran."""
    boot = figures["boot_seconds"]
    return (
        f"Of OSWorld's {figures['listed']} tasks without downloads and proxies, {figures['run']} run on `apps`. "
        f"Scripts solve {figures['solved']} through the screen; {figures['infeasible']} cannot be solved, and score 1 "
        f"for FAIL. Of {figures['office']} office tasks on documents of our own {figures['office_right']} score 1 with "
        f"the right answer, {figures['office_wrong']} score 0 with a wrong one. A desktop starts in "
        f"{boot['p50']:.1f} s (p95 {boot['p95']:.1f} s) and takes {figures['memory_mib']:,} MiB; its image has "
        f"{figures['image_mib']:,} MiB. "
        f"Scored by {figures['scorer']}; recorded at commit {short_commit(figures)}.\n"
    )


def apps_table(figures: Figures) -> Rows:
    """Return the tasks by application."""
    return rows_of(
        {
            "application": "{app}",
            "tasks": "{tasks}",
            "run": "{run}",
            "solved by a script": "{solved}",
            "infeasible, FAIL scores 1": "{infeasible}",
            "score above 0 if nothing is done": "{untouched}",
            "why others do not run": "{reasons}",
        },
        [by_application(app, figures["tasks"]) for app in sorted({row["app"] for row in figures["tasks"]})],
    )


def by_application(app: str, tasks: Sequence[Mapping[str, Any]]) -> Row:
    """Return the counts of one application's tasks."""
    rows = [row for row in tasks if row["app"] == app]
    reasons = Counter(row["reason"].partition(":")[0] for row in rows if not row["runs"])
    return {
        "app": app,
        "tasks": len(rows),
        "run": sum(row["runs"] for row in rows),
        "solved": sum(row.get("solution_score") == 1.0 and not row.get("infeasible") for row in rows),
        "infeasible": sum(bool(row.get("infeasible")) for row in rows),
        "untouched": sum((row.get("nothing_score") or 0.0) > 0.0 for row in rows),
        "reasons": ", ".join(f"{count}: {reason}" for reason, count in reasons.most_common()),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's own options."""
    parser.add_argument("--tasks", type=Path, metavar="FOLDER", help="OSWorld's evaluation_examples")


STUDY = Experiment(
    name="osworld_apps",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"osworld-apps-found": apps_found, "osworld-apps-table": apps_table},
    add_arguments=add_arguments,
)

if __name__ == "__main__":
    STUDY.run()
