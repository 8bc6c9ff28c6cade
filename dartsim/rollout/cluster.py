"""``EnvCluster``: desktops, leased to one attempt at a time and replaced after it."""

from __future__ import annotations

import asyncio
import logging

from dartsim.config.sections.rollout import RolloutConfig
from dartsim.core.answers import close_desktop, start_desktop, text_of
from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import EnvStartFailed, InvariantViolated, cause_of
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.types import Attempt
from dartsim.observe import DesktopState, Recorder, Track
from dartsim.rollout.warm import START_BACKOFF_SECONDS

logger = logging.getLogger(__name__)

START_TRIES = 3
"""Starts of a desktop before its attempt is given up."""


class EnvCluster:
    """Slots for desktops. Each attempt gets a fresh desktop, as in DART.

    Invariants: a slot serves one attempt at a time; every started desktop is closed, whatever happens to its attempt; a
    desktop that fails to start costs at most its attempt, never its slot.

    Args:
        provider: Starts desktops.
        config: Number of slots, and time limits.
        recorder: Records states and faults.
        start_tries: Starts of a desktop before its attempt is given up.
        rest_seconds: Longest pause of a slot whose desktops fail to start: a lost host would otherwise use up attempt
            after attempt, and spoil their groups.
    """

    def __init__(
        self,
        provider: EnvProvider,
        config: RolloutConfig,
        recorder: Recorder,
        *,
        start_tries: int = START_TRIES,
        rest_seconds: float = 300.0,
    ) -> None:
        self.provider = provider
        self._config = config
        self._recorder = recorder
        self._start_tries = start_tries
        self._rest_seconds = rest_seconds
        self.num_envs = config.num_envs
        self.leases: dict[int, Attempt] = {}
        """The attempt that each leased slot serves."""
        self._lent: set[int] = set()
        """Ids of the desktops that slots use."""
        self._failed: dict[int, int] = {}
        """Number of attempts in a row for which every start failed, by slot."""

    async def lease(self, slot: int, attempt: Attempt) -> AsyncEnv:
        """Lease the slot to an attempt and start a desktop for it, until ``give_back``.

        Raises:
            EnvStartFailed: If every try to start one failed.
            InvariantViolated: If the slot serves an attempt already.
        """
        if slot in self.leases:
            raise InvariantViolated(
                f"slot {slot} serves attempt {self.leases[slot].id} and was asked to serve attempt {attempt.id} as well"
            )
        self.leases[slot] = attempt
        self._recorder.slots[attempt.id] = slot
        try:
            env = await self._start(slot, self._recorder.desktops.tracks[slot])
        except BaseException as error:
            del self.leases[slot]
            if isinstance(error, EnvStartFailed):
                self._failed[slot] = self._failed.get(slot, 0) + 1
            raise
        self._failed.pop(slot, None)
        self._lent.add(id(env))
        return env

    async def give_back(self, slot: int, env: AsyncEnv) -> None:
        """Close the slot's desktop and end its lease."""
        try:
            await self._close(env, self._recorder.desktops.tracks[slot])
        finally:
            self._lent.discard(id(env))
            del self.leases[slot]

    async def rest(self, slot: int) -> None:
        """Pause before the next attempt if no desktop started for the last ones, longer each time."""
        times = self._failed.get(slot, 0)
        if times:
            self._recorder.desktops.tracks[slot].enter(DesktopState.WAIT_START)
            failures = self._start_tries + times - 1
            wait = backoff_seconds(failures, first_seconds=START_BACKOFF_SECONDS, max_seconds=self._rest_seconds)
            await asyncio.sleep(wait)

    async def _start(self, slot: int, track: Track) -> AsyncEnv:
        config = self._config
        number = 1
        while True:
            track.enter(DesktopState.STARTING)
            try:
                env = await start_desktop(self.provider, slot, config.limits.start_seconds)
                if id(env) in self._lent:
                    raise EnvStartFailed("the start returned a desktop that another slot uses")
                return env
            except EnvStartFailed as fault:
                last = fault
            self._recorder.start_failed(cause_of(last), text_of(last))
            logger.debug("slot %d: start %d of %d failed: %s", slot, number, self._start_tries, last)
            if number == self._start_tries:
                raise EnvStartFailed(f"slot {slot}: {number} starts failed, the last one: {last}") from last
            track.enter(DesktopState.WAIT_START)
            await asyncio.sleep(backoff_seconds(number, first_seconds=START_BACKOFF_SECONDS))
            number += 1

    async def _close(self, env: AsyncEnv, track: Track) -> None:
        track.enter(DesktopState.CLOSING)
        await close_desktop(env, self._config.limits.close_seconds, self._recorder.counts)
