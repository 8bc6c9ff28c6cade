"""The measurements of ``experiments.desktop``: one desktop, gaps between attempts, how many there may be, kills.

The control plane runs over real desktops with a scripted policy, so that all time is the desktops'. An attempt moves
the pointer, then clicks on the panel's red button, or beside it in every other attempt.

``random_kills`` runs one process at a time. It plays on desktops, kills them, and prints what it killed and which
attempts ended as lines of JSON (``main``). Every other process is then killed itself. After each, the next start
reaps, and what is left in Docker and in the database is counted.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import httpx

from dartsim.config import Config, load
from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Reply, Request, Trajectory, Weights
from dartsim.curation.manager import SCHEDULER
from dartsim.envs.actions import make_grammar, read
from dartsim.observe import DesktopState, Listener, Recorder
from dartsim.observe.figures import after_warmup, figures
from dartsim.real.containers import Container, ContainerSpec, DesktopFleet, DockerHost
from dartsim.real.containers.engine import connect
from dartsim.real.containers.errors import ContainerFault
from dartsim.real.containers.owner import OWNER
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.tasks.panel import COLUMNS, panel_tasks
from dartsim.real.loop import RunLoop
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.desktop import OsworldDesktop
from dartsim.real.osworld.fetch import Downloads
from dartsim.real.osworld.provider import DesktopProvider, start_desktop
from dartsim.real.osworld.pyautogui_code import command, placing, snippets
from dartsim.real.osworld.ready import Readiness, SettlingRules
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import OWN_SERVER, Timeouts
from dartsim.run.system import System
from dartsim.sim.learner import VersionCounter
from dartsim.store.database import DATABASE_FILE, read_documents, reading
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore
from experiments.arms import declared
from experiments.study import Figures, Options

T = TypeVar("T")

SCREEN = (1920, 1080)
PATIENT = Timeouts(screenshot=60.0, execute=120.0, file=120.0, other=60.0)
"""For a machine that has far more desktops than cores."""
SETTLED = SettlingRules(cap_seconds=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many desktops there are, and what is done on them."""

    image: str
    num_envs: int
    warm_envs: int = 0
    turns: int = 1
    think_seconds: float = 0.0
    screen: tuple[int, int] = SCREEN
    timeouts: Timeouts = PATIENT

    @property
    def num_desktops(self) -> int:
        """Slots and spares."""
        return self.num_envs + self.warm_envs

    def spec(self) -> ContainerSpec:
        width, height = self.screen
        return desktop_spec(DesktopConfig(width=width, height=height, image=self.image))

    def settings(self, settle: SettlingRules | float) -> DesktopSettings:
        return DesktopSettings(
            grammar="pyautogui",
            screen=self.screen,
            booted=Readiness(quiet_seconds=0.0, poll_seconds=0.05),
            settle=settle,
        )

    def config(self) -> Config:
        overrides = (
            'backend.workers="sim"',
            'backend.learner="sim"',
            f"rollout.num_envs={self.num_envs}",
            f"rollout.warm_envs={self.warm_envs}",
            f"rollout.max_turns={self.turns}",
            'curation.turn_limit.rule="fixed"',
            'curation.attempts.rule="fixed"',
            "curation.attempts.group_size=2",
            "curation.batch.min_groups=1",
            "curation.staleness.max_staleness=1000",
            "curation.pool.enabled=false",
        )
        return load("desktop", overrides=overrides)


def worth(attempt: Attempt) -> float:
    """Return the score of an attempt that no fault touches."""
    return 1.0 if attempt.index % 2 == 0 else 0.0


class Script:
    """A scripted policy; implements ``dartsim.core.ports.PolicyWorker``."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    async def generate(self, request: Request) -> Reply:
        """Move the pointer; at the last turn, click."""
        await asyncio.sleep(self._shape.think_seconds)
        width, height = self._shape.screen
        if request.turn + 1 < self._shape.turns:
            action = f"pyautogui.moveTo({3 + 40 * (request.turn % 2)}, 3)"
        else:
            x, y = request.attempt.task.spec["targets"][0]
            x = x if worth(request.attempt) else (x + 1) % COLUMNS
            action = f"pyautogui.click({(2 * x + 1) * width // (2 * COLUMNS)}, {(2 * y + 1) * height // (2 * COLUMNS)})"
        return Reply(action, 0, 0, 0, 0, 0)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Stay the same."""


class Watched(DesktopFleet):
    """A fleet that remembers the containers it has started."""

    def __init__(self, hosts: Sequence[DockerHost]) -> None:
        super().__init__(hosts)
        self.containers: dict[int, Container] = {}
        """The newest of each place."""

    async def start(self, spec: ContainerSpec, *, slot: int) -> Container:
        container = await super().start(spec, slot=slot)
        self.containers[slot] = container
        return container


