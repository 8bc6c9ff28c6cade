"""What goes wrong between the control plane and an actor, as faults of the ports, counted by their ``cause``.

DartsimError
├── PartLost                 the actor ended under a call; Ray starts it again
│   └── PartGone             the actor ended and is not started again
├── EnvStartFailed
│   └── HostLostAtStart      the desktop host ended while it started a desktop
├── EnvBroken
│   └── HostLost             the desktop host ended, and its desktops with it
├── WorkerFault
│   └── EngineHostLost       the actor of a worker ended
└── LearnerFault
    └── LearnerLost          the learner's actor ended under an update
"""

from __future__ import annotations

import pickle
from typing import ClassVar

from dartsim.core.errors import (
    ConfigError,
    DartsimError,
    EnvBroken,
    EnvFault,
    EnvStartFailed,
    EnvStartTimedOut,
    LearnerFault,
    ScoreUnavailable,
    TaskFileError,
    WorkerFault,
    WorkerRestarted,
    cause_of,
)


class PartLost(DartsimError):
    """An actor ended, or its node did, while it was asked for something; what it held is lost."""

    cause: ClassVar[str] = "part_lost"


class PartGone(PartLost):
    """An actor ended and Ray does not start it again: its restarts are used up, or it was killed for good."""

    cause: ClassVar[str] = "part_gone"


class HostLostAtStart(EnvStartFailed):
    """The desktop host ended before the desktop was up."""

    cause: ClassVar[str] = "host_lost"


class HostLost(EnvBroken):
    """The desktop host ended, and the desktop with it."""

    cause: ClassVar[str] = "host_lost"


class EngineHostLost(WorkerFault):
    """The actor of a worker ended; its requests are lost."""

    cause: ClassVar[str] = "engine_host_lost"


class LearnerLost(LearnerFault):
    """The learner's actor ended; the update did not happen, and the next one begins where it began."""

    cause: ClassVar[str] = "learner_lost"


_KINDS: tuple[type[DartsimError], ...] = (
    EnvStartTimedOut,
    EnvStartFailed,
    EnvBroken,
    EnvFault,
    ScoreUnavailable,
    WorkerRestarted,
    WorkerFault,
    LearnerFault,
    TaskFileError,
    ConfigError,
    DartsimError,
)
"""The errors that the control plane tells apart, the special ones first."""


def portable(error: DartsimError) -> DartsimError:
    """Return an error that survives the way to another process: itself, or the nearest kind with text and cause.

    The classes of an actor's own packages may be missing where the control plane runs.
    """
    if isinstance(error, WorkerFault):
        error.back = None  # means something only where it was raised
    try:
        again = pickle.loads(pickle.dumps(error))
    except Exception:
        again = None
    if type(again) is type(error):
        return error
    kind = next(kind for kind in _KINDS if isinstance(error, kind))
    plain = kind(str(error))
    plain.cause = cause_of(error)  # type: ignore[attr-defined]
    return plain
