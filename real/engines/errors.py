"""What goes wrong with an inference engine, as errors that are counted by their ``cause``.

WorkerFault
├── EngineRefused         nothing listens: the engine is down or starting
├── EngineHung            no whole answer within the time-out; the request was aborted
├── EngineLost            the connection broke before the answer was whole
├── EngineBadReply        an answer that makes no sense: a status, a shape, a token that is not allowed
├── EnginePaused          somebody else paused the engine, and did not resume it in time
├── EngineUnloaded        the last weight change failed; the engine serves nothing until one succeeds
├── EngineStartFailed     the engine's process did not become healthy
├── WeightsTorn           a folder of weights is not whole, or is of another model
├── WeightsRefused        the engine could not load the weights
├── WeightsUnconfirmed    the engine holds other weights than those it was given
└── WorkerRestarted
    ├── EngineRestarted   the request was killed by a planned restart
    ├── EngineDied        the request was killed by the end of the engine's process
    └── EngineAborted     somebody else aborted the request
"""

from __future__ import annotations

from typing import ClassVar

from dartsim.core.errors import WorkerFault, WorkerRestarted


class EngineFault(WorkerFault):
    """Base of the faults of an engine that was not restarted."""

    cause: ClassVar[str] = "engine_fault"


class EngineRefused(EngineFault):
    """Nothing listens at the engine's address. The request was not sent."""

    cause: ClassVar[str] = "engine_refused"


class EngineHung(EngineFault):
    """The engine did not answer in time."""

    cause: ClassVar[str] = "engine_hung"


class EngineLost(EngineFault):
    """The connection broke before the answer was whole."""

    cause: ClassVar[str] = "engine_lost"


class EngineBadReply(EngineFault):
    """The engine answered something that makes no sense.

    Attributes:
        status: HTTP status.
    """

    cause: ClassVar[str] = "engine_bad_reply"

    def __init__(self, message: str, *, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class EnginePaused(EngineFault):
    """The engine refuses new requests until it is resumed (HTTP 503)."""

    cause: ClassVar[str] = "engine_paused"


class EngineUnloaded(EngineFault):
    """The engine holds no weights that it may serve."""

    cause: ClassVar[str] = "engine_unloaded"


class EngineStartFailed(EngineFault):
    """The engine's process ended, or stayed unhealthy, before it served."""

    cause: ClassVar[str] = "engine_start_failed"


class WeightsTorn(EngineFault):
    """A folder of weights is not whole, or is of another model. The engine was not touched."""

    cause: ClassVar[str] = "weights_torn"


class WeightsRefused(EngineFault):
    """The engine could not load the weights; what it holds now is unknown."""

    cause: ClassVar[str] = "weights_refused"


class WeightsUnconfirmed(EngineFault):
    """The engine's checksums or version say that it holds other weights."""

    cause: ClassVar[str] = "weights_unconfirmed"


class EngineRestarted(WorkerRestarted):
    """The engine was restarted on purpose under a live request."""

    cause: ClassVar[str] = "engine_restarted"


class EngineDied(WorkerRestarted):
    """The engine's process ended under a live request."""

    cause: ClassVar[str] = "engine_died"


class EngineAborted(WorkerRestarted):
    """The engine ended the request before it was complete: it was paused in mode ``abort``, or told to abort it."""

    cause: ClassVar[str] = "engine_aborted"