class DesktopStudyCluster:
    """A control plane and its real desktops."""

    def __init__(self, shape: Shape, host: DockerHost, *, folder: Path, store: Store | None = None) -> None:
        self.fleet = Watched([host])
        config = shape.config()
        self.recorder = Recorder(
            asyncio.get_running_loop().time,
            num_envs=config.rollout.num_desktops,
            num_engines=config.rollout.num_workers,
            max_segments=200_000,
            first_spacing_seconds=1.0,
        )
        self.scorer = Scorer()
        options = DesktopOptions(
            settings=shape.settings(SETTLED),
            server=OWN_SERVER,
            downloads=Downloads(folder),
            scorer=self.scorer,
            timeouts=shape.timeouts,
        )
        self.system = System(
            config,
            tasks=panel_tasks(64),
            provider=DesktopProvider(self.fleet, shape.spec(), options),
            engines=[Script(shape)] * config.rollout.num_workers,
            learner=VersionCounter(),
            store=store or MemoryStore(),
            recorder=self.recorder,
            streams=Streams(0),
            transport=lambda pool: pool,
        )

    async def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Run for some seconds, or until an attempt ends and ``until`` says so."""
        async with self.scorer:
            await self._run(seconds, until)

    async def _run(self, seconds: float, until: Callable[[], bool]) -> None:
        enough = asyncio.Event()
        self.recorder.instruments.append(Listener(attempt_ended=lambda _: enough.set() if until() else None))
        running = asyncio.create_task(self.system.run(seconds))
        waiting = asyncio.create_task(enough.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
        if not running.cancelled():
            await running
        self.system.data.ledger.check()


def engine(num_desktops: int) -> DockerHostConfig:
    """Return settings of a Docker host with room for ``num_desktops``."""
    return DockerHostConfig(max_desktops=num_desktops, concurrent_starts=4)


def gaps(recorder: Recorder, num_envs: int) -> list[float]:
    """Return, for each attempt but a slot's first, the seconds from the score before it to its own set-up."""
    found: list[float] = []
    for slot in range(num_envs):
        scored: float | None = None
        for track, state, start, end in recorder.desktops.segments or ():
            if track != slot:
                continue
            if state == DesktopState.EVALUATING:
                scored = end
            elif state == DesktopState.SETUP and scored is not None:
                found.append(start - scored)
                scored = None
    return found


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the 95th percentile, nearest rank, and how many values there were."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1], 4)

    return {"p50": at(0.5), "p95": at(0.95), "number": len(ordered)}


async def timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """Return how many seconds something took, and what it gave."""
    begun = time.perf_counter()
    found = await work()
    return time.perf_counter() - begun, found


async def starts(shape: Shape, host: DockerHost, number: int) -> dict[str, float]:
    """Start desktops one after the other; seconds from the call of the engine to a good screenshot."""
    options = DesktopOptions(settings=shape.settings(SETTLED))
    found: list[float] = []
    for _ in range(number):
        seconds, desktop = await timed(lambda: start_desktop(host, shape.spec(), options))
        found.append(seconds)
        await desktop.close()
    return percentiles(found)


async def screenshots(desktop: OsworldDesktop, number: int) -> dict[str, float]:
    """Take screenshots that all differ, the pointer being moved between them; seconds, checked and decoded."""
    found: list[float] = []
    for place in range(number):
        await desktop.client.execute(_code(desktop, f"pyautogui.moveTo({40 + 7 * (place % 100)}, 40)"))
        seconds, _ = await timed(desktop.client.frame)
        found.append(seconds)
    return percentiles(found)


async def step_overhead(desktop: OsworldDesktop, number: int) -> dict[str, Any]:
    """Let steps and the bare HTTP calls that they make take turns on the same desktop.

    The desktop's settings say to look once after an action, so that a step is one action and one screenshot and
    waits for nothing else.
    """
    async with httpx.AsyncClient(base_url=desktop.client.base_url, timeout=60.0, trust_env=False) as bare:

        async def calls(code: list[str]) -> bytes:
            payload = {"command": code, "shell": False}
            (await bare.post("/execute", json=payload, headers=_CLOSE)).raise_for_status()
            return (await bare.get("/screenshot", headers=_CLOSE)).content

        ours: list[float] = []
        raw: list[float] = []
        for place in range(2 * number):
            action = f"pyautogui.moveTo({40 + 7 * (place % 100)}, 90)"
            if place % 2:
                ours.append((await timed(partial(desktop.step, action)))[0])
            else:
                code = _code(desktop, action)
                raw.append((await timed(partial(calls, code)))[0])
    ratio = median(ours) / median(raw) - 1.0
    return {
        "step_overhead_ratio": round(ratio, 4),
        "step_seconds": percentiles(ours),
        "raw_calls_seconds": percentiles(raw),
    }


