"""The error tree. Each message names what was found and what was expected.

DartsimError
├── ConfigError            bad configuration, refused before anything starts
│   └── LayoutUnknown      the database has the tables of another version, or of another program
├── TaskFileError          a task file that cannot be used
├── EnvFault               a desktop failed: masked, the slot is served again
│   ├── EnvStartFailed     the desktop never came up
│   │   └── EnvStartTimedOut   not in time
│   └── EnvBroken          the desktop failed while an attempt used it
├── ScoreUnavailable       the evaluator failed: the attempt is masked, never scored 0
├── WorkerFault            an inference worker failed a request
│   └── WorkerRestarted    a restart killed the request; retry it on another worker
├── LearnerFault           an update failed; its batch goes back
│   ├── BatchUntrainable   nothing in its batch can change the weights; the batch is dropped
│   └── UpdateUncertain    it is unknown whether it happened; it is requested again with the same batch
├── StoreFault             the store could not keep or return something
│   ├── StoreFull          no space is left: free some, then resume the run
│   ├── TornFile           a file on disk is not what was written
│   └── TornRecord         a stored trajectory cannot be read back whole
├── PlugInFailed           a plug-in's code raised an error, or its rule made an impossible decision
├── NothingCollected       no success was collected: nothing was written
├── NothingTrained         a simulated run trained nothing
├── SimulationError        virtual time cannot go on
│   ├── Stalled            tasks wait and nothing is left that could wake them
│   ├── LimitReached       a virtual-time or event limit was hit
│   └── Forbidden          real I/O, threads or blocking waits in virtual time
└── InvariantViolated      a rule that must always hold did not
"""

from collections.abc import Awaitable, Callable, Iterable
from difflib import get_close_matches

from dartsim.core.words import clean

MAX_CAUSE_CHARACTERS = 200


class DartsimError(Exception):
    """Base of every error this package raises on purpose.

    Attributes:
        problem: What was found and what was wanted.
        fix: What to do about it, if known; the message includes it.
    """

    def __init__(self, problem: str = "", fix: str = "") -> None:
        super().__init__(f"{problem}: {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix


def cause_of(fault: BaseException) -> str:
    """Return the name under which a fault is counted."""
    return clean(str(getattr(fault, "cause", None) or type(fault).__name__)[:MAX_CAUSE_CHARACTERS])


class ConfigError(DartsimError):
    """The configuration cannot be run; raised before any work starts."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'NAME'?`` with the most similar known name, or nothing if none is similar."""
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_such(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name."""
    known = list(known)
    hint = did_you_mean(name, known)
    return ConfigError(f"there is no {kind} {name!r}{hint}{' There' if hint else '; there'} are: {', '.join(known)}")


class TaskFileError(DartsimError):
    """A task file is missing, is not JSON, or breaks OSWorld's schema."""


class EnvFault(DartsimError):
    """A fault of the environment side. Masks the attempt; never becomes a reward."""


class EnvStartFailed(EnvFault):
    """A desktop did not become ready."""


class EnvStartTimedOut(EnvStartFailed):
    """A desktop did not become ready in time."""

    cause = "start_timeout"


class EnvBroken(EnvFault):
    """A desktop failed while an attempt was using it."""


class ScoreUnavailable(DartsimError):
    """The evaluator could not produce a score; the attempt is masked with this cause."""


class WorkerFault(DartsimError):
    """An inference worker failed a request.

    Attributes:
        back: Set if the worker is down: an awaitable call that returns once it serves again, or only needs weights.
            None: the worker's other requests may succeed.
    """

    back: Callable[[], Awaitable[None]] | None = None


class WorkerRestarted(WorkerFault):
    """The worker was restarted under a live request, whose partial reply is lost."""


class LearnerFault(DartsimError):
    """An update did not finish. Its batch was not trained and is returned."""


class BatchUntrainable(LearnerFault):
    """The weights are unchanged: nothing in the batch can change them, or only to values that are not finite.

    The same batch would fail again, so it is dropped.
    """


class UpdateUncertain(LearnerFault):
    """An update was requested, and its result was lost: it may have happened.

    It is requested again with the same batch: a learner knows an update by its number, and returns a finished one
    without repeating it.
    """


class PlugInFailed(DartsimError):
    """A plug-in's code raised an error, whose line the message quotes, or made an impossible decision."""


class NothingCollected(DartsimError):
    """No success was collected, so nothing was written."""


class NothingTrained(DartsimError):
    """A simulated run trained nothing; the message names the cause.

    Attributes:
        result: The run's ``dartsim.api.Result``, if a single run was simulated.
    """

    result: object = None


class SimulationError(DartsimError):
    """Base of what stops a simulation."""


class Stalled(SimulationError):
    """Tasks wait, and no event is left that could wake them."""


class LimitReached(SimulationError):
    """A limit given to the simulation (virtual time, events, progress) was hit."""


class Forbidden(SimulationError):
    """Code asked for real time in virtual time."""


class InvariantViolated(DartsimError):
    """A rule of the design that must always hold was broken: a bug, not a fault."""


class StoreFault(DartsimError):
    """The store could not keep or return something; what it kept before is unchanged."""

    cause = "store_fault"


class StoreFull(StoreFault):
    """No space is left on the disk."""

    cause = "disk_full"


class TornFile(StoreFault):
    """A file is missing, incomplete, or was changed after it was written."""

    cause = "torn_file"


class TornRecord(StoreFault):
    """A trajectory's rows or files do not hold what was recorded."""

    cause = "torn_record"


class LayoutUnknown(ConfigError):
    """The database has tables of another version of dartsim, or of another program."""
