"""What can go wrong between a task file and its score, apart from the desktop's server itself.

Each failure says its ``cause`` in one word, by which faults are counted.
"""

from __future__ import annotations

from dartsim.core.errors import DartsimError, EnvBroken, ScoreUnavailable


class FetchFailed(DartsimError):
    """A file that a task names could not be had on this host."""


class SetupFailed(EnvBroken):
    """A set-up step of a task failed: the attempt did not begin where the task says.

    Attributes:
        cause: ``setup_failed``, ``setup_download_failed``, ``setup_tabs_failed`` or ``setup_until_never_met``.
    """

    def __init__(self, message: str, *, cause: str = "setup_failed") -> None:
        super().__init__(message)
        self.cause = cause


class Unscored(ScoreUnavailable):
    """The state of a desktop could not be turned into a score.

    Attributes:
        cause: ``getter_failed``, ``getter_unavailable``, ``gold_download_failed``, ``metric_failed``,
            ``metric_unavailable``, ``score_out_of_range``, ``score_timeout``, ``evaluator_died``,
            ``evaluator_timeout`` or ``vm_unreachable`` (seen by the evaluator process).
    """

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause
