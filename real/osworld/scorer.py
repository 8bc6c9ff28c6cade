"""``Scorer``: the score of what an agent has left on a desktop, by the rules of OSWorld's evaluator.

The order of things: ``postconfig``; the rule for infeasible tasks, which only FAIL solves, and FAIL solves no other;
then each metric over its result and its expected value, joined by ``conj``. What cannot be scored raises and masks
the attempt; it is never 0. A file that the agent has not left is the agent's doing, and scores 0.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

from dartsim.core.install import install_command
from dartsim.core.types import Task
from dartsim.envs.base import FAIL, is_infeasible
from dartsim.real.osworld.errors import FetchFailed, Unscored, VmBadReply, VmLost
from dartsim.real.osworld.evaluator import EvaluatorFacts, EvaluatorProcess, ResultFileMissing
from dartsim.real.osworld.getters import NATIVE as GETTERS
from dartsim.real.osworld.known import OURS_FIRST
from dartsim.real.osworld.metrics import NATIVE as METRICS
from dartsim.real.osworld.metrics.sheets import TooLarge
from dartsim.real.osworld.steps import run_steps

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder

SCORE_SECONDS = 900.0
"""Longest time of one scoring, postconfig included."""

Config = Mapping[str, Any]


class Scorer:
    """Scores desktops. One serves any number of them.

    Args:
        evaluator: Runs the metrics and getters of ``desktop-env``; by default only our own are there.
        seconds: Longest time of one scoring.
    """

    def __init__(self, evaluator: EvaluatorProcess | None = None, *, seconds: float = SCORE_SECONDS) -> None:
        self.evaluator = evaluator
        self._seconds = seconds

    async def score(self, task: Task, client: VmClient, where: TaskFolder, *, last_action: str | None) -> float:
        """Return the score of a desktop's present state, in [0, 1].

        Raises:
            Unscored: If there is none, with its cause.
            EnvBroken: If the desktop failed.
        """
        try:
            async with asyncio.timeout(self._seconds):
                value = await self._score(task, client, where, last_action)
        except TimeoutError:
            raise Unscored(
                f"scoring task {task.id} took more than {self._seconds:g} s", cause="score_timeout"
            ) from None
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise Unscored(
                f"task {task.id}: the evaluator gave {value}, wanted a number in [0, 1]", cause="score_out_of_range"
            )
        return value

    async def _score(self, task: Task, client: VmClient, where: TaskFolder, last_action: str | None) -> float:
        evaluator: Config = task.spec["evaluator"]
        await run_steps(evaluator.get("postconfig") or (), client, where)
        if is_infeasible(task):
            return float(last_action == FAIL)
        if last_action == FAIL:
            return 0.0
        names = evaluator["func"]
        if isinstance(names, str):
            parts = (evaluator.get("result"), evaluator.get("expected"), evaluator.get("options"))
            return await self._one(names, *parts, client, where)
        return await self._joined(names, evaluator, client, where)

    async def _joined(self, names: Sequence[str], evaluator: Config, client: VmClient, where: TaskFolder) -> float:
        conj = evaluator.get("conj", "and")
        nothing = [None] * len(names)
        parts = zip(names, *(evaluator.get(part) or nothing for part in ("result", "expected", "options")), strict=True)
        found: list[float] = []
        for name, result, expected, options in parts:
            value = await self._one(name, result, expected, options, client, where)
            if value == (1.0 if conj == "or" else 0.0):
                return value
            found.append(value)
        return max(found) if conj == "or" else sum(found) / len(found)

    async def _one(
        self,
        name: str,
        result: Config | None,
        expected: Config | None,
        options: Config | None,
        client: VmClient,
        where: TaskFolder,
    ) -> float:
        """Return what one metric gives."""
        arguments: list[Any] = []
        if result is not None:
            try:
                found = await self._get(result, client, where)
            except ResultFileMissing:
                return 0.0
            # Not every metric gives 0 for a file that is not there: compare_videos gives 1.
            if found is None:
                return 0.0
            arguments.append(found)
        if expected:
            wanted = await self._expected(expected, client, where)
            if wanted is None:
                return 0.0
            arguments.append(wanted)
        try:
            return await self._measure(name, arguments, options or {})
        except Unscored as exc:
            # One of several files is not there, and the metric broke on that.
            if exc.cause == "metric_failed" and any(isinstance(each, list) and None in each for each in arguments):
                return 0.0
            raise

    async def _expected(self, config: Config, client: VmClient, where: TaskFolder) -> Any:
        """Return an expected value; None if it is the desktop's and the agent has removed it."""
        try:
            wanted = await self._get(config, client, where)
        except ResultFileMissing as exc:
            raise Unscored(f"the expected value is missing: {exc}", cause="getter_failed") from exc
        if wanted is None and config["type"] not in GETTERS:
            raise Unscored(f"getter {config['type']} gave no expected value", cause="getter_failed")
        return wanted

    async def _get(self, config: Config, client: VmClient, where: TaskFolder) -> Any:
        kind = config["type"]
        if kind not in GETTERS:
            return await self._get_elsewhere(kind, config, where)
        try:
            return await GETTERS[kind](client, where, config)
        except FetchFailed as exc:
            raise Unscored(f"getter {kind}: {exc}", cause="gold_download_failed") from exc
        except VmLost:
            raise
        except TooLarge as exc:
            raise ResultFileMissing(str(exc)) from exc
        except (VmBadReply, KeyError, TypeError, ValueError, ParseError, ImportError) as exc:
            raise Unscored(f"getter {kind}: {type(exc).__name__}: {exc}", cause="getter_failed") from exc

    async def _get_elsewhere(self, kind: str, config: Config, where: TaskFolder) -> Any:
        facts = await self._facts()
        if self.evaluator is None or facts is None:
            raise Unscored(f"getter {kind} is desktop-env's; {HOW}", cause="getter_unavailable")
        if reason := facts.no_getter(kind):
            raise Unscored(f"getter {kind}: {reason}", cause="getter_unavailable")
        return await self.evaluator.getter(kind, config, where)

    async def _measure(self, name: str, arguments: Sequence[Any], options: Config) -> float:
        """Return a metric's score: desktop-env's if it is configured and has it, else our own."""
        facts = await self._facts()
        reason = HOW if facts is None else facts.no_metric(name, options)
        if self.evaluator is not None and not reason and name not in OURS_FIRST:
            return await self.evaluator.metric(name, arguments, options)
        metric = METRICS.get(name)
        if metric is None or not metric.takes(options):
            raise Unscored(f"metric {name} is not built in; {reason}", cause="metric_unavailable")
        if metric.missing():
            raise Unscored(
                f"metric {name} needs {', '.join(metric.missing())}: {install_command('real')}",
                cause="metric_unavailable",
            )
        try:
            return float(await asyncio.to_thread(metric.run, *arguments, **options))
        except TooLarge:
            return 0.0
        except ImportError as exc:
            raise Unscored(f"metric {name}: {exc}", cause="metric_unavailable") from exc
        except Exception as exc:
            raise Unscored(f"metric {name}: {type(exc).__name__}: {exc}", cause="metric_failed") from exc

    async def _facts(self) -> EvaluatorFacts | None:
        return None if self.evaluator is None else await self.evaluator.facts()


HOW = 'make its environment with `dartsim evaluator install` and set desktop.evaluator="desktop-env"'
"""What to do about a metric or a getter that is not built in."""