_CLOSE = {"Connection": "close"}
"""The client opens a connection for each request, and so do the bare calls."""


def _code(desktop: OsworldDesktop, action: str) -> list[str]:
    """Return the command that a step sends for an action."""
    screen = desktop.settings.screen
    actions = read(make_grammar("pyautogui", *screen), action)
    assert actions is not None
    (code,) = snippets(actions, placing(screen, screen))
    assert code is not None
    return command(code, python=desktop.settings.python)


async def one_desktop(shape: Shape, host: DockerHost, *, shots: int, steps: int) -> dict[str, Any]:
    """Measure screenshots and steps on one desktop that shows a panel."""
    settings = shape.settings(0.0)
    desktop = await start_desktop(host, shape.spec(), DesktopOptions(settings=settings))
    try:
        await desktop.reset(panel_tasks(1)[0], seed=0)
        await asyncio.sleep(1.0)
        return {"screenshot_seconds": await screenshots(desktop, shots), **await step_overhead(desktop, steps)}
    finally:
        await desktop.close()


def measured(image: str, options: Options) -> Figures:
    """Measure everything on desktops of an image, one after the other."""
    plan = declared()["desktop"]["quick" if options.quick else "full"]
    load = os.getloadavg()

    def say(text: str) -> None:
        options.console.print(text, style="dim")

    with asyncio.Runner(loop_factory=RunLoop) as runner:
        found: Figures = runner.run(in_real_time(image, plan, say))
    kills = random_kills(
        image, kills=plan["kills"], kills_a_life=plan["kills_a_life"], seed=0, on_life=lambda sums: say(str(sums))
    )
    named = ("kills", "leaked_containers", "lost_records")
    return {
        **found,
        **{name: kills[name] for name in named},
        "kills_more": {name: value for name, value in kills.items() if name not in named},
        "load_average": {"before": [round(one, 2) for one in load], "after": [round(x, 2) for x in os.getloadavg()]},
        "config": {**plan, "image": image},
    }


async def in_real_time(image: str, plan: Mapping[str, Any], say: Callable[[str], None]) -> Figures:
    """Measure everything but kills."""
    most = max(*plan["density"], plan["gap_envs"] + plan["gap_warm_envs"])
    with tempfile.TemporaryDirectory(prefix="dartsim-desktop-") as name:
        async with DockerHost(engine(most), run="experiment") as host:
            shape = Shape(image=image, num_envs=1)
            found: Figures = {
                "start_to_screenshot_seconds": await starts(shape, host, plan["starts"]),
                **await one_desktop(shape, host, shots=plan["shots"], steps=plan["steps"]),
            }
            say("calls of one desktop: done")
            attempt = {"turns": plan["gap_turns"], "think_seconds": plan["think_seconds"]}
            for figure, spares in {"": plan["gap_warm_envs"], "without_warm_pool_": 0}.items():
                shape = Shape(image=image, num_envs=plan["gap_envs"], warm_envs=spares, **attempt)
                found[f"revert_gap_{figure}seconds"] = await gap(shape, host, Path(name), plan["gap_attempts"])
            say("gaps between attempts: done")
            found["density"] = []
            for number in plan["density"]:
                attempt = {"turns": plan["density_turns"], "think_seconds": plan["think_seconds"]}
                shape = Shape(image=image, num_envs=number, **attempt)
                found["density"].append(await density(shape, host, Path(name), plan))
                say(f"{number} desktops: done")
    return found


async def gap(shape: Shape, host: DockerHost, folder: Path, attempts: int) -> dict[str, float]:
    """Return the seconds between two attempts of a slot."""
    cluster = DesktopStudyCluster(shape, host, folder=folder)
    wanted = attempts + shape.num_envs
    await cluster.run(3600.0, until=lambda: cluster.recorder.counts["rewarded"] >= wanted)
    return percentiles(gaps(cluster.recorder, shape.num_envs))


async def density(shape: Shape, host: DockerHost, folder: Path, plan: Mapping[str, Any]) -> Figures:
    """Return the throughput of so many desktops."""
    cluster = DesktopStudyCluster(shape, host, folder=folder)
    counts, enough = cluster.recorder.counts, plan.get("density_attempts", math.inf)
    await cluster.run(plan["density_seconds"], until=lambda: counts["rewarded"] >= enough)
    # Their first starts, all at once, are not what a run is like.
    first, last = after_warmup(cluster.recorder.snapshots, 0.25), cluster.recorder.snapshots[-1]
    rates = figures(first, last)
    return {
        "num_desktops": shape.num_envs,
        "steps_per_minute": round(rates["generated_turns_per_minute"], 1),
        "utilization": round(rates["env_utilization"], 4),
        "faults": {name: int(n) for name, n in sorted(counts.items()) if name.startswith(("fault/", "cause/"))},
    }


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

