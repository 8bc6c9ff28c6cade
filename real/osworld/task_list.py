"""Checks before a run which tasks of a list will run here, and why the others will not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError, DartsimError, TaskFileError
from dartsim.core.types import Task
from dartsim.envs.tasks import is_forgeable, load_suite
from dartsim.real.osworld.coverage import TaskState, coverage, needs_desktop_env
from dartsim.real.osworld.fetch import cache_folder
from dartsim.real.osworld.needs import DesktopOffer, offer_of
from dartsim.real.scoring.container import open_pool
from dartsim.real.scoring.evaluator_venv import default_home, other_version, python_of
from dartsim.real.scoring.sandbox import ScorerFacts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskListCheck:
    """The check of a configured list.

    Attributes:
        num_listed: Tasks that the list names, without excluded ones.
        num_run: Tasks that will run.
        num_internet: Those of them that need the internet.
        problems: Why the others will not, by ``domain/id``.
        refused: Problems that end the run with an error instead of excluding the task.
        scorer: The evaluator; None if it could not be queried and is assumed to be complete.
        scorer_problem: Why it could not be queried.
        scorer_differs: How it differs from the evaluators beside the tasks.
    """

    num_listed: int
    num_run: int
    num_internet: int
    problems: Mapping[str, str]
    refused: tuple[str, ...]
    scorer: str | None = None
    scorer_problem: str = ""
    scorer_differs: str = ""


def check_list(config: Config) -> TaskListCheck:
    """Load the configured list and its task files, ask the evaluator, and return which tasks will not run.

    Raises:
        TaskFileError: If the list itself cannot be used.
    """
    settings = config.tasks
    assert settings.folder is not None, "checked by dartsim.config.rules"
    suite = load_suite(
        Path(settings.folder), settings.list_name, missing="skip", bad="skip", exclude=frozenset(settings.exclude)
    )
    if unknown := sorted(set(settings.exclude) - suite.excluded):
        raise ConfigError(f"tasks.exclude names {', '.join(unknown)}, which are not among the tasks")
    tasks = [task for task in suite.tasks if not is_forgeable(task)]
    forgeable = {
        f"{task.domain}/{task.id}": "the agent's answer can forge its score"
        for task in suite.tasks
        if is_forgeable(task)
    }
    facts, scorer_problem = None, ""
    try:
        facts = evaluator_facts(config, tasks)
    except DartsimError as error:
        scorer_problem = str(error)
    found = coverage(tasks, facts, folder=Path(settings.folder), offer=offered(config))
    unsupported = {**suite.bad, **found.problems()}
    problems = {**suite.problems, **unsupported, **forgeable}
    num_run = suite.num_listed - len(problems)
    refused = [*suite.missing, *unsupported] if settings.unsupported == "refuse" or not num_run else []
    return TaskListCheck(
        num_listed=suite.num_listed,
        num_run=num_run,
        num_internet=found.states()[TaskState.INTERNET] if settings.internet else 0,
        problems=problems,
        refused=tuple(refused),
        scorer=None if facts is None else facts.scorer,
        scorer_problem=scorer_problem,
        scorer_differs="" if facts is None else other_version(Path(settings.folder), facts.scorer),
    )


def supported_tasks(config: Config, tasks: Sequence[Task], facts: ScorerFacts | None) -> Sequence[Task]:
    """Return the tasks that can be set up and scored.

    Raises:
        TaskFileError: If others must be refused; names each with its reason.
        ConfigError: If none is left.
    """
    folder = None if config.tasks.folder is None else Path(config.tasks.folder)
    found = coverage(tasks, facts, folder=folder, offer=offered(config))
    if facts is not None and folder is not None and (differs := other_version(folder, facts.scorer)):
        logger.warning("%s", differs)
    problems = found.problems()
    if not problems:
        return tasks
    if config.tasks.unsupported == "refuse":
        lines = "".join(f"\n  {name}: {why}" for name, why in problems.items())
        raise TaskFileError(
            f'{len(problems)} of {len(tasks)} tasks cannot run here; tasks.unsupported = "skip" leaves them out:{lines}'
        )
    for name, why in problems.items():
        logger.warning("left out %s: %s", name, why)
    if len(problems) == len(tasks):
        raise ConfigError(f"none of the {len(tasks)} tasks can run here; the warnings name the reason for each")
    return [verdict.task for verdict in found.verdicts if verdict.name not in problems]


def offered(config: Config) -> DesktopOffer:
    """Return what the configured desktops offer; an image or disk of somebody else's is trusted to have everything."""
    desktop, internet, cache = config.desktop, config.tasks.internet, cache_folder()
    ours = config.backend.desktops == "desktop" and desktop.image is None and not desktop.own_disk
    if ours and config.tasks.source == "osworld":
        return offer_of(desktop.variant, internet=internet, cache=cache)
    return DesktopOffer(internet=internet, cache=cache)


def evaluator_facts(config: Config, tasks: Sequence[Task]) -> ScorerFacts | None:
    """Return what the installed evaluator can do, asked in a sandbox; None if no task needs it.

    Raises:
        ConfigError: If it is not installed, or there is no sandbox for it.
        ScoreFault: If its sandbox does not start.
    """
    if not any(map(needs_desktop_env, tasks)):
        return None
    home = default_home()
    python_of(home)  # refuses what is not there, or incomplete

    async def ask() -> ScorerFacts:
        async with open_pool(home, size=1) as pool:
            return await pool.facts()

    return asyncio.run(ask())
