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

from dartsim.core.types import MetricRecord, Score, ScoreRecord, Task
from dartsim.envs.base import FAIL, is_infeasible
from dartsim.real.osworld.errors import FetchFailed, Unscored, VmBadReply, VmLost
from dartsim.real.osworld.getters import GETTERS
from dartsim.real.osworld.steps import run_steps
from dartsim.real.scoring.archive import ScoreArchive
from dartsim.real.scoring.bubblewrap import ProcessLauncher
from dartsim.real.scoring.pool import SandboxPool
from dartsim.real.scoring.relay import desktop_relay
from dartsim.real.scoring.sandbox import GetterValue, ScoreFault, SupervisedSandbox

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder

Config = Mapping[str, Any]


class Scorer:
    """Scores desktops. One serves any number of them.

    Args:
        pool: Where metrics run; by default one of its own, with our own metrics only, which ``aclose`` ends.
        archive: Keeps what was scored; by default only hashes are taken.
    """

    def __init__(self, pool: SandboxPool | None = None, archive: ScoreArchive | None = None) -> None:
        self._pool = pool
        self._archive = archive or ScoreArchive(None)
        self._owned: SandboxPool | None = None

    @property
    def pool(self) -> SandboxPool:
        if self._pool is None:
            self._pool = self._owned = SandboxPool(ProcessLauncher())
        return self._pool

    async def score(self, task: Task, client: VmClient, where: TaskFolder, *, last_action: str | None) -> Score:
        """Return the score of a desktop's present state, in [0, 1].

        Raises:
            ScoreUnavailable: If there is none, with its cause.
            EnvBroken: If the desktop failed.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        metrics: list[MetricRecord] = []
        value = await self._score(task, client, where, last_action, metrics)
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise Unscored(
                f"task {task.id}: the evaluator gave {value}, wanted a number in [0, 1]", cause="score_out_of_range"
            )
        scorer = (await self.pool.facts()).scorer if metrics else "the last action"
        return Score(value, ScoreRecord(scorer, loop.time() - began, tuple(metrics)))

    async def aclose(self) -> None:
        if self._owned is not None:
            await self._owned.close()
            self._pool = self._owned = None

    async def __aenter__(self) -> Scorer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _score(
        self, task: Task, client: VmClient, where: TaskFolder, last_action: str | None, metrics: list[MetricRecord]
    ) -> float:
        evaluator: Config = task.spec["evaluator"]
        await run_steps(evaluator.get("postconfig") or (), client, where)
        if is_infeasible(task):
            return float(last_action == FAIL)
        if last_action == FAIL:
            return 0.0
        names = evaluator["func"]
        if isinstance(names, str):
            parts = (evaluator.get("result"), evaluator.get("expected"), evaluator.get("options"))
            return await self._metric(names, *parts, client, where, metrics)
        return await self._joined(names, evaluator, client, where, metrics)

    async def _joined(
        self,
        names: Sequence[str],
        evaluator: Config,
        client: VmClient,
        where: TaskFolder,
        metrics: list[MetricRecord],
    ) -> float:
        conj = evaluator.get("conj", "and")
        nothing = [None] * len(names)
        parts = zip(names, *(evaluator.get(part) or nothing for part in ("result", "expected", "options")), strict=True)
        scores: list[float] = []
        for name, result, expected, options in parts:
            value = await self._metric(name, result, expected, options, client, where, metrics)
            if value == (1.0 if conj == "or" else 0.0):
                return value
            scores.append(value)
        return max(scores) if conj == "or" else sum(scores) / len(scores)

    async def _metric(
        self,
        name: str,
        result: Config | None,
        expected: Config | None,
        options: Config | None,
        client: VmClient,
        where: TaskFolder,
        metrics: list[MetricRecord],
    ) -> float:
        """Return what one metric gives, and add its record."""
        arguments: list[Any] = []
        if result is not None:
            try:
                found = await self._get(result, client, where)
            except ScoreFault as fault:
                if fault.cause == "result_missing":
                    return 0.0
                raise
            # Not every metric gives 0 for a file that is not there: compare_videos gives 1.
            if _is_missing(found):
                return 0.0
            arguments.append(found)
        if expected:
            wanted = await self._get(expected, client, where)
            if _is_missing(wanted):
                if expected["type"] in GETTERS:
                    return 0.0  # it is the desktop's, and the agent has removed it
                raise Unscored(f"getter {expected['type']} gave no expected value", cause="getter_failed")
            arguments.append(wanted)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            score = await self.pool.run(lambda sandbox: sandbox.metric(name, arguments, options or {}))
        except ScoreFault as fault:
            # One of several files is not there, and the metric broke on that.
            if fault.cause == "metric_failed" and any(map(_lacks_a_file, arguments)):
                return 0.0
            raise
        seconds = loop.time() - began
        inputs, call = await asyncio.to_thread(self._archive.keep, name, arguments, options or {})
        metrics.append(MetricRecord(name, score, seconds, inputs, call))
        return score

    async def _get(self, config: Config, client: VmClient, where: TaskFolder) -> Any:
        kind = config["type"]
        if kind not in GETTERS:
            return await self._get_inside(kind, config, where)
        try:
            return await GETTERS[kind](client, where, config)
        except FetchFailed as exc:
            raise Unscored(f"getter {kind}: {exc}", cause="gold_download_failed") from exc
        except VmLost:
            raise
        except (VmBadReply, KeyError, TypeError, ValueError) as exc:
            raise Unscored(f"getter {kind}: {type(exc).__name__}: {exc}", cause="getter_failed") from exc

    async def _get_inside(self, kind: str, config: Config, where: TaskFolder) -> GetterValue:
        """Run a getter of ``desktop-env`` in a sandbox, which reaches the desktop while it runs."""
        desk = where.desk
        ports = {"server": desk.server_url, "chromium": desk.chromium_url, "vlc": desk.vlc_url}

        async def call(sandbox: SupervisedSandbox) -> GetterValue:
            async with desktop_relay(ports, sandbox.link, sandbox.inside) as sockets:
                return await sandbox.getter(kind, config, sockets, desk.token)

        return await self.pool.run(call)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, GetterValue) and value.missing)


def _lacks_a_file(value: Any) -> bool:
    return (isinstance(value, list) and None in value) or (isinstance(value, GetterValue) and value.some_missing)
