"""``RevertingProvider``: keeps desktops between attempts; they return to a saved state instead of booting.

    start --> fresh --reset--> used --close, reset--> restored to the state after the boot, or after the task's set-up
                                 |
                                 +-- a call failed or was cancelled --> closed; the next attempt boots another

If anything goes wrong with a saved state, the state is discarded and the desktop boots: a bad snapshot costs only time.
If that boot fails too, the attempt is masked; it never gets a wrong reward.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import numpy as np

from dartsim.config.sections.desktop import DesktopConfig
from dartsim.config.sections.rollout import LimitsConfig
from dartsim.core.answers import close_desktop, is_own, start_desktop
from dartsim.core.errors import EnvFault, ScoreUnavailable
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.snapshots import REVERT_KEY, snapshot_key, snapshots_of
from dartsim.core.types import Observation, StepResult, Task
from dartsim.rollout.snapshot_library import BOOTED, SavedState, SnapshotLibrary

MAX_CHANGED = 0.001
"""Share of pixels in which the first screenshot may differ from the saved state's; beyond it, the desktop boots."""


class RevertingProvider:
    """One desktop per slot, kept until ``close_all``; implements ``dartsim.core.ports.EnvProvider``.

    It counts in ``counts``: attempts that began in a state after a boot (``revert/restored``), after a set-up
    (``revert/forked``) or with a boot (``revert/booted``), each once; failed saves and restores (``revert/failed``);
    restores that showed another screen (``revert/changed``); and states saved (with their bytes) and evicted.

    Args:
        inner: Starts desktops.
        config: How they revert: by ``snapshot`` or ``fork``.
        counts: Counters to increase.
        limits: Longest start and tear-down of a desktop: a longer start fails, and a longer tear-down is
            counted (``fault/close``) and abandoned. An attempt waits for another one's set-up for at most the longest
            set-up.
    """

    def __init__(
        self,
        inner: EnvProvider,
        config: DesktopConfig,
        counts: Counter[str],
        *,
        limits: LimitsConfig,
    ) -> None:
        self.inner = inner
        self.config = config
        self.counts = counts
        self.limits = limits
        self.closed = False
        self._desktops: dict[int, RevertingDesktop] = {}
        self._libraries: dict[str, SnapshotLibrary] = {}

    async def start(self, slot: int) -> RevertingDesktop:
        """Return the slot's desktop, booted if there is none."""
        desktop = self._desktops.setdefault(slot, RevertingDesktop(self, slot))
        await desktop.open()
        return desktop

    def library(self, host: str) -> SnapshotLibrary:
        if host not in self._libraries:
            self._libraries[host] = SnapshotLibrary(
                host, self.config.states_gib, self.counts, patience=self.limits.setup_seconds
            )
        return self._libraries[host]

    async def run(self) -> None:
        """Keep desktops until cancelled; then close them all."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.close_all()

    async def close_all(self) -> None:
        """Close all desktops, even if closing one fails."""
        self.closed = True
        closing = (desktop.close() for desktop in self._desktops.values())
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


class RevertingDesktop:
    """A slot's desktop; implements ``dartsim.core.ports.AsyncEnv``. ``close`` keeps the desktop if it is good."""

    def __init__(self, owner: RevertingProvider, slot: int) -> None:
        self.env: AsyncEnv | None = None
        self._owner = owner
        self._slot = slot
        self._fresh = False
        """Whether it is unchanged since its boot."""
        self._good = False
        """Whether it may be kept: its last call neither failed nor was cancelled."""
        self._beginning = "booted"
        """How its last attempt began, for the counts."""

    async def open(self) -> None:
        """Boot, unless there is a good desktop already."""
        if self.env is None:
            await self.boot()
            self._good = True

    async def boot(self) -> None:
        """Close the current desktop and start another one.

        Raises:
            EnvStartFailed: If it did not start in time.
        """
        await self._discard()
        self.env = await start_desktop(self._owner.inner, self._slot, self._owner.limits.start_seconds)
        self._fresh = True

    async def reset(self, task: Task, *, seed: int) -> Observation:
        self._good = False
        shown = await self._begin(task, seed)
        self._owner.counts[f"revert/{self._beginning}"] += 1
        self._good = True
        return shown

    async def step(self, action: str) -> StepResult:
        self._good = False
        result = await self._env.step(action)
        self._good = True
        return result

    async def evaluate(self) -> float:
        self._good = False
        try:
            score = await self._env.evaluate()
        except ScoreUnavailable:
            self._good = True  # only the evaluator failed
            raise
        self._good = True
        return score

    async def close(self) -> None:
        if not self._good or self._owner.closed:
            await self._discard()

    @property
    def _env(self) -> AsyncEnv:
        assert self.env is not None, "used before it was started"
        return self.env

    async def _discard(self) -> None:
        env, self.env, self._good = self.env, None, False
        if env is not None:
            await close_desktop(env, self._owner.limits.close_seconds, self._owner.counts)

    async def _begin(self, task: Task, seed: int) -> Observation:
        """Begin an attempt in the best available state."""
        owner = self._owner
        snapshots = None if must_boot(task) else snapshots_of(self._env)
        if snapshots is None:
            return await self._begin_fresh(task, seed)
        library = owner.library(snapshots.host)
        if owner.config.revert == "snapshot":
            return await self._begin_after_boot(library, task, seed)
        key = snapshot_key(task)
        state = await library.find(key)
        if state is not None:
            return await self._begin_restored(library, state, task, seed) or await self._begin_fresh(task, seed)
        with library.preparing(key) as place:
            shown = await self._begin_after_boot(library, task, seed)
            if place is None or await self._save(library, place, shown):
                return shown
        return await self._begin_fresh(task, seed)

    async def _begin_after_boot(self, library: SnapshotLibrary, task: Task, seed: int) -> Observation:
        """Set a task up in the state after a boot, saving that state if none is saved."""
        if not self._fresh:
            state = await library.find(BOOTED)
            shown = None if state is None else await self._begin_restored(library, state, task, seed)
            if shown is not None:
                return shown
            await self.boot()
        if await library.find(BOOTED) is None:
            with library.preparing(BOOTED) as place:
                if place is not None:
                    await self._save(library, place)
        return await self._begin_fresh(task, seed)

    async def _begin_fresh(self, task: Task, seed: int) -> Observation:
        """Set a task up on a freshly booted desktop."""
        if not self._fresh:
            await self.boot()
        self._beginning = "booted"
        return await self._set_up(task, seed)

    async def _set_up(self, task: Task, seed: int) -> Observation:
        self._fresh = False
        return await self._env.reset(task, seed=seed)

    async def _begin_restored(
        self, library: SnapshotLibrary, state: SavedState, task: Task, seed: int
    ) -> Observation | None:
        """Begin an attempt in a saved state; return None if restoring it failed."""
        counts = self._owner.counts
        snapshots = snapshots_of(self._env)
        assert snapshots is not None
        self._fresh = False
        try:
            with state.in_use():
                await snapshots.restore(state.name)
                shown = await self._set_up(task, seed)
        except BaseException as error:
            if not isinstance(error, EnvFault) and not is_own(error):
                raise
            counts["revert/failed"] += 1
            library.discard(state)
            return None
        if state.shown is not None:
            before, after = state.shown.screenshot, shown.screenshot
            if await asyncio.to_thread(changed_share, before, after) > MAX_CHANGED:
                counts["revert/changed"] += 1
                library.discard(state)
                return None
        self._beginning = "restored" if state.shown is None else "forked"
        return shown

    async def _save(self, library: SnapshotLibrary, place: SavedState, shown: Observation | None = None) -> bool:
        """Save the current state; return whether the desktop is still good."""
        snapshots = snapshots_of(self._env)
        if snapshots is None or snapshots.host != library.host:
            return True  # another desktop was booted meanwhile, on another host
        try:
            await library.save(place, snapshots, shown)
        except BaseException as error:
            if not isinstance(error, EnvFault) and not is_own(error):
                raise
            self._owner.counts["revert/failed"] += 1
            self._fresh = False
            return False
        return True


def must_boot(task: Task) -> bool:
    """Return whether a task's set-up must not be shared."""
    return task.spec.get(REVERT_KEY) == "boot"


def changed_share(before: Any, after: Any) -> float:
    """Return the share of pixels in which two screenshots differ.

    Args:
        before: A screenshot, uint8 [height, width, 3] or convertible by ``np.asarray``; or None.
        after: Another one; if its shape differs, so do all pixels.
    """
    if before is after:
        return 0.0
    one, other = np.asarray(before), np.asarray(after)
    if one.shape != other.shape:
        return 1.0
    return float((one != other).any(axis=-1).mean())
