"""``RunEnd`` decides when a run ends before its time."""

from __future__ import annotations

import asyncio
from math import inf

from typing_extensions import override

from dartsim.config.sections.run import RunConfig
from dartsim.core.types import Version
from dartsim.observe import HELD_OUT, Instrument, Recorder, UpdateRecord
from dartsim.run.resume_point import ResumePoint


class RunEnd(Instrument):
    """Ends a run by its updates, its success rate or an alarm.

    Args:
        config: Says when.
    """

    def __init__(self, config: RunConfig) -> None:
        self._num_updates = config.updates
        self._target_success = inf if config.target_success is None else config.target_success
        self._fail_on_alarm = config.fail_on_alarm
        self._recorder: Recorder | None = None
        self.reached = asyncio.Event()
        self.alarm: str | None = None
        """Name of the alarm that ended the run."""

    def resume(self, origin: ResumePoint, version: Version) -> None:
        """Take into account where a resumed run begins: it may have crashed between its last update and its end."""
        last = origin.updates[-1] if not origin.longer and origin.updates else None
        done = self._num_updates is not None and version >= self._num_updates
        if done or (last is not None and self._is_target(last)):
            self.reached.set()

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        if record.update == self._num_updates or self._is_target(record):
            self.reached.set()

    @override
    def snapshot_taken(self) -> None:
        self._look_at_alarms()

    @override
    def time_advanced(self, now: float) -> None:
        self._look_at_alarms()

    def _look_at_alarms(self) -> None:
        if not self._fail_on_alarm or self._recorder is None:
            return
        standing = next((alarm for alarm in self._recorder.alarms if alarm.cleared is None), None)
        if standing is not None:
            self.alarm = self.alarm or standing.name
            self.reached.set()

    def _is_target(self, record: UpdateRecord) -> bool:
        """Return whether an update's weights were evaluated, and are good enough."""
        return record.metrics.get(HELD_OUT, 0.0) >= self._target_success
