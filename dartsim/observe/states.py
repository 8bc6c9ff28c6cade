"""The states that every second of a desktop, a worker and the trainer is counted in.

Each part is in exactly one state at a time, so that its states' times add up to 100 % of the run.
"""

from __future__ import annotations

from enum import IntEnum


class DesktopState(IntEnum):
    """What a desktop slot does."""

    STARTING = 0
    """A desktop boots."""
    SETUP = 1
    """The task is being set up on it."""
    GENERATING = 2
    """Waits for a reply while the inference pool serves."""
    SYNC_WAIT = 3
    """Waits for a reply while the whole inference pool is stopped for a weight change."""
    TURN_WAIT = 4
    """Waits for the other desktops of a lock-step turn."""
    ACTING = 5
    """Carries out an action, until the next observation."""
    EVALUATING = 6
    """Scores the attempt."""
    CLOSING = 7
    """Is torn down."""
    WAIT_ADMISSION = 8
    """Free, but the admission rule lets no further attempt start."""
    WAIT_UNIT = 9
    """Free, but the other attempts of its sampling unit (task or batch) still run."""
    WAIT_START = 10
    """Waits before another try to start a desktop, after a failed one."""
    OFF = 11
    """Not provisioned: before the slot's start or after the run's end."""
    READY = 12
    """A spare that was booted ahead, waiting for a slot."""


INTERACTING = (DesktopState.GENERATING, DesktopState.TURN_WAIT, DesktopState.ACTING)
"""States between the first request and the last observation of an attempt, less waiting for a stopped
pool: the numerator of environment utilization."""


class WorkerState(IntEnum):
    """What an inference worker does."""

    IDLE = 0
    """Up, without a request."""
    BUSY = 1
    """Up, with at least one live request (what nvidia-smi shows as utilized)."""
    DRAINING = 2
    """Takes no new request and still has live ones."""
    LOADING = 3
    """Weights are being changed."""
    DOWN = 4
    """Failed, waiting for another try."""
    OFF = 5
    """Before its start or after the run's end."""


SERVING = (WorkerState.BUSY, WorkerState.DRAINING)
"""States with at least one live request: the numerator of GPU utilization."""


class TrainerState(IntEnum):
    """What the trainer does."""

    WAIT_DATA = 0
    """Waits for a batch."""
    TRAINING = 1
    """Runs an update."""
    WAIT_SYNC = 2
    """Waits until the workers have the new weights."""
    DOWN = 3
    """Failed, waiting for another try."""
    OFF = 4
    """Before its start or after the run's end."""
    WAIT_PUBLISH = 5
    """Has new weights that may not be published before the attempts that run have ended."""


class PhaseState(IntEnum):
    """Whether rollout goes on anywhere in the cluster."""

    QUIET = 0
    """No attempt is running."""
    ROLLOUT = 1
    """At least one attempt is running."""
