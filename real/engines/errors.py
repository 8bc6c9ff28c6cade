"""Faults of an inference engine, counted by their ``cause``.

WorkerFault
├── EngineRefused         nothing listens: the engine is down or starting; the request was not sent
│   └── EngineUnreachable no connection in time: its machine is down, or the network; the request was not sent
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
    cause: ClassVar[str] = "engine_fault"


class EngineRefused(EngineFault):
    cause = "engine_refused"


class EngineUnreachable(EngineRefused):
    cause = "engine_unreachable"


class EngineHung(EngineFault):
    cause = "engine_hung"


class EngineLost(EngineFault):
    cause = "engine_lost"


class EngineBadReply(EngineFault):
    """``retry_after``: how long the engine asks to be left alone, seconds."""

    cause = "engine_bad_reply"
    retry_after = 0.0

    def __init__(self, message: str, *, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class EnginePaused(EngineFault):
    cause = "engine_paused"


class EngineUnloaded(EngineFault):
    cause = "engine_unloaded"


class EngineStartFailed(EngineFault):
    cause = "engine_start_failed"


class WeightsTorn(EngineFault):
    cause = "weights_torn"


class WeightsRefused(EngineFault):
    cause = "weights_refused"


class WeightsUnconfirmed(EngineFault):
    cause = "weights_unconfirmed"


class EngineRestarted(WorkerRestarted):
    cause: ClassVar[str] = "engine_restarted"


class EngineDied(WorkerRestarted):
    cause: ClassVar[str] = "engine_died"


class EngineAborted(WorkerRestarted):
    cause: ClassVar[str] = "engine_aborted"
