"""Evaluates a policy on tasks, with a run's own desktops, engines and rollout, in virtual or in real time.

    planned attempts --EvaluationSource--> Rollout (as in a run) --finish--> EvaluationFolder --> figures

Each step budget is a separate pass: an attempt that still runs at the end of a smaller budget would have to be scored
there, and scoring changes the desktop (postconfig saves files and closes windows).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dartsim.config import Config
from dartsim.core.errors import DartsimError, StoreFault
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.rng import Streams
from dartsim.core.snapshots import snapshots_of
from dartsim.core.types import Attempt, Ending, Observation, StepResult, Task, Trajectory, Version, Weights
from dartsim.envs.actions import make_grammar, read
from dartsim.envs.actions.model import Done, Fail, Wait
from dartsim.observe.rundir import lock_run
from dartsim.observe.success import success_figures
from dartsim.real.loop import RunLoop
from dartsim.real.osworld.pyautogui_code import plain, snippets
from dartsim.real.ray_cluster.backend import session
from dartsim.rollout.guarded_worker import guard
from dartsim.run.backends import BackendContext, engine_backend
from dartsim.run.build import open_desktops, transport
from dartsim.run.evaluation_results import AttemptKey, AttemptResult, EvaluationFolder, EvaluationPlan, identity_of
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.sim_cluster import faulty_cluster
from dartsim.run.system import ActingSystem, new_recorder
from dartsim.sim import SimLoop, run_virtual
from dartsim.sim.bridge import BridgeEnvironment

if TYPE_CHECKING:
    from dartsim.run.model import ServedModel
    from dartsim.sim.worker import SimWorker

logger = logging.getLogger(__name__)

MASKED_IN_A_ROW = 8
"""An evaluation stops after this many consecutive masked attempts, and at least twice the number of desktops."""

Progress = Callable[[int, int, int], None]
"""Called with the numbers of scored, masked and planned attempts."""


class EvaluationStopped(DartsimError):
    """Every attempt is masked: desktops, engines or the endpoint are broken."""


class EvaluationSource:
    """Gives the planned attempts to a rollout; implements ``dartsim.core.ports.AttemptSource``.

    Invariant: in the end every planned attempt is scored, or was masked ``plan.tries`` times, or is still open because
    the evaluation was interrupted.
    """

    def __init__(
        self,
        plan: EvaluationPlan,
        folder: EvaluationFolder,
        screens: LastScreens,
        *,
        code_of: Callable[[str], str],
        num_envs: int,
        version: Version = 0,
        on_step: Progress | None = None,
    ) -> None:
        self.results: dict[AttemptKey, AttemptResult] = {}
        self._plan = plan
        self._folder = folder
        self._screens = screens
        self._code_of = code_of
        self._version = version
        self._on_step = on_step
        self._waiting: deque[tuple[AttemptKey, Task, int]] = deque()
        self._running: dict[int, tuple[AttemptKey, Task, int]] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._tries: Counter[AttemptKey] = Counter()
        self._causes: list[str] = []
        """Causes of the latest first tries, while all of them were masked."""
        self._limit = max(MASKED_IN_A_ROW, 2 * num_envs)
        self._number = 0
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        for planned in plan.planned():
            found = folder.read(planned[0])
            if found is not None:
                self.results[planned[0]] = found
            if found is None or found.score is None:
                self._waiting.append(planned)
        self._report()

    @property
    def complete(self) -> bool:
        return not self._waiting and not self._running

    async def admit(self, slot: int) -> Attempt | None:
        """Return the next attempt; None once none is left and no running one can still be masked."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._waiting:
                return self._next()
            if self.complete:
                return None
            self._changed.clear()
            await self._changed.wait()

    def finish(self, trajectory: Trajectory) -> None:
        """Store a result. A masked attempt is repeated; a canceled one stays open."""
        planned = self._running.pop(trajectory.attempt.id)
        self._changed.set()
        first_screens = [turn.observation.screenshot for turn in trajectory.turns]
        last = self._screens.take(trajectory.attempt.seed)
        if trajectory.ending is Ending.CANCELLED:
            return
        if trajectory.masked:
            self._masked(planned, trajectory.cause or trajectory.ending.value)
        else:
            self._causes.clear()
        screens = [*first_screens, *([] if last is None else [last])]
        writing = asyncio.get_running_loop().create_task(self._write(planned[0], trajectory, screens), name="results")
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def settle(self) -> None:
        while self._writing:
            await asyncio.wait(self._writing)
        if self._failure is not None:
            raise self._failure

    def _next(self) -> Attempt:
        planned = key, task, seed = self._waiting.popleft()
        number, self._number = self._number, self._number + 1
        self._running[number] = planned
        self._tries[key] += 1
        return Attempt(number, task, number, key.attempt - 1, seed, key.steps, self._version)

    def _masked(self, planned: tuple[AttemptKey, Task, int], cause: str) -> None:
        if self._tries[planned[0]] < self._plan.tries:
            self._waiting.append(planned)
        if self._tries[planned[0]] > 1:  # tasks that remain at the end may always be masked
            return
        self._causes.append(cause)
        if len(self._causes) >= self._limit and self._failure is None:
            counted = ", ".join(f"{cause}: {count}" for cause, count in Counter(self._causes).most_common(3))
            self._failure = EvaluationStopped(
                f"the last {len(self._causes)} attempts were all masked ({counted}); what was scored is kept: mend the "
                "cause, and the same command goes on"
            )

    async def _write(self, key: AttemptKey, trajectory: Trajectory, screens: Sequence[Any]) -> None:
        try:
            self.results[key] = await asyncio.to_thread(self._folder.write, key, trajectory, screens, self._code_of)
        except OSError as error:
            self._failure = StoreFault(f"results cannot be written to {self._folder.path}: {error.strerror or error}")
        except Exception as error:  # a background task's error would otherwise be lost
            self._failure = error
        self._changed.set()
        self._report()

    def _report(self) -> None:
        if self._on_step is not None:
            masked = sum(result.score is None for result in self.results.values())
            total = len(self._plan.tasks) * len(self._plan.steps) * self._plan.attempts
            self._on_step(len(self.results) - masked, masked, total)


