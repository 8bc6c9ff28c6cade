"""The control plane over real desktops with a scripted policy, so that all time is the desktops'.

An attempt moves the pointer, then clicks on the panel's red button, or beside it in every other attempt.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dartsim.config import Config, load
from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Reply, Request, Weights
from dartsim.observe import DesktopState, Listener, Recorder
from dartsim.real.containers import Container, ContainerSpec, DesktopFleet, DockerHost
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.tasks.panel import COLUMNS, panel_tasks
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.fetch import Downloads
from dartsim.real.osworld.provider import DesktopProvider
from dartsim.real.osworld.ready import Readiness, SettlingRules
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import OWN_SERVER, Timeouts
from dartsim.run.system import System
from dartsim.sim.learner import VersionCounter
from dartsim.store.memory import MemoryStore

SCREEN = (1920, 1080)
PATIENT = Timeouts(screenshot=60.0, execute=120.0, file=120.0, other=60.0)
"""For a machine that has far more desktops than cores."""


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
    concurrent_starts: int = 4

    @property
    def num_desktops(self) -> int:
        """Slots and spares."""
        return self.num_envs + self.warm_envs

    def spec(self) -> ContainerSpec:
        width, height = self.screen
        return desktop_spec(DesktopConfig(width=width, height=height, image=self.image))

    def settings(self, *, settle: SettlingRules | float = SettlingRules(cap_seconds=2.0)) -> DesktopSettings:  # noqa: B008
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
        return load(preset_name="desktop", overrides=overrides)


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
            settings=shape.settings(),
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
        self.system.data.check()


def engine(num_desktops: int, *, concurrent_starts: int = 4) -> DockerHostConfig:
    """Return settings of a Docker host with room for ``num_desktops``."""
    return DockerHostConfig(max_desktops=num_desktops, concurrent_starts=concurrent_starts)


def gaps(recorder: Recorder, num_envs: int, *, until: DesktopState = DesktopState.SETUP) -> list[float]:
    """Return, for each attempt but a slot's first, the seconds from the score before it to its own state ``until``."""
    found: list[float] = []
    for slot in range(num_envs):
        scored: float | None = None
        for track, state, start, end in recorder.desktops.segments or ():
            if track != slot:
                continue
            if state == DesktopState.EVALUATING:
                scored = end
            elif state == until and scored is not None:
                found.append(start - scored)
                scored = None
    return found


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the 95th percentile, nearest rank, and how many values there were."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1], 4)

    return {"p50": at(0.5), "p95": at(0.95), "number": len(ordered)}
