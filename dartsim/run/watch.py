"""``Watch``: watches a run, raises its alarms, and writes ``status.json`` into its directory.

It runs after snapshots and when time has advanced, so it neither wakes the loop nor changes the run (except that with
``run.fail_on_alarm`` an alarm ends it). The lock on the run directory tells a reader whether the run is still going or
its process has crashed.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from dartsim.core.secrets import redact
from dartsim.observe import Instrument, Recorder
from dartsim.observe.alarm_rules import Alarms
from dartsim.observe.recording import EARLY_WRITES
from dartsim.observe.rundir import FORMAT, STATUS, write_text
from dartsim.run.verdict import verdict_so_far

if TYPE_CHECKING:
    from dartsim.config import Config

logger = logging.getLogger(__name__)

VIRTUAL_SPACING, REAL_SPACING = 60.0, 2.0
"""Shortest time between two checks, seconds of the run's time."""
WRITES = 100
"""Most status files that a run in virtual time writes because of snapshots."""


def write_spacing(config: Config) -> float:
    """Return the time between two writes of a run's files for its viewers, seconds of the run's time."""
    seconds, virtual = config.run.hours * 3600.0, config.backend.virtual
    return max(min(VIRTUAL_SPACING if virtual else REAL_SPACING, seconds / 100.0), seconds / WRITES if virtual else 0.0)


class Watch(Instrument):
    """Watches one run; a context manager around it."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self.period_seconds = VIRTUAL_SPACING if config.backend.virtual else REAL_SPACING
        self._check_spacing = min(self.period_seconds, config.run.hours * 36.0)
        self._write_spacing = write_spacing(config)
        self._recorder: Recorder | None = None
        self._alarms: Alarms | None = None
        self._checked = self._written = float("-inf")
        self._components: dict[str, Any] = {"as_of_seconds": 0.0, "components": []}
        self.interrupted = False
        """Whether the user stopped the run."""
        self.failure: str | None = None
        """Why the run failed, if it did."""
        self._verdict: str | None = None

    def __enter__(self) -> Self:
        self._write("starting")
        return self

    @override
    def run_started(self, recorder: Recorder) -> None:
        config = self._config
        curation = config.curation
        self._recorder = recorder
        self._alarms = Alarms(
            recorder,
            batch_attempts=curation.batch.min_groups * curation.attempts.group_size,
            free_bytes=self._free_bytes,
        )
        self.look()  # clears alarms of earlier lives that no longer hold

    @override
    def snapshot_taken(self) -> None:
        self.look()

    @override
    def time_advanced(self, now: float) -> None:
        if self._recorder is not None:
            self.look(now - self._recorder.started)

    def look(self, now: float | None = None) -> None:
        """Check alarms and write the status, at most once per spacing; ``now``: the run's time, seconds."""
        recorder, alarms = self._recorder, self._alarms
        if recorder is None or alarms is None:
            return
        now = recorder.now if now is None else now
        if now - self._checked < self._check_spacing:
            return
        self._checked = now
        new = alarms.look(now + recorder.started)
        for alarm in new:
            logger.warning("alarm: %s", alarm.text())
        if new or now - self._written >= min(self._write_spacing, max(self._check_spacing, now / EARLY_WRITES)):
            self._written = now
            components = [status.as_json() for status in recorder.component_statuses()]
            self._verdict = verdict_so_far(self._config, recorder)
            self._components = {"as_of_seconds": round(now, 3), "components": components}
            self._write("running")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        interrupted = self.interrupted or isinstance(error, (KeyboardInterrupt, SystemExit))
        if error is not None:
            self.failure = redact(f"{type(error).__name__}: {error}")
        self._write("interrupted" if interrupted else "failed" if self.failure else "finished")

    def _write(self, state: str) -> None:
        """Write the status; a full disk does not end the run."""
        config, recorder = self._config, self._recorder
        status: dict[str, Any] = {
            "format": FORMAT,
            "state": state,
            "name": config.name,
            "preset": config.preset,
            "seed": config.run.seed,
            "clock": "virtual" if config.backend.virtual else "real",
            "run_seconds": 0.0 if recorder is None else round(max(recorder.now, self._checked), 3),
            "of_seconds": config.run.hours * 3600.0,
            "error": self.failure,
            "verdict": self._verdict,
            "alarms": [] if recorder is None else [alarm.as_json() for alarm in recorder.alarms],
            "counts": {} if recorder is None else _counts(recorder),
            **self._components,
        }
        try:
            write_text(self._folder / STATUS, json.dumps(status, separators=(",", ":"), allow_nan=False) + "\n")
        except OSError as fault:
            logger.warning("%s could not be written: %s", STATUS, fault.strerror)

    def _free_bytes(self) -> int | None:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return None


def _counts(recorder: Recorder) -> dict[str, int]:
    shown = ("attempts", "trajectories", "updates", "trained_trajectories", "trained_turns")
    counts = {name: int(recorder.counts[name]) for name in shown}
    return counts | {
        name: int(n)
        for name, n in sorted(recorder.counts.items())
        if name.startswith(("dropped/", "fault/", "ending/cancelled"))
    }
