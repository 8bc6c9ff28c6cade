"""The measurements of ``experiments.desktop``: one desktop, gaps between attempts, how many there may be, kills.

Runs are those of the preset ``desktop`` with a scripted policy, so that all time is the desktops'. An attempt moves the
pointer, then clicks on the panel's red button, or beside it in every other attempt. Nothing is trained.

``random_kills`` runs one process at a time, and kills something on its desktops again and again. Every other process is
then killed itself. After each, the next start reaps, and what is left in Docker and in the database is counted.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx
from docker.errors import APIError
from typing_extensions import override

from dartsim.config import Config, load
from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.registry import register
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Reply, Request, Trajectory, Weights
from dartsim.curation.manager import SCHEDULER
from dartsim.envs.actions import make_grammar, read
from dartsim.observe import DesktopState, Listener, Recorder
from dartsim.observe.figures import after_warmup, figures
from dartsim.real.containers import ContainerSpec, DesktopFleet, DockerHost
from dartsim.real.containers.engine import connect
from dartsim.real.containers.owner import OWNER
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.tasks.panel import COLUMNS, panel_tasks
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.desktop import OsworldDesktop
from dartsim.real.osworld.provider import start_desktop
from dartsim.real.osworld.pyautogui_code import command, placing, snippets
from dartsim.real.osworld.ready import Readiness, SettlingRules
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.processes import boot_id, pid_namespace
from dartsim.run.backends import BackendContext, EngineBackend
from dartsim.run.execute import execute
from dartsim.store.database import DATABASE_FILE, read_documents, reading
from experiments.arms import declared
from experiments.study import Figures, Options

T = TypeVar("T")

SCREEN = (1920, 1080)
GRID = 40 * COLUMNS
"""Cells of the screen, on each side, that a reply can name."""
MOVES = ("move 0 0", "move 2 0")


def click(x: int, y: int) -> str:
    """Return a click on the middle of an item of the panel."""
    return f"click {40 * x + 20} {40 * y + 20}"


def configuration(
    num_envs: int, *, warm_envs: int = 0, turns: int = 1, seconds: float = 3600.0, screen: tuple[int, int] = SCREEN
) -> Config:
    """Return a run of the preset that only plays."""
    actions = [*MOVES, *(click(x, y) for x in range(COLUMNS) for y in range(COLUMNS))]
    overrides = (
        'backend.workers="scripted"',
        'policy.grammar="listed"',
        f"policy.grid={GRID}",
        f"policy.actions={json.dumps(actions)}",
        f"desktop.width={screen[0]}",
        f"desktop.height={screen[1]}",
        "desktop.max_settle_seconds=2.0",
        "desktop.hosts.local.concurrent_starts=4",
        f"run.hours={seconds / 3600.0}",
        "tasks.count=64",
        f"rollout.num_envs={num_envs}",
        f"rollout.warm_envs={warm_envs}",
        f"rollout.max_turns={turns}",
        'curation.turn_limit.rule="fixed"',
        'curation.attempts.rule="fixed"',
        "curation.attempts.group_size=2",
        "curation.batch.min_groups=10000",
        "curation.batch.max_groups=10000",
        "curation.pool.enabled=false",
    )
    return load("desktop", overrides=overrides)


def worth(attempt: Attempt) -> float:
    """Return the score of an attempt that no fault touches."""
    return 1.0 if attempt.index % 2 == 0 else 0.0


@register("engine", "scripted")
class Scripted(EngineBackend):
    """Workers of a scripted policy; implements ``dartsim.core.ports.PolicyWorker``, too."""

    think_seconds = 0.0

    @override
    async def open(self, context: BackendContext) -> Sequence[Scripted]:
        self.turns = context.prepared.config.rollout.max_turns
        return [self] * context.prepared.config.rollout.num_workers

    async def generate(self, request: Request) -> Reply:
        """Move the pointer; at the last turn, click."""
        await asyncio.sleep(self.think_seconds)
        if request.turn + 1 < self.turns:
            return Reply(MOVES[request.turn % 2], 0, 0, 0, 0, 0)
        x, y = request.attempt.task.spec["targets"][0]
        return Reply(click(x if worth(request.attempt) else (x + 1) % COLUMNS, y), 0, 0, 0, 0, 0)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Stay the same."""


def played(config: Config, *, attempts: float = math.inf) -> Recorder:
    """Return the recorder of a run, which ends when so many attempts have a score, or by its time."""
    found: list[tuple[Recorder, Any]] = []

    def look(_: Trajectory) -> None:
        recorder, running = found[0]
        if recorder.counts["rewarded"] >= attempts:
            running.cancel()

    begun = Listener(run_started=lambda recorder: found.append((recorder, asyncio.current_task())), attempt_ended=look)
    with TemporaryDirectory(prefix="dartsim-desktop-") as folder:
        return execute(config, Path(folder) / "run", [begun])[1].recorder


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


