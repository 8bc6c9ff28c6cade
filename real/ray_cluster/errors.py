"""Faults of actors, as faults of the ports, counted by their ``cause``.

DartsimError
├── PartLost                 the actor or its node ended under a call; Ray restarts it without its state
│   └── PartGone             the actor ended for good: its restarts are used up, or it was killed
├── EnvStartFailed
│   └── HostLostAtStart      the desktop host ended while a desktop started
├── EnvBroken
│   └── HostLost             the desktop host ended, and its desktops with it
├── WorkerFault
│   └── EngineHostLost       the actor of a worker ended
└── LearnerFault
    └── LearnerLost          the learner's actor ended; the update did not happen, and is done again
"""

from __future__ import annotations

import pickle
from typing import ClassVar

from dartsim.core.errors import (
    BatchUntrainable,
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
    cause: ClassVar[str] = "part_lost"


class PartGone(PartLost):
    cause: ClassVar[str] = "part_gone"


class HostLostAtStart(EnvStartFailed):
    cause: ClassVar[str] = "host_lost"


class HostLost(EnvBroken):
    cause: ClassVar[str] = "host_lost"


class EngineHostLost(WorkerFault):
    cause: ClassVar[str] = "engine_host_lost"


class LearnerLost(LearnerFault):
    cause: ClassVar[str] = "learner_lost"


_KINDS: tuple[type[DartsimError], ...] = (
    EnvStartTimedOut,
    EnvStartFailed,
    EnvBroken,
    EnvFault,
    ScoreUnavailable,
    WorkerRestarted,
    WorkerFault,
    BatchUntrainable,
    LearnerFault,
    TaskFileError,
    ConfigError,
    DartsimError,
)
"""The errors that the control plane distinguishes, the most specific first."""


def portable(error: DartsimError) -> DartsimError:
    """Return an error that can be sent to another process: itself, or the nearest known kind with its text and cause.

    The classes of an actor's packages may be missing where the control plane runs.
    """
    if isinstance(error, WorkerFault):
        error.back = None  # only valid where it was raised
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