KILLS: Mapping[str, Sequence[str]] = {
    "container": (),
    "Xvfb": ("pkill", "-KILL", "Xvfb"),
    "server": ("pkill", "-KILL", "-f", "dartsim.real.desktop.server$"),
}
"""What kills in a container; nothing: the container itself."""


async def kill(container: Container, what: str) -> bool:
    """Kill something of a container; return whether it was there."""
    if KILLS[what]:
        return (await container.exec(list(KILLS[what])))[0] == 0
    await container.kill()
    return True


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
        _print(owner=str(host.owner))
        cluster = DesktopStudyCluster(shape, host, folder=folder / "downloads", store=store)
        cluster.recorder.instruments.append(Listener(attempt_ended=_print_attempt))
        killing = asyncio.create_task(_kill_at_random(cluster, random.Random(seed), kills))
        await cluster.run(LIFE_SECONDS, until=killing.done)
        if not killing.cancel():
            killing.result()
    store.close()


def _print_attempt(ended: Trajectory) -> None:
    _print(attempt=ended.attempt.id, reward=ended.reward, cause=ended.cause, worth=worth(ended.attempt))


async def _kill_at_random(cluster: DesktopStudyCluster, rng: random.Random, kills: int) -> None:
    done = 0
    while done < kills:
        await asyncio.sleep(rng.expovariate(1.0 / MEAN_WAIT_SECONDS))
        if not cluster.fleet.containers:
            continue
        container = rng.choice(list(cluster.fleet.containers.values()))
        what = rng.choices(list(KILLS), weights=(6, 1, 1))[0]
        with suppress(ContainerFault):  # it is gone already
            if await kill(container, what):
                done += 1
                _print(killed=what)


def _print(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def random_kills(
    image: str, *, kills: int, kills_a_life: int, seed: int, on_life: Callable[[Figures], None]
) -> Figures:
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
            lines = list(_life(image, folder, seed=rng.randrange(2**32), kills=wanted, after=after))
            asyncio.run(_reap())
            _count(lines, folder, sums, causes)
        done = Counter(line["killed"] for line in lines if "killed" in line)
        killed.update(done)
        killed["process"] += after is not None
        sums["kills"] = killed.total()
        number += 1
        on_life({**sums, "lives": number})
    return {**sums, "lives": number, "killed": dict(killed), "causes": dict(sorted(causes.items()))}


def _life(image: str, folder: Path, *, seed: int, kills: int, after: int | None) -> Iterator[Figures]:
    """Run one process and yield what it prints; kill it after ``after`` kills, or let it end."""
    main = "from experiments.desktop_work import main; main()"
    command = [sys.executable, "-c", main, image, str(folder), str(seed), str(kills)]
    killed = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed = json.loads(line)
            yield printed
            killed += "killed" in printed
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


def _count(lines: list[Figures], folder: Path, sums: dict[str, int], causes: Counter[str]) -> None:
    """Count what one process left behind."""
    attempts = {line["attempt"]: line for line in lines if "attempt" in line}
    owners = [line["owner"] for line in lines if "owner" in line]
    with reading(folder / DATABASE_FILE) as database:
        stored = dict(database.execute("SELECT attempt, reward FROM trajectories"))
        scheduler = read_documents(database).get(SCHEDULER, {})
    rewards = {attempt: line["reward"] for attempt, line in attempts.items()}
    sums["lost_records"] += len(lost_records(rewards, stored, scheduler))
    sums["attempts"] += len(stored)
    sums["scored"] += sum(reward is not None for reward in stored.values())
    sums["wrong_scores"] += sum(line["reward"] not in (None, line["worth"]) for line in attempts.values())
    sums["leaked_containers"] += sum(map(left_containers, owners))
    causes.update(line["cause"] for line in attempts.values() if line["cause"] is not None)


def lost_records(
    printed: Mapping[int, float | None], stored: Mapping[int, float | None], scheduler: Mapping[str, Any]
) -> set[int]:
    """Return the attempts whose database entries are incomplete.

    An admitted attempt is handed over, or the store knows that it runs: then ``dartsim run`` makes it again, and
    what is printed of it after the end is not kept.
    """
    running = {number for _, number, *_ in scheduler.get("running", ())}  # as `_save_attempt` writes them
    lost = set(range(scheduler.get("admitted", 0))) - running - set(stored)
    ended = printed.keys() - running
    return lost | {attempt for attempt in ended if attempt not in stored or stored[attempt] != printed[attempt]}


def left_containers(owner: str) -> int:
    """Return how many containers belong to an owner, or to all owners that begin so."""
    client = connect(DockerHostConfig())
    try:
        labels = [each["Labels"] for each in client.api.containers(all=True, filters={"label": [OWNER]})]
        return sum(each[OWNER].startswith(owner) for each in labels)
    finally:
        client.close()
