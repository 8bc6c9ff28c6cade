"""``Episode``: what an attempt has come to: its task, what was said last, how often that made no sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartsim.core.types import Task
from dartsim.envs.actions import Action, Click, make_grammar
from dartsim.envs.base import DONE, FAIL, WAIT
from dartsim.envs.reading import ending, read
from dartsim.real.osworld.hands import placing, snippets
from dartsim.real.osworld.settings import DesktopSettings


class Episode:
    """The book-keeping of one attempt, the same as the mock desktop's.

    Attributes:
        task: What is to be done.
        turns: Actions so far.
        malformed: Actions so far that made no sense.
        action_errors: Errors of Python so far, with ``raw_code``.
        last_actions: What the last text was read as; empty for a malformed one.
        last_action: The last text, or DONE or FAIL if it said so in the grammar's words.
        over: Whether the last action was the last of the episode.
    """

    def __init__(self, task: Task, settings: DesktopSettings) -> None:
        self.task = task
        self.turns = 0
        self.malformed = 0
        self.action_errors = 0
        self.last_actions: tuple[Action, ...] = ()
        self.last_action: str | None = None
        self.over = False
        self._settings = settings
        self._grammar = make_grammar(settings.grammar, *settings.size, **settings.grammar_options)
        self._place = placing(settings.size, settings.screen)

    def note(self, action: str | Mapping[str, Any]) -> list[str | None] | None:
        """Write an action down and return its code, in parts between which to wait (None).

        Returns None if there is nothing to do: the action makes no sense, or only says that the episode is over.
        """
        actions = read(self._grammar, action)
        raw = self._raw(action)
        self.turns += 1
        if actions is None and raw is None:
            self.malformed += 1
        self.last_actions = actions or ()
        end = ending(self.last_actions)
        self.last_action = end or str(action)  # evaluators know the common words, whatever the grammar's own are
        clicked = any(isinstance(each, Click) for each in self.last_actions)
        self.over = end is not None or (clicked and self._ends_on_click())
        if raw is not None:
            return [raw]
        return snippets(self.last_actions, self._place, key_seconds=self._settings.key_seconds) or None

    def _raw(self, action: str | Mapping[str, Any]) -> str | None:
        """Return the code to run as it is: with ``raw_code``, any text but the common words."""
        if not self._settings.raw_code or not isinstance(action, str) or action.strip() in (WAIT, DONE, FAIL):
            return None
        return action

    def _ends_on_click(self) -> bool:
        if self._settings.auto_done is not None:
            return self._settings.auto_done
        return bool(self.task.spec.get("auto_done", False))
