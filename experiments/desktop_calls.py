"""What one real desktop takes: to its first good screenshot, for a screenshot, and for a step beside its calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from dartsim.envs.actions import make_grammar
from dartsim.envs.actions.grammars import read
from dartsim.real.containers import DockerHost
from dartsim.real.desktop.tasks.panel import panel_tasks
from dartsim.real.osworld.desktop import OsworldDesktop
from dartsim.real.osworld.provider import start_desktop
from dartsim.real.osworld.pyautogui_code import command, placing, snippets
from experiments.desktop_cluster import Shape, percentiles

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
        seconds, desktop = await timed(lambda: start_desktop(host, shape.spec(), settings=shape.settings()))
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


async def one_desktop(shape: Shape, host: DockerHost, *, shots: int, steps: int, root: Path) -> dict[str, Any]:
    """Measure screenshots and steps on one desktop that shows a panel."""
    settings = shape.settings(settle=0.0)
    desktop = await start_desktop(host, shape.spec(), settings=settings, root=root)
    try:
        await desktop.reset(panel_tasks(1)[0], seed=0)
        await asyncio.sleep(1.0)
        return {"screenshot_seconds": await screenshots(desktop, shots), **await step_overhead(desktop, steps)}
    finally:
        await desktop.close()
