"""The measurements of ``experiments.desktop``: one desktop, gaps between attempts, how many there may be, kills."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from dartsim.envs.actions import make_grammar, read
from dartsim.observe.figures import after_warmup, figures
from dartsim.real.containers import DockerHost
from dartsim.real.desktop.tasks.panel import panel_tasks
from dartsim.real.loop import RunLoop
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.desktop import OsworldDesktop
from dartsim.real.osworld.provider import start_desktop
from dartsim.real.osworld.pyautogui_code import command, placing, snippets
from experiments.desktop_cluster import DesktopStudyCluster, Shape, engine, gaps, percentiles
from experiments.desktop_kills import random_kills
from experiments.study import Figures, Options

T = TypeVar("T")


async def timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """Return how many seconds something took, and what it gave."""
    begun = time.perf_counter()
    found = await work()
    return time.perf_counter() - begun, found


async def starts(shape: Shape, host: DockerHost, number: int) -> dict[str, float]:
    """Start desktops one after the other; seconds from the call of the engine to a good screenshot."""
    found: list[float] = []
    for _ in range(number):
        seconds, desktop = await timed(
            lambda: start_desktop(host, shape.spec(), DesktopOptions(settings=shape.settings()))
        )
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
    import httpx

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
    settings = shape.settings(settle=0.0)
    desktop = await start_desktop(host, shape.spec(), DesktopOptions(settings=settings))
    try:
        await desktop.reset(panel_tasks(1)[0], seed=0)
        await asyncio.sleep(1.0)
        return {"screenshot_seconds": await screenshots(desktop, shots), **await step_overhead(desktop, steps)}
    finally:
        await desktop.close()


FULL: dict[str, Any] = {
    "starts": 40,
    "shots": 200,
    "steps": 100,
    "gap_envs": 4,
    "gap_warm_envs": 2,
    "gap_turns": 8,
    "gap_attempts": 60,
    "density": (8, 16, 32),
    "density_turns": 15,
    "density_seconds": 100.0,
    "density_attempts": None,
    "think_seconds": 1.0,
    "kills": 1000,
    "kills_a_life": 40,
}
QUICK: dict[str, Any] = {
    **FULL,
    "starts": 4,
    "shots": 20,
    "steps": 10,
    "gap_envs": 1,
    "gap_warm_envs": 1,
    "gap_turns": 3,
    "gap_attempts": 3,
    "density": (2,),
    "density_turns": 4,
    "density_seconds": 600.0,
    "density_attempts": 4,
    "think_seconds": 0.2,
    "kills": 6,
    "kills_a_life": 3,
}


def measured(image: str, options: Options) -> Figures:
    """Measure everything on desktops of an image, one after the other."""
    plan = QUICK if options.quick else FULL
    say = options.console.print
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="dartsim-desktop-") as name:
        folder = Path(name)
        found: Figures = _in_real_time(lambda: _calls(image, plan))
        say("calls of one desktop: done", style="dim")
        found["revert_gap_seconds"] = _gap(image, plan, folder, warm_envs=plan["gap_warm_envs"])
        found["revert_gap_without_warm_pool_seconds"] = _gap(image, plan, folder, warm_envs=0)
        say("gaps between attempts: done", style="dim")
        found["density"] = []
        for number in plan["density"]:
            found["density"].append(_density(image, plan, folder, number))
            say(f"{number} desktops: done", style="dim")
    kills = random_kills(
        image,
        kills=plan["kills"],
        kills_a_life=plan["kills_a_life"],
        seed=0,
        on_life=lambda sums: say(str(sums), style="dim"),
    )
    named = ("kills", "leaked_containers", "lost_records")
    return {
        **found,
        **{name: kills[name] for name in named},
        "kills_more": {name: value for name, value in kills.items() if name not in named},
        "load_average": {"before": [round(one, 2) for one in load], "after": [round(x, 2) for x in os.getloadavg()]},
        "config": {**plan, "density": list(plan["density"]), "image": image},
    }


def _in_real_time(work: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await work()

    with asyncio.Runner(loop_factory=RunLoop) as runner:
        return runner.run(main())


async def _calls(image: str, plan: dict[str, Any]) -> Figures:
    shape = Shape(image=image, num_envs=1)
    async with DockerHost(engine(1), run="experiment") as host:
        return {
            "start_to_screenshot_seconds": await starts(shape, host, plan["starts"]),
            **await one_desktop(shape, host, shots=plan["shots"], steps=plan["steps"]),
        }


def _gap(image: str, plan: dict[str, Any], folder: Path, *, warm_envs: int) -> dict[str, float]:
    """Return the seconds between two attempts of a slot."""
    shape = Shape(
        image=image,
        num_envs=plan["gap_envs"],
        warm_envs=warm_envs,
        turns=plan["gap_turns"],
        think_seconds=plan["think_seconds"],
    )

    async def work() -> dict[str, float]:
        async with DockerHost(engine(shape.num_desktops), run="experiment") as host:
            cluster = DesktopStudyCluster(shape, host, folder=folder)
            wanted = plan["gap_attempts"] + shape.num_envs
            await cluster.run(3600.0, until=lambda: cluster.recorder.counts["rewarded"] >= wanted)
            return percentiles(gaps(cluster.recorder, shape.num_envs))

    return _in_real_time(work)


def _density(image: str, plan: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    """Return the throughput of ``number`` desktops."""
    shape = Shape(image=image, num_envs=number, turns=plan["density_turns"], think_seconds=plan["think_seconds"])

    async def work() -> dict[str, Any]:
        async with DockerHost(engine(number), run="experiment") as host:
            cluster = DesktopStudyCluster(shape, host, folder=folder)
            counts, enough = cluster.recorder.counts, plan["density_attempts"]
            await cluster.run(
                plan["density_seconds"], until=lambda: enough is not None and counts["rewarded"] >= enough
            )
            # Their first starts, all at once, are not what a run is like.
            first = after_warmup(cluster.recorder.snapshots, 0.25)
            last = cluster.recorder.snapshots[-1]
            rates = figures(first, last)
            scored = last.counts.get("rewarded", 0) - first.counts.get("rewarded", 0)  # not those cut off by the end
            return {
                "num_desktops": number,
                "steps_per_minute": round(rates["generated_turns_per_minute"], 1),
                "utilization": round(rates["env_utilization"], 4),
                "scored_per_minute": round(60.0 * scored / (last.time - first.time), 2),
                "desktop_shares": {name: round(share, 4) for name, share in rates["desktop_shares"].items() if share},
                "faults": {name: int(n) for name, n in sorted(counts.items()) if name.startswith(("fault/", "cause/"))},
            }

    return _in_real_time(work)
