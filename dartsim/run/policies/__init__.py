"""Policies write the replies of modeled engines if no model acts. To add one, add a module here or a plug-in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dartsim.core.registry import ComponentSection

if TYPE_CHECKING:
    import numpy as np

    from dartsim.core.types import Request, Task
    from dartsim.run.prepared_run import PreparedRun


class Policy:
    """Decides each action of an attempt; ``@register("policy", NAME)``, chosen by ``policy.agent.rule = NAME``.

    One policy serves all engines of a run. It does not learn: weights have versions but no content.

    Args:
        parameters: Its parameters.
        prepared: The run's configuration, with everything it names.
        rng: Its random numbers: a stream of the run's seed.

    Attributes:
        tasks: The tasks of the run.
    """

    Parameters: ClassVar[type[ComponentSection]] = ComponentSection

    def __init__(self, parameters: Any, *, prepared: PreparedRun, rng: np.random.Generator) -> None:
        self.parameters = parameters
        self.tasks: Sequence[Task] = prepared.tasks
        self.rng = rng

    def act(self, request: Request) -> str:
        """Return the action of a turn: text in the desktop's grammar, or ``WAIT``, ``DONE`` or ``FAIL``.

        Args:
            request: The attempt with its task, the turn (from 0), the observation, and the turns before.
        """
        raise NotImplementedError
