"""``dartsim collect``: successes of an oracle, a trained model, a recorded run or other agents, for other runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dartsim.config import Config
from dartsim.core.errors import ConfigError, NothingCollected
from dartsim.core.files import refuse_links
from dartsim.core.ports import ContentModel
from dartsim.core.rewards import SUCCESS, reaches
from dartsim.core.types import Trajectory, Weights
from dartsim.real.evaluate import attempts_at, play
from dartsim.real.osworld.result_import import ImportCounts, import_attempts
from dartsim.real.pool_files import check_meaning, read_pool, token_meaning, write_pool
from dartsim.real.vlm import Vlm, build
from dartsim.real.vlm.model import one_thread, reply_writer
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.demonstrations import demonstrate
from dartsim.run.execute import SUCCESSES
from dartsim.run.prepare import PreparedRun, prepare
from dartsim.run.resume import resumed
from dartsim.run.sim_cluster import desktop_maker

MAX_DESKTOPS = 64
"""Desktops that a model plays on at once."""

IMPORTED = "osworld_results"
"""Kind of source of a pool that was imported."""

Progress = Callable[[int, int], None]
"""Told the number of tasks or attempts that are done, and their total."""


class Written(NamedTuple):
    """What was written: successes, their turns, and the tasks that have one."""

    successes: int
    turns: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Successes that were collected."""

    successes: Iterable[Trajectory]
    attempts: int | None
    num_tasks: int
    unknown: tuple[str, ...] = ()
    source: dict[str, Any]
    writes: dict[str, Any]
    imported: ImportCounts | None = None

    def write(self, folder: Path) -> Written:
        """Write them as a pool's folder.

        Raises:
            NothingCollected: If no attempt of other agents could be imported.
        """
        turns, tasks = 0, set()

        def counted() -> Iterator[Trajectory]:
            nonlocal turns
            for success in self.successes:
                turns += len(success.turns)
                tasks.add(success.attempt.task.id)
                yield success

        origins = None if self.imported is None else self.imported.origins
        count = write_pool(folder, counted(), writes=self.writes, source=self.source, origins=origins)
        return Written(count, turns, len(tasks))


def from_oracle(config: Config, per_task: int, on_step: Progress | None = None) -> Collected:
    """Let the oracle solve every task ``per_task`` times, with a seed for each.

    Raises:
        NothingCollected: If the model's grammar can write none of its actions.
    """
    check_desktop(config)
    prepared, vlm = prepare(config), first_model(config)
    successes: list[Trajectory] = []
    for done, task in enumerate(prepared.tasks):
        shown = (demonstrate(config, task, number, vlm) for number in range(per_task))
        successes.extend(success for success in shown if success is not None)
        if on_step is not None:
            on_step(done + 1, len(prepared.tasks))
    if not successes:
        raise NothingCollected(
            f"the oracle made no success at {len(prepared.tasks)} tasks that policy.grammar = "
            f'"{config.policy.grammar}" can write; take another grammar, or other tasks'
        )
    return Collected(
        successes=successes,
        attempts=per_task * len(prepared.tasks),
        num_tasks=len(prepared.tasks),
        source={"kind": "oracle", "per_task": per_task},
        writes=token_meaning(vlm, config.policy.screen),
    )


def from_model(run: Path, attempts: int, *, config: Config | None = None, on_step: Progress | None = None) -> Collected:
    """Let the model of a finished run try every task, and return its successes, with their log-probabilities.

    Raises:
        ConfigError: If there is no such model, or its tokens have another meaning in the configuration.
        NothingCollected: If it solved none.
    """
    prepared, learning = resumed(run)
    writes = token_meaning(learning.vlm, prepared.config.policy.screen)
    if config is not None:
        check_meaning(run, writes, token_meaning(first_model(config), config.policy.screen))
        prepared = prepare(config)
    check_desktop(prepared.config)
    learning.model.add(learning.newest)
    successes, made = play_tasks(prepared, learning.model, learning.newest, attempts, on_step)
    version = learning.newest.version
    if not successes:
        raise NothingCollected(
            f"version {version} of {run} solved none of {len(prepared.tasks)} tasks in {made} attempts; give it more "
            "attempts or easier tasks, or collect from the oracle"
        )
    return Collected(
        successes=successes,
        attempts=made,
        num_tasks=len(prepared.tasks),
        source={"kind": "model", "run": run.resolve().name, "version": version, "attempts_per_task": attempts},
        writes=writes,
    )


