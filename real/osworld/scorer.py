"""``Scorer``: the score of the state in which an agent has left a desktop, by the rules of OSWorld's evaluator.

First ``postconfig``; then the rule for infeasible tasks, which only FAIL solves, while FAIL solves no other; then each
metric over its result and its expected value, joined by ``conj``.

A failure that the agent can cause scores 0: a file that is missing, broken, too large or a folder; a closed
application; a metric that raises on such a state, or exceeds its limits. Any other failure raises and masks the
attempt. So if something fails on a result of the desktop, the other possible causes are checked:

- The desktop, which must run a command. Broken replies and lost connections of its server are never the agent's fault.
- The task and the evaluator. The metric must work on the expected files in place of the result, if there are any.
  Missing parts of the task file, missing packages and failed downloads are never the agent's fault.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from dartsim.core.types import MetricRecord, Score, ScoreRecord, Task
from dartsim.envs.base import FAIL, is_infeasible
from dartsim.real.osworld.errors import FetchFailed, SetupFailed, VmBadReply, VmLost, VmMissing
from dartsim.real.osworld.getters import GETTERS
from dartsim.real.osworld.steps import run_steps
from dartsim.real.scoring.archive import ScoreArchive
from dartsim.real.scoring.container import open_pool
from dartsim.real.scoring.pool import SandboxPool
from dartsim.real.scoring.relay import desktop_relay
from dartsim.real.scoring.sandbox import FileInput, GetterValue, ScoreFault, SupervisedSandbox

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder

logger = logging.getLogger(__name__)

Config = Mapping[str, Any]

FROM_WEB = ("gotoRecreationPage_and_get_html_content", "info_from_website", "pdf_from_url")
OF_TASK = frozenset([*FROM_WEB, "cloud_file", "rule", "rule_relativeTime", "time_diff_range"])
"""Getters of values from the task file or the web, which do not depend on the agent."""
ON_DESKTOP = (frozenset(GETTERS) - OF_TASK) | {"vm_screen_size", "vm_wallpaper", "vm_window_size"}
"""Getters whose expected value an agent can remove."""
UNBLAMED = frozenset(["getter_unavailable", "metric_unavailable", "sandbox_start_failed", "vm_unreachable"])
"""Causes that no state of the desktop can have."""
SLOW = frozenset(["sandbox_died", "score_killed", "score_timeout"])
"""Causes that a machine short of time or memory can have, too."""
WORKS_SECONDS = 20.0


class Scorer:
    """Scores desktops. One serves any number of them.

    Args:
        pool: Where metrics run; by default a sandbox of its own, with our own metrics only, which starts with the first
            score that needs it; ``aclose`` ends it.
        archive: Stores the inputs of metrics; by default only their hashes are taken.
    """

    def __init__(self, pool: SandboxPool | None = None, archive: ScoreArchive | None = None) -> None:
        self._pool = pool
        self._archive = archive or ScoreArchive(None)
        self._owned = AsyncExitStack()
        self._opening = asyncio.Lock()

    async def score(self, task: Task, client: VmClient, where: TaskFolder, *, last_action: str | None) -> Score:
        """Return the score of a desktop's present state, in [0, 1].

        Raises:
            ScoreUnavailable: If it cannot be scored; has the cause.
            EnvBroken: If the desktop failed.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        metrics: list[MetricRecord] = []
        try:
            value = await self._score(task, client, where, last_action, metrics)
        finally:
            await where.remove_separate_folders()
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise ScoreFault(
                f"task {task.id}: the evaluator gave {value}, wanted a number in [0, 1]", cause="score_out_of_range"
            )
        by_action = is_infeasible(task) or last_action == FAIL
        scorer = "the last action" if by_action else (await (await self._sandboxes()).facts()).scorer
        return Score(value, ScoreRecord(scorer, loop.time() - began, tuple(metrics)))

    async def aclose(self) -> None:
        await self._owned.aclose()

    async def __aenter__(self) -> Scorer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _sandboxes(self) -> SandboxPool:
        async with self._opening:
            if self._pool is None:
                self._pool = await self._owned.enter_async_context(open_pool(None, size=1))
                self._owned.callback(setattr, self, "_pool", None)
            return self._pool

    async def _score(
        self, task: Task, client: VmClient, where: TaskFolder, last_action: str | None, metrics: list[MetricRecord]
    ) -> float:
        evaluator: Config = task.spec["evaluator"]
        undone = await self._postconfig(evaluator, client, where)
        if is_infeasible(task):
            return float(last_action == FAIL)
        if undone:
            return 0.0
        if last_action == FAIL:
            return 0.0
        names = evaluator["func"]
        if isinstance(names, str):
            parts = (evaluator.get("result") or None, evaluator.get("expected"), evaluator.get("options"))
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
        ours = result is not None and result["type"] not in OF_TASK
        if result is not None:
            found = await (self._left(result, client, where) if ours else self._get(result, client, where))
            # Not every metric returns 0 for a missing file: compare_videos returns 1.
            if _is_missing(found):
                return 0.0
            arguments.append(found)
        if expected:
            on_desktop = expected["type"] in ON_DESKTOP
            wanted = await (self._left(expected, client, where) if on_desktop else self._get(expected, client, where))
            if _is_missing(wanted):
                if on_desktop:
                    return 0.0  # the agent has removed it
                raise ScoreFault(f"getter {expected['type']} gave no expected value", cause="getter_failed")
            arguments.append(wanted)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            score = await self._run(name, arguments, options or {})
        except ScoreFault as fault:
            if ours and await self._is_the_answers(fault, name, arguments, options or {}):
                logger.info("scored 0, because the answer cannot be judged: %s", fault)
                return 0.0
            raise
        seconds = loop.time() - began
        inputs, call = await asyncio.to_thread(self._archive.keep, name, arguments, options or {})
        metrics.append(MetricRecord(name, score, seconds, inputs, call))
        return score

    async def _run(self, name: str, arguments: Sequence[Any], options: Config) -> float:
        score = await (await self._sandboxes()).run(lambda sandbox: sandbox.metric(name, arguments, options))
        if not (math.isfinite(score) and 0.0 <= score <= 1.0):
            raise ScoreFault(f"metric {name} gave {score}, wanted a number in [0, 1]", cause="score_out_of_range")
        return score

    async def _is_the_answers(self, fault: ScoreFault, name: str, arguments: Sequence[Any], options: Config) -> bool:
        """Whether a metric failed because of its result: it works on the expected value, or other metrics work."""
        if fault.cause in UNBLAMED or fault.of_task:
            return False
        gold = arguments[1] if len(arguments) == 2 else None
        if fault.cause == "metric_failed" and _lacks_a_file(arguments[0]):
            return True
        try:
            if _has_files(gold):
                await self._run(name, [gold, gold], options)
            elif fault.cause in SLOW:
                await self._run("exact_match", ["", {"expected": ""}], {})
        except ScoreFault:
            return False
        return True

    async def _left(self, config: Config, client: VmClient, where: TaskFolder) -> Any:
        """Return a getter's value of the agent's state; None if it finds nothing, or fails because of that state."""
        try:
            return await self._get(config, client, where)
        except ScoreFault as fault:
            if fault.cause == "result_missing":
                return None
            if fault.cause in UNBLAMED or fault.of_task or not await _works(client):
                raise
            logger.info("scored 0, because nothing is found: %s", fault)
            return None

    async def _get(self, config: Config, client: VmClient, where: TaskFolder) -> Any:
        """Return a getter's value; its files are in a separate folder, so that none replaces another's."""
        kind = config["type"]
        if kind not in GETTERS:
            return await self._get_inside(kind, config, where)
        try:
            return await GETTERS[kind](client, where if kind == "cache_file" else where.separate_folder(), config)
        except FetchFailed as exc:
            raise ScoreFault(f"getter {kind}: {exc}", cause="gold_download_failed", of_task=True) from exc
        except VmLost:
            raise
        except (VmBadReply, KeyError, TypeError, ValueError) as exc:
            of_task = not (isinstance(exc, VmBadReply) and exc.refused)
            message = f"getter {kind}: {type(exc).__name__}: {exc}"
            raise ScoreFault(message, cause="getter_failed", of_task=of_task) from exc

    async def _get_inside(self, kind: str, config: Config, where: TaskFolder) -> GetterValue:
        """Run a getter of ``desktop-env`` in a sandbox, which reaches the desktop while it runs."""
        address = where.address
        ports = {"server": address.server_url, "chromium": address.chromium_url, "vlc": address.vlc_url}

        async def call(sandbox: SupervisedSandbox) -> GetterValue:
            async with desktop_relay(ports, sandbox.link) as sockets:
                return await sandbox.getter(kind, config, sockets, address.token)

        return await (await self._sandboxes()).run(call)

    async def _postconfig(self, evaluator: Config, client: VmClient, where: TaskFolder) -> bool:
        """Carry out the steps before scoring; return whether they failed because of the agent's state."""
        import httpx

        try:
            await run_steps(evaluator.get("postconfig") or (), client, where)
        except SetupFailed as fault:
            why = fault.__cause__
            no_chrome = isinstance(why, SetupFailed) and isinstance(why.__cause__, httpx.TransportError)
            undone = no_chrome or isinstance(why, VmMissing) or "No space left on device" in str(fault)
            if not undone or not await _works(client):
                raise
            logger.info("scored 0, because a step before scoring failed: %s", fault)
            return True
        return False


async def _works(client: VmClient) -> bool:
    """Whether a desktop carries out a command.

    Raises:
        EnvBroken: If it does not answer as it should.
    """
    return (await client.execute(["true"], seconds=WORKS_SECONDS, action=False)).returncode == 0


def _has_files(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_files, value))
    return isinstance(value, FileInput) or (isinstance(value, GetterValue) and bool(value.files))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, GetterValue) and value.missing)


def _lacks_a_file(value: Any) -> bool:
    return (isinstance(value, list) and None in value) or (isinstance(value, GetterValue) and value.some_missing)
