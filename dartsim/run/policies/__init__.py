"""Policies: what modeled engines reply where no model acts. Another one is another module here, or a plug-in's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dartsim.core.registry import ComponentSection

if TYPE_CHECKING:
    import numpy as np

    from dartsim.core.types import Request, Task
    from dartsim.run.prepare import PreparedRun


class Policy:
    """Decides each action of an attempt; ``@register("policy", NAME)``, chosen by ``policy.agent.rule = NAME``.

    One policy serves all engines of a run. It learns nothing: weights have versions, and no content.

    Args:
        parameters: Its parameters.
        prepared: The run's configuration, with everything it names.
        rng: Its chance: a stream of the run's seed.

    Attributes:
        tasks: The tasks that are offered.
    """

    Parameters: ClassVar[type[ComponentSection]] = ComponentSection

    def __init__(self, parameters: Any, *, prepared: PreparedRun, rng: np.random.Generator) -> None:
        self.parameters = parameters
        self.tasks: Sequence[Task] = prepared.tasks
        self.rng = rng

    def act(self, request: Request) -> str:
        """Return the action of a turn: what the desktop's grammar reads, or ``WAIT``, ``DONE`` or ``FAIL``.

        Args:
            request: The attempt with its task, the turn (from 0), the observation, and the turns before.
        """
        raise NotImplementedError
