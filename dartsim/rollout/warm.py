"""``WarmProvider``: desktops booted ahead, so that a slot's next attempt need not wait for a boot.

A slot takes a booted spare if there is one, and boots its own desktop otherwise; a desktop that is given back is torn
down in the background. So a slot waits for neither a tear-down nor a boot between attempts, as long as spares keep up.
All desktops, spares included, never take more than ``num_envs + num_spares`` places.

If it knows the tasks of the next attempts, spares are also set up for them. Such a spare goes to an attempt of its task
only, and is torn down once none of the next attempts is of that task.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import count

from dartsim.config.sections.rollout import RolloutConfig
from dartsim.core.answers import closed, described, is_own, started, text_of
from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import EnvBroken, EnvFault, EnvStartFailed, EnvStartTimedOut, cause_of
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.time_limit import TimeLimit
from dartsim.core.types import Observation, Task
from dartsim.observe import DesktopState, Recorder, Track

logger = logging.getLogger(__name__)

Place = int
"""A slot number of the inner provider."""

Upcoming = Callable[[int], Sequence[Task]]
"""Returns the tasks of so many next attempts, in order."""

START_BACKOFF_SECONDS = 5.0
"""Wait after a failed start, doubled each time."""

PATIENCE_SECONDS = 5.0
"""How long a spare is kept whose task is not among the next ones: its attempt may just be starting."""


def fitting_spares(config: RolloutConfig, hosts_gib: Sequence[float], desktop_gib: float) -> int:
    """Return how many of the configured spares have room beside the slots."""
    if desktop_gib <= 0.0 or math.inf in hosts_gib:
        return config.warm_envs
    places = sum(int(max(0.0, gib - config.host_reserve_gib) // desktop_gib) for gib in hosts_gib)
    return min(config.warm_envs, max(0, places - config.num_envs))


class LentDesktop:
    """A desktop and the place it takes; implements ``dartsim.core.ports.AsyncEnv``."""

    __slots__ = ("_owner", "_shown", "env", "evaluate", "place", "step", "task", "unwanted_since")

    def __init__(self, owner: WarmProvider, place: Place, env: AsyncEnv) -> None:
        self._owner = owner
        self._shown: Observation | None = None
        self.place = place
        self.env = env
        self.task: Task | None = None
        """The task that it is set up for."""
        self.unwanted_since = math.inf
        self.step = env.step
        self.evaluate = env.evaluate

    async def prepare(self, task: Task, *, seed: int) -> None:
        """Set it up for a task, whose next ``reset`` then only returns what was shown."""
        self.task, self._shown = task, await self.env.reset(task, seed=seed)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        shown, self._shown = self._shown, None
        return await self.env.reset(task, seed=seed) if shown is None else shown

    async def close(self) -> None:
        self._owner.take_back(self)


class WarmProvider:
    """Starts desktops ahead of their use; implements ``dartsim.core.ports.EnvProvider``.

    ``run`` boots the spares and tears down what is given back; it must run as long as desktops are asked for.

    Args:
        inner: Starts desktops.
        config: Number of slots, and how starts are tried.
        tracks: One for each spare.
        recorder: Records states and faults.
        upcoming: If given, spares are set up for these tasks.
    """

    def __init__(
        self,
        inner: EnvProvider,
        config: RolloutConfig,
        tracks: Sequence[Track],
        recorder: Recorder,
        upcoming: Upcoming | None = None,
    ) -> None:
        if not tracks:
            raise ValueError("a warm provider keeps at least 1 spare, got none")
        self.inner = inner
        self._tracks = tracks
        self._limits = config.limits
        self._recorder = recorder
        self._upcoming = upcoming
        self._preparing: Counter[str] = Counter()
        """Spares that are being set up, by task."""
        self._seeds = count()
        self._free: deque[Place] = deque(range(config.num_envs + len(tracks)))
        self._ready: deque[tuple[LentDesktop, asyncio.Event]] = deque()
        self._slots: deque[asyncio.Future[Place | LentDesktop]] = deque()
        self._spares: deque[asyncio.Future[Place]] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def num_ready(self) -> int:
        return len(self._ready)

    async def start(self, slot: int) -> AsyncEnv:
        return await self.start_for(slot, None)

    async def start_for(self, slot: int, task: Task | None) -> AsyncEnv:
        """Return a booted spare, if need be one that is set up for the task; boot a desktop if there is none."""
        spare = await self._next(task)
        self._give_up_unwanted()
        if isinstance(spare, LentDesktop):
            self._recorder.counts["warm/hits"] += 1
            return spare
        self._recorder.counts["warm/misses"] += 1
        return await self._boot(spare)

    def take_back(self, desktop: LentDesktop) -> None:
        """Tear a desktop down in the background, which frees its place."""
        if desktop.place < 0:
            return  # closed twice
        closing = LentDesktop(self, desktop.place, desktop.env)
        desktop.place = -1
        task = asyncio.get_running_loop().create_task(self._close(closing), name=f"close-{closing.place}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def run(self) -> None:
        """Keep spares booted until cancelled; then tear everything down."""
        try:
            async with asyncio.TaskGroup() as group:
                for number, track in enumerate(self._tracks):
                    group.create_task(self._keep(track), name=f"spare-{number}")
        finally:
            while self._ready:
                self.take_back(self._ready.popleft()[0])
            for track in self._tracks:
                track.enter(DesktopState.OFF)
            if self._closing:
                await asyncio.wait(sorted(self._closing, key=asyncio.Task.get_name))

    async def _next(self, task: Task | None) -> Place | LentDesktop:
        """Return a spare or, failing that, a place for a slot to boot in."""
        for desktop, taken in self._ready:
            if desktop.task is None or (task is not None and desktop.task.id == task.id):
                self._ready.remove((desktop, taken))
                taken.set()
                return desktop
        if self._free:
            return self._free.popleft()
        waiting: asyncio.Future[Place | LentDesktop] = asyncio.get_running_loop().create_future()
        self._slots.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                spare = waiting.result()
                if isinstance(spare, LentDesktop):
                    self.take_back(spare)
                else:
                    self._free_place(spare)
            raise

    def _free_place(self, place: Place) -> None:
        """Give a place to a slot that waits, else to a spare that waits, else keep it free."""
        for waiting in (self._slots, self._spares):
            while waiting:
                future = waiting.popleft()
                if not future.done():
                    future.set_result(place)
                    return
        self._free.append(place)

    async def _keep(self, track: Track) -> None:
        """Boot one spare after the other."""
        failures = 0
        while True:
            track.enter(DesktopState.WAIT_ADMISSION)
            place = await self._spare_place()
            track.enter(DesktopState.STARTING)
            try:
                desktop = await self._boot(place)
                if self._upcoming is not None:
                    await self._prepare(desktop, self._upcoming, track)
            except EnvFault as fault:
                if isinstance(fault, EnvStartFailed):
                    self._recorder.start_failed(cause_of(fault), text_of(fault))
                else:
                    self._recorder.counts["warm/failed"] += 1
                logger.debug("a spare did not get ready: %s", fault)
                track.enter(DesktopState.WAIT_START)
                failures += 1
                first, most = START_BACKOFF_SECONDS, self._limits.start_seconds
                await asyncio.sleep(backoff_seconds(failures, first_seconds=first, max_seconds=most))
                continue
            failures = 0
            track.enter(DesktopState.READY)
            await self._offer(desktop)

    async def _prepare(self, desktop: LentDesktop, upcoming: Upcoming, track: Track) -> None:
        """Set a spare up for the first of the next attempts that has none.

        Raises:
            EnvFault: If it could not be; it is torn down.
        """
        task = next(iter(self._missing(upcoming)), None)
        if task is None:
            return
        track.enter(DesktopState.SETUP)
        self._preparing[task.id] += 1
        try:
            with TimeLimit(self._limits.setup_seconds):
                await desktop.prepare(task, seed=next(self._seeds))
        except TimeoutError:
            self.take_back(desktop)
            raise EnvBroken(f"task {task.id} was not set up after {self._limits.setup_seconds:g} s") from None
        except BaseException as error:
            self.take_back(desktop)
            if is_own(error):
                raise EnvBroken(f"task {task.id} was not set up: {described(error)}") from error
            raise
        finally:
            self._preparing[task.id] -= 1

    def _missing(self, upcoming: Upcoming) -> list[Task]:
        """Return the tasks of the next attempts that no spare is set up for."""
        there = self._preparing + Counter(desktop.task.id for desktop, _ in self._ready if desktop.task is not None)
        missing = []
        for task in upcoming(len(self._tracks)):
            if there[task.id] > 0:
                there[task.id] -= 1
            else:
                missing.append(task)
        return missing

    def _give_up_unwanted(self) -> None:
        """Tear spares down whose tasks are not among the next ones."""
        if self._upcoming is None:
            return
        now = asyncio.get_running_loop().time()
        wanted = Counter(task.id for task in self._upcoming(len(self._tracks)))
        for desktop, taken in list(self._ready):
            if desktop.task is None or wanted[desktop.task.id] > 0:
                desktop.unwanted_since = math.inf
                if desktop.task is not None:
                    wanted[desktop.task.id] -= 1
                continue
            desktop.unwanted_since = min(desktop.unwanted_since, now)
            if now - desktop.unwanted_since > PATIENCE_SECONDS:
                self._recorder.counts["warm/unwanted"] += 1
                self._ready.remove((desktop, taken))
                taken.set()
                self.take_back(desktop)

    async def _spare_place(self) -> Place:
        if self._free:
            return self._free.popleft()
        waiting: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._spares.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._free_place(waiting.result())
            raise

    async def _offer(self, desktop: LentDesktop) -> None:
        """Hand a spare to a slot that waits, or keep it until one comes for its task."""
        while self._slots and desktop.task is None:
            waiting = self._slots.popleft()
            if not waiting.done():
                waiting.set_result(desktop)
                return
        taken = asyncio.Event()
        self._ready.append((desktop, taken))
        await taken.wait()

    async def _boot(self, place: Place) -> LentDesktop:
        try:
            with TimeLimit(self._limits.start_seconds):
                return LentDesktop(self, place, await started(self.inner, place))
        except TimeoutError:
            self._free_place(place)
            raise EnvStartTimedOut(f"a desktop was not ready after {self._limits.start_seconds:g} s") from None
        except BaseException:
            self._free_place(place)
            raise

    async def _close(self, desktop: LentDesktop) -> None:
        try:
            await closed(desktop.env, self._limits.close_seconds, self._recorder.counts)
        finally:
            self._free_place(desktop.place)
