"""How ``experiments.osworld_apps`` plays tasks, each on a fresh desktop, and what such a desktop costs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import EnvFault, ScoreUnavailable
from dartsim.core.types import Task
from dartsim.envs.base import FAIL, is_infeasible
from dartsim.envs.tasks import load_suite
from dartsim.real.containers import Container, DesktopFleet, DockerHost
from dartsim.real.containers.engine import connect
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.images import image_name
from dartsim.real.desktop.tasks.playing import do_nothing, play
from dartsim.real.osworld.client import VmClient
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
from experiments.desktop_work import percentiles, start_seconds
from experiments.office_tasks import LIST, RIGHT, WRONG, make_office_tasks
from experiments.osworld_solutions import SOLUTIONS
from experiments.study import Figures, Options

MEMORY_MIB = 3072
IDLE_SECONDS = 20.0
"""Until a desktop is at rest after its start, and after its applications have been started."""
APPLICATIONS = (
    "google-chrome",
    "libreoffice --calc",
    "libreoffice --writer",
    "libreoffice --impress",
    "gimp",
    "vlc",
    "thunderbird",
    "gnome-terminal",
)
MEMORY_SHARE = 0.85
"""Of a machine's memory, the share that desktops may take."""
TRIES = 3
"""Attempts at a task whose desktop fails; the last failure is recorded."""

Row = dict[str, Any]


async def played(options: Options) -> Figures:
    """Play the tasks and return their rows, and the counts of these."""
    home = default_home()
    with scratch_folder("office") as office:
        make_office_tasks(office, home)
        suite = load_suite(options.own.tasks, "test_all", missing="skip", bad="skip")
        ours = load_suite(office, LIST)
        async with apps_desktops(office, home) as (provider, pool):
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


async def costs(boots: int, together: int) -> Figures:
    """Return how long desktops take to start, alone and together, and what one takes, idle and with programs open."""
    spec = desktop_spec(DesktopConfig(variant="apps", memory_mib=4096))
    async with DockerHost() as host:
        await start_seconds(host, spec)  # the engine has read the image once
        boot = [await start_seconds(host, spec) for _ in range(boots)]
        many = await asyncio.gather(*(start_seconds(host, spec, slot) for slot in range(together)))
        container = await host.start(spec, slot=0)
        url = f"http://{container.host}:{container.ports['server']}"
        async with VmClient(url, server=OWN_SERVER) as desktop:
            await asyncio.sleep(IDLE_SECONDS)
            before, _ = used(container)
            await asyncio.sleep(IDLE_SECONDS)
            after, idle_mib = used(container)
            windows = -await num_windows(desktop)
            for command in APPLICATIONS:
                await desktop.launch(command, shell=True)
            await asyncio.sleep(IDLE_SECONDS)
            _, open_mib = used(container)
            windows += await num_windows(desktop)
    if windows < len(APPLICATIONS):
        raise RuntimeError(f"{len(APPLICATIONS)} applications opened {windows} windows in {IDLE_SECONDS:g} s")
    with closing(connect(DockerHostConfig())) as client:
        image_bytes = client.images.get(spec.image).attrs["Size"]
    with_one_open = idle_mib + (open_mib - idle_mib) / len(APPLICATIONS)
    return {
        "boot_seconds": percentiles(boot),
        "boot_seconds_together": {**percentiles(many), "desktops": together},
        "memory_mib": round(idle_mib),
        "memory_all_open_mib": round(open_mib),
        "idle_cores": round((after - before) / IDLE_SECONDS, 4),
        "image_mib": round(image_bytes / 2**20),
        "desktops_in_24_gib": int(24 * 1024 * MEMORY_SHARE / with_one_open),
    }


async def num_windows(desktop: VmClient) -> int:
    """Return the number of windows."""
    return len((await desktop.execute("wmctrl -l", shell=True)).output.splitlines())


def used(container: Container) -> tuple[float, float]:
    """Return the CPU that a container has used, seconds, and the memory that its programs take, MiB."""
    with closing(connect(DockerHostConfig())) as client:
        stats = client.api.stats(container.id, stream=False, one_shot=True)
    memory = stats["memory_stats"]["stats"]
    programs = memory.get("anon", memory.get("total_rss", 0)) + memory.get("shmem", memory.get("total_shmem", 0))
    return stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9, programs / 2**20


@asynccontextmanager
async def apps_desktops(
    folder: Path, home: Path, settings: DesktopSettings | None = None
) -> AsyncIterator[tuple[DesktopProvider, Any]]:
    """Provide desktops of ``apps`` on this machine, and the pool that scores; downloads go below ``folder``."""
    spec = desktop_spec(DesktopConfig(variant="apps", memory_mib=MEMORY_MIB))
    async with DesktopFleet([DockerHost(DockerHostConfig())]) as fleet, open_pool(home, size=1) as pool:
        await fleet.require(spec.image)
        options = DesktopOptions(
            settings=settings or DesktopSettings(),
            server=OWN_SERVER,
            downloads=Downloads(folder / "downloads", sources=(folder,)),
            scorer=Scorer(pool),
        )
        yield DesktopProvider(fleet, spec, options), pool