def desktop_options(settle: SettlingRules | float = SettlingRules(cap_seconds=2.0)) -> DesktopOptions:  # noqa: B008
    """Return how a desktop of its own is driven; frozen, as the default."""
    booted = Readiness(quiet_seconds=0.0, poll_seconds=0.05)
    return DesktopOptions(settings=DesktopSettings(screen=SCREEN, booted=booted, settle=settle))


async def start_seconds(host: DockerHost, spec: ContainerSpec, slot: int = 0) -> float:
    """Return the seconds from the call of the engine to a good screenshot."""
    seconds, desktop = await timed(lambda: start_desktop(host, spec, desktop_options(), slot=slot))
    await desktop.close()
    return seconds


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


async def one_desktop(plan: Mapping[str, Any]) -> Figures:
    """Measure starts, and screenshots and steps on a desktop that shows a panel."""
    spec = desktop_spec(DesktopConfig(width=SCREEN[0], height=SCREEN[1]))
    async with DockerHost(run="experiment") as host:
        started = [await start_seconds(host, spec) for _ in range(plan["starts"])]
        desktop = await start_desktop(host, spec, desktop_options(0.0))
        try:
            await desktop.reset(panel_tasks(1)[0], seed=0)
            await asyncio.sleep(1.0)
            return {
                "start_to_screenshot_seconds": percentiles(started),
                "screenshot_seconds": await screenshots(desktop, plan["shots"]),
                **await step_overhead(desktop, plan["steps"]),
            }
        finally:
            await desktop.close()


def measured(image: str, options: Options) -> Figures:
    """Measure everything on desktops of an image, one after the other."""
    plan = declared()["desktop"]["quick" if options.quick else "full"]
    before = os.getloadavg()

    def say(text: str) -> None:
        options.console.print(text, style="dim")

    found = asyncio.run(one_desktop(plan))
    say("calls of one desktop: done")
    Scripted.think_seconds = plan["think_seconds"]
    for figure, spares in {"": plan["gap_warm_envs"], "without_warm_pool_": 0}.items():
        config = configuration(plan["gap_envs"], warm_envs=spares, turns=plan["gap_turns"])
        recorder = played(config, attempts=plan["gap_attempts"] + plan["gap_envs"])
        found[f"revert_gap_{figure}seconds"] = percentiles(gaps(recorder, plan["gap_envs"]))
    say("gaps between attempts: done")
    found["density"] = []
    for number in plan["density"]:
        found["density"].append(density(number, plan))
        say(f"{number} desktops: done")
    kills = random_kills(
        image, kills=plan["kills"], kills_a_life=plan["kills_a_life"], on_life=lambda sums: say(str(sums))
    )
    named = ("kills", "leaked_containers", "lost_records")
    return {
        **found,
        **{name: kills[name] for name in named},
        "kills_more": {name: value for name, value in kills.items() if name not in named},
        "load_average": {"before": [round(one, 2) for one in before], "after": [round(x, 2) for x in os.getloadavg()]},
        "config": {**plan, "image": image},
    }


def density(number: int, plan: Mapping[str, Any]) -> Figures:
    """Return the throughput of so many desktops."""
    config = configuration(number, turns=plan["density_turns"], seconds=plan["density_seconds"])
    recorder = played(config, attempts=plan.get("density_attempts", math.inf))
    # Their first starts, all at once, are not what a run is like.
    rates = figures(after_warmup(recorder.snapshots, 0.25), recorder.snapshots[-1])
    faults = {name: int(n) for name, n in sorted(recorder.counts.items()) if name.startswith(("fault/", "cause/"))}
    return {
        "num_desktops": number,
        "steps_per_minute": round(rates["generated_turns_per_minute"], 1),
        "utilization": round(rates["env_utilization"], 4),
        "faults": faults,
    }


MEAN_WAIT_SECONDS = 0.5
"""Between two kills; exponential."""
KILLS: Mapping[str, Sequence[str]] = {
    "container": (),
    "Xvfb": ("pkill", "-KILL", "Xvfb"),
    "server": ("pkill", "-KILL", "-f", "dartsim.real.desktop.server$"),
}
"""What kills in a container; nothing: the container itself."""


