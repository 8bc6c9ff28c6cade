"""The whole control plane over real desktops that can be harmed: what the tests beside this file, and their child
processes, have in common.

The policy is a script: it moves the pointer, then clicks on the red button, or beside it in every other attempt. So
each attempt has a score that is known beforehand, groups are worth training on, and no model is needed.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartsim.config import load
from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.rng import Streams
from dartsim.core.types import Reply, Trajectory, UpdateResult, Weights
from dartsim.observe import Listener, Recorder
from dartsim.real.containers import DesktopFleet, DockerHost
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.tasks.panel import COLUMNS, panel_tasks
from dartsim.real.loop import RunLoop
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.fetch import Downloads
from dartsim.real.osworld.provider import DesktopProvider
from dartsim.real.osworld.ready import Readiness, SettlingRules
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import OWN_SERVER, Timeouts
from dartsim.run.system import System
from dartsim.store.memory import MemoryStore

SIDE = 224
"""Width and height of the screens, pixels."""
OVERRIDES = (
    'backend.workers="sim"',
    'backend.learner="sim"',
    "rollout.num_envs=2",
    "rollout.warm_envs=0",
    "rollout.max_turns=2",
    "rollout.limits.start_seconds=60.0",
    'curation.turn_limit.rule="fixed"',
    'curation.attempts.rule="fixed"',
    "curation.attempts.group_size=2",
    "curation.batch.min_groups=1",
    "curation.batch.max_groups=2",
    "curation.staleness.max_staleness=4",
    "curation.pool.enabled=false",
)
# Short for a desktop that hangs, long enough for a busy machine.
TIMEOUTS = Timeouts(connect=3.0, screenshot=4.0, file=6.0, other=6.0)
DESKTOP = DesktopSettings(
    grammar="pyautogui",
    screen=(SIDE, SIDE),
    booted=Readiness(limit_seconds=60.0, quiet_seconds=0.0, poll_seconds=0.1),
    ready=Readiness(change_seconds=5.0, quiet_seconds=0.1, poll_seconds=0.1, cap_seconds=5.0),
    settle=SettlingRules(cap_seconds=2.0),
    action_seconds=5.0,
)
MOVE = "pyautogui.moveTo(3, 3)"

Harm = Callable[..., Any]


def worth(attempt):
    """The score of an attempt that no fault touches."""
    return 1.0 if attempt.index % 2 == 0 else 0.0


def click(attempt):
    x, y = attempt.task.spec["targets"][0]
    x = x if worth(attempt) else (x + 1) % COLUMNS
    return f"pyautogui.click({(2 * x + 1) * SIDE // (2 * COLUMNS)}, {(2 * y + 1) * SIDE // (2 * COLUMNS)})"


class TooLong(Exception):
    """The cluster did not come to what was waited for."""


@dataclass
class Plan:
    """What is done to the cluster.

    Attributes:
        harm: Done to the desktop of one attempt, before its last action: ``harm(rig, container)``.
        action: The last action of that attempt, in place of the click.
        seconds: Longest time for all of it.
        enough: Whether it may end: ``enough(rig)``; by default once the harmed slot has a score after it.
        store: Keeps the trajectories.
    """

    image: str
    harm: Harm | None = None
    action: str | None = None
    seconds: float = 240.0
    enough: Harm | None = None
    store: Any = None


class Rig:
    """One life of the cluster.

    Attributes:
        containers: The newest container of each slot.
        slots: The slot of each attempt.
        trajectories: All that ended, in order.
        struck: The attempt whose desktop was harmed.
        owner: What the containers are labelled with.
    """

    def __init__(self, plan):
        self.plan = plan
        self.containers = {}
        self.slots = {}
        self.trajectories: list[Trajectory] = []
        self.struck = None
        self.owner = ""
        self.ended = asyncio.Event()

    async def run(self):
        """Live until there is enough; then check what must hold, and return the counts."""
        plan = self.plan
        spec = desktop_spec(DesktopConfig(width=SIDE, height=SIDE, image=plan.image))
        host = DockerHost(DockerHostConfig(max_desktops=4), run="faults")
        self.owner = str(host.owner)
        config = load("desktop", overrides=OVERRIDES)
        async with DesktopFleet([host], rest_seconds=1.0) as self.fleet, Scorer() as self.scorer:
            with contextlib.ExitStack() as stack:
                recorder = Recorder(
                    asyncio.get_running_loop().time,
                    num_envs=config.rollout.num_desktops,
                    num_engines=config.rollout.num_workers,
                )
                recorder.instruments.append(Listener(attempt_ended=self._ended))
                self.system = System(
                    config,
                    tasks=panel_tasks(16),
                    provider=DesktopProvider(self, spec, self._options(stack)),
                    engines=[self] * config.rollout.num_workers,
                    learner=self,
                    store=plan.store or MemoryStore(),
                    recorder=recorder,
                    streams=Streams(0),
                    transport=lambda pool: pool,
                )
                await self._until_enough()
        assert host.num_held == 0
        self._check()
        return self.system.recorder.counts

    def _options(self, stack):
        folder = stack.enter_context(_folder())
        return DesktopOptions(
            settings=DESKTOP, server=OWN_SERVER, downloads=Downloads(folder), scorer=self.scorer, timeouts=TIMEOUTS
        )

    async def _until_enough(self):
        running = asyncio.create_task(self.system.run(self.plan.seconds))
        ended = asyncio.create_task(self.ended.wait())
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if running.done():
            await running
            raise TooLong(f"after {self.plan.seconds:g} s: {dict(self.system.recorder.counts)}, struck {self.struck}")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    def _ended(self, trajectory):
        self.trajectories.append(trajectory)
        enough = self.plan.enough or (lambda rig: rig.struck is not None and rig.later)
        if enough(self):
            self.ended.set()

    @property
    def later(self):
        """Attempts of the harmed slot that were scored after it."""
        slot = self.slots[self.struck]
        return [
            t
            for t in self.trajectories
            if t.attempt.id > self.struck and self.slots.get(t.attempt.id) == slot and not t.masked
        ]

    def of(self, attempt):
        return next(t for t in self.trajectories if t.attempt.id == attempt)

    def _check(self):
        """What holds whatever happened: each attempt once, each score the one that it is worth."""
        self.system.data.ledger.check()
        ids = [t.attempt.id for t in self.trajectories]
        assert len(ids) == len(set(ids)) == self.system.data.ledger.admitted
        assert [t.attempt.id for t in self.trajectories if not t.masked and t.reward != worth(t.attempt)] == []
        counts = self.system.recorder.counts
        causes = {name for name in counts if name.startswith("cause/")}
        assert sum(counts[name] for name in causes) == sum(t.masked for t in self.trajectories)

    # ---- as the place where containers are started

    async def start(self, spec, *, slot):
        container = await self.fleet.start(spec, slot=slot)
        self.containers[slot] = container
        return container

    # ---- as the only worker, and as the learner

    async def generate(self, request):
        attempt = request.attempt
        slot = next(slot for slot, leased in self.system.cluster.leases.items() if leased.id == attempt.id)
        self.slots[attempt.id] = slot
        action = MOVE if request.turn == 0 else click(attempt)
        if request.turn == 1 and self.plan.harm is not None and self.struck is None:
            self.struck = attempt.id
            action = self.plan.action or action
            await self.plan.harm(self, self.containers[slot])
        return Reply(action, 0, 0, 0, 100, 10)

    async def load(self, weights, mode):
        """The script is the same at every version."""

    async def update(self, batch):
        await asyncio.sleep(0.01)
        return UpdateResult(Weights(batch.update))


@contextlib.contextmanager
def _folder():
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dartsim-faults-") as folder:
        yield Path(folder)


def live(image, **plan):
    """Let a cluster live through a plan; return it and its counts."""
    return live_beside(image, [plan])[0]


def live_beside(image, plans):
    """Let clusters of their own live beside each other; return each and its counts."""

    async def one(plan):
        rig = Rig(Plan(image, **plan))
        return rig, await rig.run()

    async def main():
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(one(plan)) for plan in plans]
        return [life.result() for life in lives]

    with asyncio.Runner(loop_factory=RunLoop) as runner:
        return runner.run(main())