class LastScreens:
    """Desktops that keep the last screenshot of each attempt; implements ``dartsim.core.ports.EnvProvider``.

    A trajectory has the screen before each action; this adds the one after the last action.
    """

    def __init__(self) -> None:
        self.provider: EnvProvider | None = None
        self._last: dict[int, Any] = {}

    async def start(self, slot: int) -> AsyncEnv:
        assert self.provider is not None, "set before the rollout begins"
        return _LastScreen(await self.provider.start(slot), self._last)

    def take(self, seed: int) -> Any:
        """Return and remove the last screenshot of the attempt with a seed; None if there is none."""
        return self._last.pop(seed, None)


class _LastScreen:
    """A desktop that stores its last screenshot under the seed of its attempt."""

    def __init__(self, inner: AsyncEnv, last: dict[int, Any]) -> None:
        self._inner = inner
        self._last = last
        self._seed = 0
        self.evaluate, self.close, self.snapshots = inner.evaluate, inner.close, snapshots_of(inner)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        self._seed = seed
        return await self._inner.reset(task, seed=seed)

    async def step(self, action: str) -> StepResult:
        result = await self._inner.step(action)
        self._last[self._seed] = result.observation.screenshot
        return result


def evaluate_policy(
    prepared: PreparedRun,
    plan: EvaluationPlan,
    folder: EvaluationFolder,
    fingerprint: str,
    *,
    served: ServedModel | None = None,
    on_step: Progress | None = None,
    on_start: Callable[[str, int, int], None] | None = None,
) -> dict[AttemptKey, AttemptResult]:
    """Run the attempts of a plan that have no score yet, and return how all of them ended.

    Args:
        prepared: The configuration.
        plan: The attempts.
        folder: Where results are, and are written; nothing is written before desktops and engines have started.
        fingerprint: Identifies the evaluated weights.
        served: The model, if engines need one.
        on_step: Called after each attempt.
        on_start: Called while desktops and engines start.

    Raises:
        ConfigError: If desktops or engines cannot be started as configured, or the folder holds anything else.
        EvaluationStopped: If every attempt is masked; results are kept.
        KeyboardInterrupt: After Ctrl-C; results are kept.
    """
    prepared = replace(prepared, tasks=plan.tasks, held_out=())
    config = prepared.config
    weights = served.weights if served is not None else Weights(0)
    identity = identity_of(config, plan.tasks, folder.model, fingerprint)
    folder.check(identity)

    async def main() -> dict[AttemptKey, AttemptResult]:
        loop = asyncio.get_running_loop()
        screens = LastScreens()
        source = EvaluationSource(
            plan,
            folder,
            screens,
            code_of=partial(osworld_code, config),
            num_envs=config.rollout.num_envs,
            version=weights.version,
            on_step=on_step,
        )
        if source.complete:
            return source.results
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(session(config))
                world = loop.env if isinstance(loop, SimLoop) else BridgeEnvironment(loop)
                streams = Streams(config.run.seed)
                context = BackendContext(
                    prepared=prepared,
                    world=world,
                    streams=streams,
                    version=weights.version,
                    stack=stack,
                    optional_model=served,
                    on_step=on_start,
                )
                # Engines first, so that an endpoint that does not answer is reported before any desktop boots.
                engines = await engine_backend(config).open(context)
                provider = await open_desktops(context)
                recorder = new_recorder(config, loop.time, first_spacing_seconds=60.0)
                faults = faulty_cluster(prepared, world, streams, recorder.counts)
                screens.provider = faults.provider(provider)
                stack.enter_context(lock_run(folder.path))
                folder.claim(identity, config)
                system = ActingSystem(
                    config,
                    source=source,
                    provider=screens,
                    # Only a fully modeled cluster has faults.
                    engines=guard(faults.workers(cast("Sequence[SimWorker]", engines)), weights.version),
                    recorder=recorder,
                    transport=lambda pool: faults.transport(transport(context, pool)),
                    weights=weights,
                )
                await system.play()
                for cause, reason in recorder.fault_reasons.items():
                    logger.warning("%s: %s", cause, reason)
        finally:
            await source.settle()
        return source.results

    if config.backend.virtual:
        return run_virtual(main(), seed=config.run.seed)
    with asyncio.Runner(loop_factory=RunLoop) as runner:
        return runner.run(main())


