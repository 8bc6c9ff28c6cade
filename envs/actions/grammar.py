"""What a grammar is: a parser and a formatter that are inverse to each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dartsim.envs.actions.model import MAX_ACTIONS, Action


class MalformedAction(ValueError):
    """A text that is no action of the grammar; nothing of it is carried out."""


class Inexpressible(ValueError):
    """An action for which the grammar has no words."""


@dataclass(frozen=True)
class ActionGrammar(ABC):
    """A way to write actions, for a screen of a given size.

    For all actions that the grammar has words for, ``parse(format(actions)) == snapped(actions)``, where
    snapping moves positions to the nearest that can be written (nowhere, but in the grid of ``compact``).

    Attributes:
        width: Of the screen, pixels.
        height: Of the screen, pixels.
    """

    width: int
    height: int

    name: ClassVar[str]

    @abstractmethod
    def parse(self, text: str | Mapping[str, Any]) -> tuple[Action, ...]:
        """Read a text.

        Raises:
            MalformedAction: If it breaks the grammar anywhere.
        """

    @abstractmethod
    def format(self, actions: Sequence[Action]) -> str:
        """Write actions in the grammar's normal form.

        Raises:
            Inexpressible: If the grammar has no words for one of them.
        """

    def snap(self, x: int, y: int) -> tuple[int, int]:
        """Return the position nearest to a pixel that can be written."""
        return x, y


def limited(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions of one text as a tuple.

    Raises:
        MalformedAction: If they are too many.
    """
    if len(actions) > MAX_ACTIONS:
        raise MalformedAction(f"found {len(actions)} actions in one text, wanted at most {MAX_ACTIONS}")
    return tuple(actions)


def as_text(text: Any, name: str) -> str:
    """Return the text, if it is one.

    Raises:
        MalformedAction: If it is something else.
    """
    if not isinstance(text, str):
        raise MalformedAction(f"{name} wants a text, found {type(text).__name__}")
    return text
