"""Successes from before a run: the oracle's, and those of a file. The model adds missing log-probabilities."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.rewards import reaches
from dartsim.core.types import Attempt, Ending, Reply, Task, Trajectory, Turn, Turns
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import oracle_text
from dartsim.real.learners.warm_start import Demonstration
from dartsim.real.pool_files import PoolFile, read_pool, token_meaning
from dartsim.real.vlm import Vlm
from dartsim.real.vlm.sampling import score_reply
from dartsim.run.content import desktop_maker
from dartsim.run.prepared_run import PreparedRun

logger = logging.getLogger(__name__)

ORACLE_TURNS = 200
"""Longest demonstration, turns."""


def oracle_turns(config: Config, task: Task, seed: int) -> list[Demonstration] | None:
    """Return the oracle's observations and actions; None if it did not solve the task."""
    desktop = desktop_maker(config)()
    assert isinstance(desktop, MockDesktop)
    desktop.begin(task, seed)
    turns: list[Demonstration] = []
    over = False
    while not over and len(turns) < ORACLE_TURNS:
        observation, action = desktop.observe(), oracle_text(desktop)
        turns.append(Demonstration(observation, history_of(turns), action))
        over = desktop.act(action)
    return turns if reaches(desktop.evaluate(), 1.0) else None


def history_of(turns: Sequence[Demonstration]) -> list[Turn]:
    """Return demonstrated turns as turns of an attempt."""
    return [Turn(turn.observation, Reply(turn.action, 0, 0, -1, 0, 0)) for turn in turns]


def demonstrate(config: Config, task: Task, number: int, vlm: Vlm) -> Trajectory | None:
    """Return the oracle's success at a task in the model's tokens, without log-probabilities.

    None if the oracle did not solve it, or its actions are not in the model's grammar.
    """
    turns: list[Turn] = []
    for shown in oracle_turns(config, task, number) or ():
        try:
            tokens = vlm.grammar.tokens(shown.action)
        except ValueError:
            return None
        turns.append(Turn(shown.observation, Reply(shown.action, 0, 0, -1, 0, len(tokens), tokens)))
    if not turns:
        return None
    attempt = Attempt(-1 - number, task, -1, number, number, len(turns), 0)
    return Trajectory(attempt, Turns(turns), Ending.DONE, 1.0, None, 0.0, 0.0)


def scored(success: Trajectory, vlm: Vlm) -> Trajectory:
    """Return a success with log-probabilities: its own, or, if it has none, those of the model."""
    turns: list[Turn] = []
    for seen, reply in success.turns:
        if reply.logprobs is not None:
            turns.append(Turn(seen, reply))
            continue
        written = score_reply(vlm, vlm.prompts.build(seen, turns), [int(token) for token in reply.tokens])
        turns.append(Turn(seen, reply._replace(tokens=written[0], logprobs=written[1], entropies=written[2])))
    return replace(success, turns=Turns(turns))


def read_successes(folder: Path, prepared: PreparedRun, vlm: Vlm) -> PoolFile:
    """Read the successes of a configuration's tasks, for a model.

    Raises:
        ConfigError: If the folder cannot be used, or has no success at these tasks.
    """
    meaning = token_meaning(vlm, prepared.config.policy.screen)
    file = read_pool(folder, prepared.tasks, writes=meaning, vocabulary=vlm.vocabulary.size)
    if not file.successes:
        example = f", such as {file.unknown[0]!r}; this run's first is {prepared.tasks[0].id!r}" if file.unknown else ""
        raise ConfigError(
            f"{folder} holds no success of this run's tasks: {len(file.unknown)} others{example}. Collect for these "
            "tasks: the same [tasks] and run.seed."
        )
    if file.unknown:
        logger.warning(
            "%s: successes of %d tasks that this run has not were left out: %s%s",
            folder,
            len(file.unknown),
            ", ".join(file.unknown[:3]),
            ", …" if len(file.unknown) > 3 else "",
        )
    return file