def osworld_code(config: Config, text: str) -> str:
    """Return a reply as an action of traj.jsonl: pyautogui code, WAIT, DONE or FAIL; unreadable replies unchanged."""
    name, options = config.policy.action_grammar
    size = (config.desktop.width, config.desktop.height) if config.backend.boots else (config.policy.screen,) * 2
    actions = read(make_grammar(name, *size, **options), text)
    match actions:
        case None:
            return text
        case (Wait(),):
            return "WAIT"
        case (*_, Done()):
            return "DONE"
        case (*_, Fail()):
            return "FAIL"
    return "; ".join(plain(part) if part else "time.sleep(1)" for part in snippets(actions, lambda x, y: (x, y)))


def evaluation_figures(plan: EvaluationPlan, results: dict[AttemptKey, AttemptResult]) -> dict[str, Any]:
    """Return the figures of an evaluation, by budget and domain, JSON-serializable."""
    return {
        "attempts_per_task": plan.attempts,
        "tasks": len(plan.tasks),
        "budgets": [_budget(plan, results, steps) for steps in plan.steps],
        "scorers": dict(Counter(result.scorer for result in results.values() if result.scorer)),
    }


def _budget(plan: EvaluationPlan, results: dict[AttemptKey, AttemptResult], steps: int) -> dict[str, Any]:
    scores: dict[str, dict[str, list[float]]] = {}
    masked: Counter[str] = Counter()
    missing = 0
    for key, task, _ in plan.planned():
        if key.steps != steps:
            continue
        by_task = scores.setdefault(task.domain, {}).setdefault(task.id, [])
        result = results.get(key)
        if result is None:
            missing += 1
        elif result.score is None:
            masked[result.cause or "unknown"] += 1
        else:
            by_task.append(result.score)
    everything = {task: values for domain in scores.values() for task, values in domain.items()}
    return {
        "steps": steps,
        **success_figures(everything),
        "domains": {domain: success_figures(tasks) for domain, tasks in sorted(scores.items())},
        "masked": dict(masked.most_common()),
        "missing": missing,
    }
