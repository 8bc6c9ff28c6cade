"""Faults of an inference engine, counted by their ``cause``.

WorkerFault
├── EngineRefused         nothing listens: the engine is down or starting; the request was not sent
├── EngineHung            no complete answer in time; the request was aborted
├── EngineLost            the connection broke before the answer was complete
├── EngineBadReply        an answer that makes no sense: a status, a shape, a token that is not allowed
├── EnginePaused          another client paused the engine and did not resume it in time (HTTP 503)
├── EngineUnloaded        the last weight change failed; the engine serves nothing until one succeeds
├── EngineStartFailed     the engine's process ended or stayed unhealthy before it served
├── WeightsTorn           a folder of weights is incomplete or of another model; the engine was not touched
├── WeightsRefused        the engine could not load the weights; its present ones are unknown
├── WeightsUnconfirmed    the engine's checksums or version say that it has other weights
└── WorkerRestarted
    ├── EngineRestarted   a planned restart ended the request
    ├── EngineDied        the engine's process ended under the request
    └── EngineAborted     another client aborted the request, or paused the engine in mode ``abort``
"""

from __future__ import annotations

from typing import ClassVar

from dartsim.core.errors import WorkerFault, WorkerRestarted


class EngineFault(WorkerFault):
    """A fault of an engine that was not restarted."""

    cause: ClassVar[str] = "engine_fault"


class EngineRefused(EngineFault):
    """Nothing listens at the engine's address."""

    cause = "engine_refused"


class EngineHung(EngineFault):
    """The engine did not answer in time."""

    cause = "engine_hung"


class EngineLost(EngineFault):
    """The connection broke before the answer was complete."""

    cause = "engine_lost"


class EngineBadReply(EngineFault):
    """The engine answered something that makes no sense; ``status`` is the HTTP status."""

    cause = "engine_bad_reply"

    def __init__(self, message: str, *, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class EnginePaused(EngineFault):
    """The engine refuses new requests until it is resumed."""

    cause = "engine_paused"


class EngineUnloaded(EngineFault):
    """The engine has no weights that it may serve."""

    cause = "engine_unloaded"


class EngineStartFailed(EngineFault):
    """The engine did not come up."""

    cause = "engine_start_failed"


class WeightsTorn(EngineFault):
    """A folder of weights is incomplete or of another model."""

    cause = "weights_torn"


class WeightsRefused(EngineFault):
    """The engine could not load the weights."""

    cause = "weights_refused"


class WeightsUnconfirmed(EngineFault):
    """The engine has other weights than it was given."""

    cause = "weights_unconfirmed"


class EngineRestarted(WorkerRestarted):
    """A planned restart ended the request."""

    cause: ClassVar[str] = "engine_restarted"


class EngineDied(WorkerRestarted):
    """The engine's process ended under the request."""

    cause: ClassVar[str] = "engine_died"


class EngineAborted(WorkerRestarted):
    """The engine ended the request before it was complete."""

    cause: ClassVar[str] = "engine_aborted"
