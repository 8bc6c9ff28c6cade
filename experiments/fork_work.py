"""What ``experiments.fork`` measures: runs in each mode, and forks while containers are killed at random.

The tasks are panels with one red button. What an attempt has to score is therefore known from what it clicked, and
whether it began in its own task's state from its first screenshot.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from dartsim.config import Config
from dartsim.config.schema import DockerHostConfig
from dartsim.core.errors import EnvFault, ScoreUnavailable
from dartsim.core.types import Task, Trajectory
from dartsim.lab.measure import measure as measured_by
from dartsim.lab.sweep import Report
from dartsim.lab.virtual import as_json, compare, twin
from dartsim.observe import DesktopState, Listener
from dartsim.observe.timings import TIMINGS, Entry, read_timings
from dartsim.real.containers.engine import connect
from dartsim.real.containers.leases import OWNER
from dartsim.real.desktop import build
from dartsim.real.desktop.tasks.panel import COLUMNS, RED
from dartsim.real.osworld.backend import open_desktops
from dartsim.rollout.revert import RevertingProvider
from dartsim.run.execute import execute
from dartsim.run.prepare import prepare
from experiments.desktop_cluster import gaps, percentiles
from experiments.real_loop import timed
from experiments.study import Figures

Kind = Literal["vm", "container"]

SETTINGS = (
    "tasks.count=8",
    "desktop.cpus=1.0",
    # Emulated machines are slow.
    "desktop.max_ready_seconds=60",
    "desktop.max_settle_seconds=5",
    "desktop.evaluate_wait_seconds=2",
    "rollout.limits.start_seconds=600",
    "rollout.limits.setup_seconds=300",
    # Updates also where few attempts end in time.
    'curation.attempts.rule="fixed"',
    "curation.attempts.group_size=4",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_solved=false",
    "curation.batch.min_groups=1",
    "curation.batch.max_groups=1",
    # Every attempt on a desktop, whatever was learned of its task.
    'curation.turn_limit.rule="fixed"',
    "curation.pool.enabled=false",
)
"""Over the preset ``desktop``."""
NUM_MACHINES = 2
"""Machines that are forked while containers are killed."""
KILL_SECONDS = 60.0
"""Mean time between two kills, exponential."""


@dataclass(frozen=True, slots=True)
class DesktopRun:
    """A run to make: its desktops, how they revert, and how long it lasts."""

    desktop: Kind
    mode: Literal["boot", "snapshot", "fork"]
    num_desktops: int
    minutes: float

    @property
    def config(self) -> Config:
        spares = self.num_desktops if (self.desktop, self.mode) == ("container", "fork") else 0
        own = (
            f'desktop.variant="{"vm" if self.desktop == "vm" else "skeleton"}"',
            f'desktop.revert="{self.mode}"',
            f"rollout.num_envs={self.num_desktops}",
            f"rollout.warm_envs={spares}",
            "recorder.max_segments=100000",
        )
        return timed("desktop", [*SETTINGS, *own], seed=0, minutes=self.minutes)


@dataclass
class ForkAttempts:
    """Results of attempts."""

    number: int = 0
    wrong_scores: int = 0
    mixed_up: int = 0
    """Attempts whose first screenshot showed something other than their task."""
    masked: Counter[str] = field(default_factory=Counter)

    def ended(self, trajectory: Trajectory) -> None:
        """Count an attempt of a run."""
        if trajectory.cause is not None:
            self.masked[trajectory.cause] += 1
        if trajectory.turns and trajectory.reward is not None:
            first = trajectory.turns[0]
            self.scored(trajectory.attempt.task, first.observation.screenshot, first.reply.action, trajectory.reward)

    def scored(self, task: Task, screenshot: Any, action: str, score: float) -> None:
        """Count an attempt of one action."""
        self.number += 1
        x, y = task.spec["targets"][0]
        self.mixed_up += not shows_its_task(task, screenshot)
        self.wrong_scores += score != float(action == f"click {x} {y}")


def shows_its_task(task: Task, screenshot: Any) -> bool:
    """Return whether the task's cell is red, and no other."""
    pixels = np.asarray(screenshot).astype(int)
    red = [int(RED[place : place + 2], 16) for place in (1, 3, 5)]
    height, width = (side // COLUMNS for side in pixels.shape[:2])
    # The pointer is in the middle of the screen.
    samples = pixels[height // 4 :: height, width // 4 :: width][:COLUMNS, :COLUMNS]
    found = {(int(x), int(y)) for y, x in np.argwhere(np.abs(samples - red).max(axis=-1) < 40)}
    return found == {tuple(task.spec["targets"][0])}


def desktop_run(spec: DesktopRun, report: Report) -> Figures:
    """Train on desktops, then predict that very run; return what was measured and predicted."""
    if spec.desktop == "container":
        asyncio.run(build("skeleton"))
    attempts, config = ForkAttempts(), spec.config
    watching = Listener(
        10.0, attempt_ended=attempts.ended, time_advanced=lambda now: report(now / (60.0 * spec.minutes))
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "real")
        done, result = execute(config, path, [watching])
        if result.interrupted:  # half a run says nothing
            raise KeyboardInterrupt
        entries = read_timings(path)
        predicted, _ = execute(
            twin(config, measured_by(config, entries), done.summary, path / TIMINGS), Path(folder, "twin")
        )
    reverts = done.summary["reverts"]
    return {
        "desktop": spec.desktop,
        "mode": spec.mode,
        "num_desktops": spec.num_desktops,
        "minutes": spec.minutes,
        "gap_seconds": percentiles(gaps(result.recorder, spec.num_desktops, until=DesktopState.GENERATING)),
        "steps_per_minute": done.summary["generated_turns_per_minute"],
        "updates": done.summary["total_updates"],
        "snapshot_mb": round(reverts["saved_bytes"] / reverts["saved"] / 1e6) if reverts.get("saved") else None,
        "counts": reverts,
        "seconds": median_seconds(entries),
        **tallied(attempts),
        **as_json(compare(done.summary, predicted.summary)),
    }


def median_seconds(entries: Iterable[Entry]) -> Figures:
    """Return the median seconds of each call of a desktop that succeeded, by its name in the timings."""
    taken = defaultdict[str, list[float]](list)
    for entry in entries:
        if entry["what"].startswith(("env/", "desktop/")) and not entry.keys() & {"failed", "cancelled"}:
            taken[entry["what"]].append(entry["seconds"])
    return {name: round(median(seconds), 3) for name, seconds in sorted(taken.items())}


def tallied(attempts: ForkAttempts) -> Figures:
    """Return the counts of attempts, and what this process has left on the engine."""
    with engine() as client:
        left = len(own_containers(client)) + len(own_volumes(client))
    return {
        "attempts": attempts.number,
        "wrong_scores": attempts.wrong_scores,
        "mixed_up": attempts.mixed_up,
        "masked": dict(attempts.masked),
        "leaked": left,
    }


def forks_under_kills(forks: int, report: Report) -> Figures:
    """Play on two virtual machines until so many attempts were forked, while containers are killed."""
    return asyncio.run(_forks_under_kills(forks, report))


async def _forks_under_kills(forks: int, report: Report) -> Figures:
    config = DesktopRun("vm", "fork", NUM_MACHINES, 60.0).config
    tasks = prepare(config).tasks
    attempts, counts, kills = ForkAttempts(), Counter[str](), Counter[str]()

    def enough() -> bool:
        report(min(1.0, counts["revert/forked"] / forks))
        return counts["revert/forked"] >= forks

    async with open_desktops(config, tasks) as desktops:
        provider = RevertingProvider(desktops, config.desktop, counts)
        killing = asyncio.create_task(kill_at_random(kills))
        try:
            await asyncio.gather(*(play(provider, slot, tasks, attempts, enough) for slot in range(NUM_MACHINES)))
        finally:
            killing.cancel()
            await provider.close_all()
    reverts = {name.removeprefix("revert/"): count for name, count in counts.items()}
    return {"kills": kills["container"], "counts": reverts, **tallied(attempts)}


async def play(
    provider: RevertingProvider, slot: int, tasks: Sequence[Task], attempts: ForkAttempts, enough: Callable[[], bool]
) -> None:
    """Play attempt after attempt, on the right cell or beside it, until there are enough."""
    for number, task in enumerate(islice(cycle(tasks), slot, None)):
        if enough():
            return
        x, y = task.spec["targets"][0]
        action = f"click {x if (number // len(tasks)) % 2 == 0 else (x + 1) % COLUMNS} {y}"
        desktop = None
        try:
            desktop = await provider.start(slot)
            shown = await desktop.reset(task, seed=number)
            await desktop.step(action)
            attempts.scored(task, shown.screenshot, action, await desktop.evaluate())
        except (EnvFault, ScoreUnavailable) as fault:
            attempts.masked[type(fault).__name__] += 1
        finally:
            if desktop is not None:
                await desktop.close()


async def kill_at_random(kills: Counter[str]) -> None:
    """Kill containers of this process at random times until cancelled."""
    from docker.errors import APIError

    rng = random.Random(0)

    def kill() -> None:
        with engine() as client, suppress(APIError):  # it ended by itself
            found = own_containers(client)
            if found:
                client.api.kill(rng.choice(found))
                kills["container"] += 1

    while True:
        await asyncio.sleep(rng.expovariate(1.0 / KILL_SECONDS))
        await asyncio.to_thread(kill)


@contextmanager
def engine() -> Iterator[Any]:
    """Provide a client of the engine."""
    client = connect(DockerHostConfig())
    try:
        yield client
    finally:
        client.close()


def own_containers(client: Any) -> list[str]:
    """Return the ids of the containers of this process."""
    return [found["Id"] for found in client.api.containers(all=True, filters={"label": OWNER}) if _is_own(found)]


def own_volumes(client: Any) -> list[str]:
    """Return the names of the volumes of this process."""
    found = client.api.volumes(filters={"label": OWNER})["Volumes"] or []
    return [volume["Name"] for volume in found if _is_own(volume)]


def _is_own(found: Any) -> bool:
    return f":{os.getpid()}:" in found["Labels"][OWNER]
