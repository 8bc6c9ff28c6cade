"""``EnvCluster``: desktops, lent to one attempt at a time and replaced after it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import EnvStartFailed, EnvStartTimedOut, InvariantViolated, cause_of
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.types import Attempt
from dartsim.observe import DesktopState, Recorder, Track

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRule:
    """How often a desktop's start is tried.

    Attributes:
        tries: Starts before the attempt is given up (DART's released default is 3).
        backoff_seconds: Wait after the first failed start; doubled each time.
        start_seconds: Longest time one start may take (OSWorld waits 300 s for a VM).
        close_seconds: Longest time a tear-down may take before the desktop is left to the reaper.
        rest_seconds: Longest time that a slot rests which starts no desktop at all: a host that is gone would otherwise
            take attempt after attempt, and spoil their groups.
    """

    tries: int = 3
    backoff_seconds: float = 5.0
    start_seconds: float = 600.0
    close_seconds: float = 120.0
    rest_seconds: float = 300.0


class Lease:
    """A slot and its desktop, lent for an ``async with`` block; the desktop is closed at the end."""

    __slots__ = ("_attempt", "_cluster", "_env", "_slot")

    def __init__(self, cluster: EnvCluster, slot: int, attempt: Attempt) -> None:
        self._cluster = cluster
        self._slot = slot
        self._attempt = attempt

    async def __aenter__(self) -> AsyncEnv:
        self._env = await self._cluster.open(self._slot, self._attempt)
        return self._env

    async def __aexit__(self, *exc: object) -> None:
        await self._cluster.close(self._slot, self._env)


class EnvCluster:
    """Slots for desktops. Each attempt gets a fresh desktop, as in DART.

    Invariants: a slot serves one attempt at a time; a desktop that was started is closed, whatever happened
    to its attempt; a desktop that fails to start costs its attempt at most, never its slot.
    """

    def __init__(self, provider: EnvProvider, *, num_envs: int, rule: StartRule, recorder: Recorder) -> None:
        self._provider = provider
        self._rule = rule
        self._recorder = recorder
        self.num_envs = num_envs
        self.leases: dict[int, Attempt] = {}
        """The attempt that each leased slot serves."""
        self._failed: dict[int, int] = {}
        """How often in a row all starts for an attempt failed, by slot; absent: the last one came up."""

    def lease(self, slot: int, attempt: Attempt) -> Lease:
        """Lend the slot to an attempt and start a desktop for it, for an ``async with`` block."""
        return Lease(self, slot, attempt)

    async def open(self, slot: int, attempt: Attempt) -> AsyncEnv:
        """Lend the slot to an attempt and start a desktop for it.

        Raises:
            EnvStartFailed: If every try to start one failed.
            InvariantViolated: If the slot serves an attempt already.
        """
        if slot in self.leases:
            raise InvariantViolated(
                f"slot {slot} serves attempt {self.leases[slot].id} and was asked to serve attempt {attempt.id} as well"
            )
        self.leases[slot] = attempt
        try:
            env = await self._start(slot, self._recorder.desktops.tracks[slot])
        except BaseException as error:
            del self.leases[slot]
            if isinstance(error, EnvStartFailed):
                self._failed[slot] = self._failed.get(slot, 0) + 1
            raise
        self._failed.pop(slot, None)
        return env

    async def close(self, slot: int, env: AsyncEnv) -> None:
        """Close the slot's desktop and take the slot back."""
        try:
            await self._close(env, self._recorder.desktops.tracks[slot])
        finally:
            del self.leases[slot]

    async def rest(self, slot: int) -> None:
        """Wait before the next attempt if no desktop came up for the last one; the longer, the more often it was so."""
        times = self._failed.get(slot, 0)
        if times:
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_START)
            rule = self._rule
            failures = rule.tries + times - 1
            wait_seconds = backoff_seconds(failures, first_seconds=rule.backoff_seconds, max_seconds=rule.rest_seconds)
            await asyncio.sleep(wait_seconds)

    async def _start(self, slot: int, track: Track) -> AsyncEnv:
        for number in range(1, self._rule.tries + 1):
            track.enter(DesktopState.STARTING)
            try:
                async with asyncio.timeout(self._rule.start_seconds):
                    return await self._provider.start(slot)
            except EnvStartFailed as fault:
                last: EnvStartFailed = fault
            except TimeoutError:
                last = EnvStartTimedOut(f"not ready after {self._rule.start_seconds:g} s")
            count_failed_start(self._recorder, last)
            logger.debug("slot %d: start %d of %d failed: %s", slot, number, self._rule.tries, last)
            if number == self._rule.tries:
                raise EnvStartFailed(f"slot {slot}: {number} starts failed, the last one: {last}") from last
            track.enter(DesktopState.WAIT_START)
            await asyncio.sleep(backoff_seconds(number, first_seconds=self._rule.backoff_seconds))
        raise AssertionError("unreachable: the last try returns or raises")

    async def _close(self, env: AsyncEnv, track: Track) -> None:
        track.enter(DesktopState.CLOSING)
        try:
            async with asyncio.timeout(self._rule.close_seconds):
                await env.close()
        except TimeoutError:
            self._recorder.counts["fault/close"] += 1


def count_failed_start(recorder: Recorder, fault: EnvStartFailed) -> None:
    """Count one start that failed, and its cause."""
    recorder.counts["fault/start"] += 1
    recorder.counts[f"start_cause/{cause_of(fault)}"] += 1
