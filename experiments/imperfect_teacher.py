"""A teacher that errs: the oracle of the mock desktop, some of whose actions are mistakes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dartsim.config import Config
from dartsim.core.types import Task
from dartsim.envs.actions.model import Click
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import oracle_text
from dartsim.real.learners.warm_start import Demonstration
from dartsim.run.content import desktop_maker
from dartsim.run.demonstrations import history_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistakes:
    """How often a teacher errs; it continues from the state after a mistake.

    Attributes:
        by_chance: Share of its decisions that are drawn by chance. A decision is a click that turns a page, or the end.
        beside: Share of the other decisions that are clicks on the cell to the right of the right one (at the edge the
            first of the row).
        slips: Share of all other actions that are clicks drawn by chance.
    """

    by_chance: float = 0.0
    beside: float = 0.0
    slips: float = 0.0


def imperfect_turns(
    config: Config, task: Task, seed: int, mistakes: Mistakes, rng: np.random.Generator
) -> list[Demonstration]:
    """Return a teacher's observations and actions: the oracle's, some of them replaced by mistakes."""
    desktop = desktop_maker(config)()
    assert isinstance(desktop, MockDesktop)
    desktop.begin(task, seed)
    turns: list[Demonstration] = []
    over = False
    while not over and len(turns) < config.rollout.max_turns:
        action = _erring(desktop, oracle_text(desktop), config.policy.grid, mistakes, rng)
        turns.append(Demonstration(desktop.observe(), history_of(turns), action))
        over = desktop.act(action)
    return turns


def _erring(desktop: MockDesktop, action: str, grid: int, mistakes: Mistakes, rng: np.random.Generator) -> str:
    """Return an action of the oracle, or a mistake instead."""
    actions = desktop.read(action) or ()
    decides = not any(isinstance(each, Click) and not _turns_page(desktop, each) for each in actions)
    column, row = rng.integers(grid, size=2).tolist()
    if rng.random() < (mistakes.by_chance if decides else mistakes.slips):
        return f"click {column} {row}"
    if decides and action.startswith("click ") and rng.random() < mistakes.beside:
        _, across, down = action.split()
        return f"click {(int(across) + 1) % grid} {down}"
    return action


def _turns_page(desktop: MockDesktop, click: Click) -> bool:
    """Return whether a click is on a button that leads to the next page."""
    assert click.x is not None
    assert click.y is not None
    target = desktop.desktop.target(click.x, click.y)
    return (
        target.window is not None
        and target.part == "widget"
        and (target.window.placed[target.number].widget.command == "next")
    )