def play() -> None:
    """Play on desktops until this process is interrupted or killed; print the start and each attempt's end as JSON."""

    def tell(ended: Trajectory) -> None:
        found = {"attempt": ended.attempt.id, "reward": ended.reward, "cause": ended.cause}
        print(json.dumps({**found, "worth": worth(ended.attempt)}), flush=True)

    config = configuration(4, warm_envs=2, turns=3, screen=(224, 224))
    execute(config, Path(sys.argv[1]), [Listener(run_started=lambda _: print("{}", flush=True), attempt_ended=tell)])


def random_kills(image: str, *, kills: int, kills_a_life: int, on_life: Callable[[Figures], None]) -> Figures:
    """Run processes one after the other until there were ``kills`` kills; return what they left behind."""
    rng = random.Random(0)
    killed: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    sums = {"leaked_containers": 0, "lost_records": 0, "attempts": 0, "scored": 0, "wrong_scores": 0}
    lives = 0
    while killed.total() < kills:
        wanted = min(kills_a_life, kills - killed.total())
        with TemporaryDirectory(prefix="dartsim-kills-") as name:
            # Every other process is killed itself, after some of its own kills; that is one more kill.
            dies = lives % 2 == 0
            owner = _life(image, Path(name), rng.randrange(wanted) + 1 if dies else wanted, rng, killed, dies=dies)
            killed["process"] += dies
            asyncio.run(_reap())
            _count(Path(name), sums, causes)
            sums["leaked_containers"] += left_containers(owner)
        lives += 1
        on_life({"kills": killed.total(), **sums, "lives": lives})
    return {
        "kills": killed.total(),
        **sums,
        "lives": lives,
        "killed": dict(killed),
        "causes": dict(sorted(causes.items())),
    }


def _life(image: str, folder: Path, kills: int, rng: random.Random, killed: Counter[str], *, dies: bool) -> str:
    """Run one process and kill on its desktops; then kill it, or let it end. Return the owner of its containers."""
    main = "from experiments.desktop_work import play; play()"
    with (
        (folder / "printed").open("w") as out,
        subprocess.Popen([sys.executable, "-c", main, str(folder / "run")], stdout=out) as process,
        closing(connect(DockerHostConfig())) as client,
    ):
        owner = f"{boot_id()}:{pid_namespace()}:{process.pid}:"
        while not (folder / "printed").stat().st_size and process.poll() is None:
            time.sleep(0.1)
        while kills:
            time.sleep(rng.expovariate(1.0 / MEAN_WAIT_SECONDS))
            if process.poll() is not None:
                raise RuntimeError(f"the process ended with status {process.returncode}")
            there = client.containers.list(filters={"ancestor": image}, ignore_removed=True)
            if mine := [each for each in there if each.labels.get(OWNER, "").startswith(owner)]:
                container, what = rng.choice(mine), rng.choices(list(KILLS), weights=(6, 1, 1))[0]
                with suppress(APIError):  # it is gone already
                    if KILLS[what]:
                        done = container.exec_run(list(KILLS[what])).exit_code == 0
                    else:
                        done = container.kill() is None
                    killed[what] += done
                    kills -= done
        process.send_signal(signal.SIGKILL if dies else signal.SIGINT)
        if process.wait(120.0) and not dies:
            raise RuntimeError(f"the process ended with status {process.returncode}")
    return owner


async def _reap() -> None:
    """Reap, as the next start does."""
    async with DesktopFleet([DockerHost(DockerHostConfig())]):
        pass


def _count(folder: Path, sums: dict[str, int], causes: Counter[str]) -> None:
    """Count what one process left behind."""
    attempts: dict[int, Figures] = {}
    for line in (folder / "printed").read_text().splitlines():
        with suppress(json.JSONDecodeError):  # the last line of a process that was killed may be incomplete
            if ended := json.loads(line):
                attempts[ended["attempt"]] = ended
    with reading(folder / "run" / DATABASE_FILE) as database:
        stored = dict(database.execute("SELECT attempt, reward FROM trajectories"))
        scheduler = read_documents(database).get(SCHEDULER, {})
    rewards = {attempt: line["reward"] for attempt, line in attempts.items()}
    sums["lost_records"] += len(lost_records(rewards, stored, scheduler))
    sums["attempts"] += len(stored)
    sums["scored"] += sum(reward is not None for reward in stored.values())
    sums["wrong_scores"] += sum(line["reward"] not in (None, line["worth"]) for line in attempts.values())
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
    with closing(connect(DockerHostConfig())) as client:
        labels = [each["Labels"] for each in client.api.containers(all=True, filters={"label": [OWNER]})]
        return sum(each[OWNER].startswith(owner) for each in labels)
