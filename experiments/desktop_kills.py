"""Random kills of containers, X servers and desktop servers, and of the process of the whole control plane.

``random_kills`` runs one process at a time. It plays on desktops, kills them, and prints what it killed and which
attempts ended as lines of JSON (``main``). Every other process is then killed itself. After each, the next start
reaps, and what is left in Docker and in the database is counted.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dartsim.config.schema import DockerHostConfig
from dartsim.core.types import Trajectory
from dartsim.curation.scheduler_state import SCHEDULER
from dartsim.observe import Listener
from dartsim.real.containers import Container, DesktopFleet, DockerHost
from dartsim.real.containers.engine import connect
from dartsim.real.containers.errors import ContainerFault
from dartsim.real.loop import RunLoop
from dartsim.real.osworld.transport import Timeouts
from dartsim.store.database import read_documents, reading
from dartsim.store.sql import DATABASE_FILE, SqlStore
from experiments.desktop_cluster import DesktopStudyCluster, Shape, engine, worth

MEAN_WAIT_SECONDS = 0.5
"""Between two kills; exponential."""
LIFE_SECONDS = 3600.0
SHAPE: dict[str, Any] = {
    "num_envs": 4,
    "warm_envs": 2,
    "turns": 3,
    "screen": (224, 224),
    "timeouts": Timeouts(connect=5.0, screenshot=10.0, execute=20.0, file=20.0, other=20.0),
}

Told = dict[str, Any]


async def _kill_container(container: Container) -> bool:
    await container.kill()
    return True


async def _kill_x(container: Container) -> bool:
    return (await container.exec(["pkill", "-KILL", "Xvfb"]))[0] == 0


async def _kill_server(container: Container) -> bool:
    return (await container.exec(["pkill", "-KILL", "-f", "dartsim.real.desktop.server$"]))[0] == 0


KILLS: dict[str, Callable[[Container], Awaitable[bool]]] = {
    "container": _kill_container,
    "Xvfb": _kill_x,
    "server": _kill_server,
}


def main() -> None:
    """Run one process, with the image, the folder, the seed and the number of kills as arguments."""
    image, folder, seed, kills = sys.argv[1:]
    with asyncio.Runner(loop_factory=RunLoop) as runner:
        runner.run(live(image, Path(folder), seed=int(seed), kills=int(kills)))


async def live(image: str, folder: Path, *, seed: int, kills: int) -> None:
    """Play on desktops and kill them at random; print everything as JSON lines."""
    shape = Shape(image=image, **SHAPE)
    store = SqlStore.open(folder, durable=True)
    async with DockerHost(engine(shape.num_desktops), run="kills") as host:
        await host.reap()
        _tell(owner=str(host.owner))
        cluster = DesktopStudyCluster(shape, host, folder=folder / "downloads", store=store)
        cluster.recorder.instruments.append(Listener(attempt_ended=_tell_attempt))
        killing = asyncio.create_task(_kill_at_random(cluster, random.Random(seed), kills))
        await cluster.run(LIFE_SECONDS, until=killing.done)
        if not killing.cancel():
            killing.result()
    store.close()


def _tell_attempt(ended: Trajectory) -> None:
    _tell(attempt=ended.attempt.id, reward=ended.reward, cause=ended.cause, worth=worth(ended.attempt))


async def _kill_at_random(cluster: DesktopStudyCluster, rng: random.Random, kills: int) -> None:
    done = 0
    while done < kills:
        await asyncio.sleep(rng.expovariate(1.0 / MEAN_WAIT_SECONDS))
        if not cluster.fleet.containers:
            continue
        container = rng.choice(list(cluster.fleet.containers.values()))
        what = rng.choices(list(KILLS), weights=(6, 1, 1))[0]
        with suppress(ContainerFault):  # it is gone already
            if await KILLS[what](container):
                done += 1
                _tell(killed=what)


def _tell(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def random_kills(image: str, *, kills: int, kills_a_life: int, seed: int, on_life: Callable[[Told], None]) -> Told:
    """Run processes one after the other until there were ``kills`` kills; return what they left behind."""
    rng = random.Random(seed)
    killed: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    sums = {"kills": 0, "leaked_containers": 0, "lost_records": 0, "attempts": 0, "scored": 0, "wrong_scores": 0}
    number = 0
    while sums["kills"] < kills:
        wanted = min(kills_a_life, kills - sums["kills"])
        # Every other process is killed itself, after some of its own kills; that is one more kill.
        after = rng.randrange(wanted) if number % 2 == 0 else None
        with tempfile.TemporaryDirectory(prefix="dartsim-kills-") as name:
            folder = Path(name)
            told = list(_life(image, folder, seed=rng.randrange(2**32), kills=wanted, after=after))
            asyncio.run(_reap())
            _count(told, folder, sums, causes)
        done = Counter(line["killed"] for line in told if "killed" in line)
        killed.update(done)
        killed["process"] += after is not None
        sums["kills"] = killed.total()
        number += 1
        on_life({**sums, "lives": number})
    return {**sums, "lives": number, "killed": dict(killed), "causes": dict(sorted(causes.items()))}


def _life(image: str, folder: Path, *, seed: int, kills: int, after: int | None) -> Iterator[Told]:
    """Run one process and yield what it prints; kill it after ``after`` kills, or let it end."""
    main = "from experiments.desktop_kills import main; main()"
    command = [sys.executable, "-c", main, image, str(folder), str(seed), str(kills)]
    killed = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            yield told
            killed += "killed" in told
            if after is not None and killed > after:
                process.kill()
                break
        # What was printed before it died counts too; the last line may be incomplete.
        for line in process.stdout:
            with suppress(json.JSONDecodeError):
                yield json.loads(line)
    if after is None and process.returncode:
        raise RuntimeError(f"the process ended with status {process.returncode}")


async def _reap() -> None:
    """Reap, as the next start does."""
    async with DesktopFleet([DockerHost(DockerHostConfig())]):
        pass


def _count(told: list[Told], folder: Path, sums: dict[str, int], causes: Counter[str]) -> None:
    """Count what one process left behind."""
    attempts = {line["attempt"]: line for line in told if "attempt" in line}
    owners = [line["owner"] for line in told if "owner" in line]
    with reading(folder / DATABASE_FILE) as database:
        stored = dict(database.execute("SELECT attempt, reward FROM trajectories"))
        scheduler = read_documents(database).get(SCHEDULER, {})
    told_rewards = {attempt: line["reward"] for attempt, line in attempts.items()}
    lost = lost_records(told_rewards, stored, scheduler)
    sums["lost_records"] += len(lost)
    sums["attempts"] += len(stored)
    sums["scored"] += sum(reward is not None for reward in stored.values())
    sums["wrong_scores"] += sum(line["reward"] not in (None, line["worth"]) for line in attempts.values())
    sums["leaked_containers"] += sum(_left(owner) for owner in owners)
    causes.update(line["cause"] for line in attempts.values() if line["cause"] is not None)


def lost_records(
    told: Mapping[int, float | None], stored: Mapping[int, float | None], scheduler: Mapping[str, Any]
) -> set[int]:
    """Return the attempts of which the database does not have what it should.

    An admitted attempt is handed over, or the store knows that it runs: then ``dartsim run`` makes it again, and
    what is told of it after the end is not kept.
    """
    running = {number for _, number, *_ in scheduler.get("running", ())}  # as `save_attempt` writes them
    lost = set(range(scheduler.get("admitted", 0))) - running - set(stored)
    ended = told.keys() - running
    return lost | {attempt for attempt in ended if attempt not in stored or stored[attempt] != told[attempt]}


def _left(owner: str) -> int:
    client = connect(DockerHostConfig())
    try:
        return len(client.api.containers(all=True, filters={"label": [f"dartsim.owner={owner}"]}))
    finally:
        client.close()