def from_run(run: Path, config: Config) -> Collected:
    """Return the successes that a finished run kept, for a configuration's tasks."""
    refuse_links(run)
    if not (run / SUCCESSES).is_dir():
        raise ConfigError(
            f"{run} kept no successes: that takes curation.pool.enabled = true, "
            "and a success; let its model try again with --model"
        )
    tasks = prepare(config).tasks
    file = read_pool(run / SUCCESSES, tasks)
    if not file.successes:
        raise NothingCollected(f"{run} kept successes of {len(file.unknown)} tasks, none of which was asked for")
    return Collected(
        successes=file.successes,
        attempts=None,
        num_tasks=len(tasks),
        unknown=file.unknown,
        source={**file.source, "run": run.resolve().name},
        writes=dict(file.writes),
    )


def from_results(
    config: Config, results: Sequence[Path], *, min_score: float | None = None, on_step: Progress | None = None
) -> Collected:
    """Read other agents' successes at a configuration's tasks from OSWorld's result directories.

    They have no log-probabilities: those are computed by the first weights of the run that starts with them.

    Raises:
        ConfigError: If a task file cannot be used.
    """
    tasks, writer, counts = prepare(config).tasks, reply_writer(vlm_config(config)), ImportCounts()
    least = SUCCESS if min_score is None else min_score

    def attempts() -> Iterator[Trajectory]:
        yield from import_attempts(results, config, tasks, writer, counts, min_score=least, on_step=on_step)
        if not counts.origins:
            reasons = ", ".join(f"{reason} {count}" for reason, count in counts.refused.most_common())
            first = next(iter(counts.examples.values()))
            raise NothingCollected(f"none of {counts.found} attempts could be imported ({reasons}), such as {first}")

    return Collected(
        successes=attempts(),
        attempts=None,
        num_tasks=len(tasks),
        source={
            "kind": IMPORTED,
            "directories": [str(folder.resolve()) for folder in results],
            "models": counts.models,
            "refused": counts.refused,
        },
        writes=token_meaning(writer, config.policy.screen),
        imported=counts,
    )


def check_desktop(config: Config) -> None:
    """Refuse tasks other than those of the mock desktop."""
    if config.tasks.source != "mock":
        raise ConfigError(
            f'successes are played on the mock desktop, which does not know tasks.source = "{config.tasks.source}"; '
            "take what a run has kept (--run), or other tasks"
        )


def first_model(config: Config) -> Vlm:
    """Return the first model of a configuration, before any warm start."""
    one_thread()
    return build(vlm_config(config), seed=config.run.seed)


def play_tasks(
    prepared: PreparedRun, answers: ContentModel, weights: Weights, attempts: int, on_step: Progress | None = None
) -> tuple[list[Trajectory], int]:
    """Try every task ``attempts`` times; return the successes and the number of attempts."""
    config = prepared.config
    tried = attempts_at(
        prepared.tasks, attempts, version=weights.version, turn_limit=config.rollout.max_turns, seed=config.run.seed
    )
    maker = desktop_maker(config)
    desktops = [maker() for _ in range(min(MAX_DESKTOPS, len(tried)))]
    successes: list[Trajectory] = []
    for first in range(0, len(tried), len(desktops)):
        wave = tried[first : first + len(desktops)]
        played = play(answers, desktops, wave, version=weights.version)
        successes.extend(t for t in played if reaches(t.reward or 0.0, SUCCESS))
        if on_step is not None:
            on_step(first + len(wave), len(tried))
    return successes, len(tried)
