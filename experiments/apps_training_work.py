"""How ``experiments.apps_training`` makes its base model: a teacher plays, and a tiny model learns from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dartsim.config import Config
from dartsim.core.errors import ConfigError, EnvFault, ScoreUnavailable
from dartsim.core.types import Observation, Task
from dartsim.envs.base import WAIT
from dartsim.real.desktop.tasks.playing import ScriptedAttempt, play
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.learners.warm_start import Demonstration, WarmStart, warm_start
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.scoring.evaluator_venv import default_home
from dartsim.real.vlm import build
from dartsim.real.vlm.model import one_thread
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.demonstrations import history_of
from dartsim.run.prepare import prepare
from experiments.apps_training_solutions import SOLUTIONS, replies
from experiments.osworld_apps_work import apps_desktops

logger = logging.getLogger(__name__)

MAX_PIXELS = 448 * 252
"""What the model's processor leaves of a screenshot."""
PLAYS, MISTAKES = 4, 0.3
"""Times that the teacher plays each task, and how often it makes a mistake before an action, but for the first time."""
ERRS = 0.5
"""Share of the replies that the base model learns last which are drawn by chance."""
STEPS, ERRING_STEPS = 200, 40
"""Supervised steps of the base model: on the right replies, and on those with replies by chance."""


class Played(NamedTuple):
    """What a teacher did at a task, and which of its actions were mistakes."""

    task: Task
    attempt: ScriptedAttempt
    mistakes: frozenset[int]


def with_mistakes(solution: Sequence[str], rate: float, rng: np.random.Generator) -> tuple[list[str], frozenset[int]]:
    """Return a solution with replies by chance before some of its actions, and the places of these."""
    actions: list[str] = []
    mistakes: set[int] = set()
    for action in solution:
        if rng.random() < rate:
            mistakes.add(len(actions))
            actions.append(str(rng.choice([reply for reply in replies() if reply != "done"])))
        actions.append(action)
    return actions, frozenset(mistakes)


async def played(settings: Config, folder: Path) -> list[Played]:
    """Play the tasks on real desktops, and return what solved them; not every mistake can be mended.

    Raises:
        ConfigError: If a task was never solved.
    """
    name, options = settings.policy.action_grammar
    rng = np.random.default_rng(settings.run.seed)
    tasks = prepare(settings).tasks
    plans = iter(
        [
            (task, *with_mistakes(SOLUTIONS[f"{task.domain}/{task.id}"], MISTAKES if number else 0.0, rng))
            for task in tasks
            for number in range(PLAYS)
        ]
    )
    solved: list[Played] = []
    desktop = DesktopSettings(grammar=name, grammar_options=options)
    async with apps_desktops(folder, default_home(), desktop) as (provider, _):

        async def play_some(slot: int) -> None:
            for task, actions, mistakes in plans:
                try:
                    attempt = await play(provider, task, actions, slot=slot)
                except (EnvFault, ScoreUnavailable) as fault:
                    logger.warning("%s/%s: %s", task.domain, task.id, fault)
                    continue
                if attempt.score == 1.0:
                    solved.append(Played(task, attempt, mistakes))

        await asyncio.gather(*map(play_some, range(settings.rollout.num_envs)))
    if unsolved := {task.id for task in tasks} - {each.task.id for each in solved}:
        raise ConfigError(f"the solutions of {', '.join(sorted(unsolved))} do not score 1 on this machine")
    return solved


def lessons(shown: Sequence[Played]) -> list[Demonstration]:
    """Return the right reply at each turn, after what the teacher really did before it."""
    turns: list[Demonstration] = []
    for task, attempt, mistakes in shown:
        planned, wrong = count(), list[bool]()
        for action in attempt.actions:  # a WAIT, which the player added, belongs to the action before it
            wrong.append(wrong[-1] if action == WAIT else next(planned) in mistakes)
        done: list[Demonstration] = []
        for number, (frame, action) in enumerate(zip(attempt.frames, attempt.actions, strict=False)):
            seen, said = Observation(frame, task.instruction), "wait" if action == WAIT else action
            right = next(a for a, bad in zip(attempt.actions[number:], wrong[number:], strict=True) if not bad)
            turns.append(Demonstration(seen, history_of(done), "wait" if right == WAIT else right))
            done.append(Demonstration(seen, (), said))
    return turns


def by_chance(turns: Sequence[Demonstration], rng: np.random.Generator) -> list[Demonstration]:
    """Return turns some of whose replies are drawn by chance."""
    return [turn._replace(action=str(rng.choice(replies()))) if rng.random() < ERRS else turn for turn in turns]


def make_base(settings: Config, shown: Sequence[Played], folder: Path, *, quick: bool = False) -> Path:
    """Make a model that has learned the tasks and errs, and return its folder."""
    one_thread()
    seed = settings.run.seed
    tiny = vlm_config(settings)
    words = sorted({f" {word}" for each in shown for word in each.task.instruction.split()})
    vlm = build(replace(tiny, max_pixels=MAX_PIXELS, words=(*tiny.words, *words)), seed=seed)
    right, rng = lessons(shown), np.random.default_rng(seed)
    common = WarmStart(batch=32, seed=seed)
    steps = (STEPS, ERRING_STEPS) if not quick else (4, 4)
    warm_start(vlm, right, replace(common, steps=steps[0], learning_rate=2e-3))
    erring = [turn for _ in range(4) for turn in by_chance(right, rng)]
    warm_start(vlm, erring, replace(common, steps=steps[1], learning_rate=1e-3))
    folder.mkdir(parents=True, exist_ok=True)
    TorchLearner(vlm, settings.trainer, seed=seed).save_model(folder)
    return folder
