"""One case, played: the production control plane over the modelled cluster, watched and disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from dartsim.errors import ConfigError
from dartsim.fuzz.cases import Case, Choice
from dartsim.fuzz.faults import FaultyLearner, FaultyProvider, FaultyWorker, Schedule
from dartsim.fuzz.look import NEVER, Look
from dartsim.fuzz.space import Shaped, config_of
from dartsim.fuzz.watch import Violated, Watch, WatchedStore
from dartsim.fuzz.watched import WatchedLearner, WatchedProvider, WatchedWorker
from dartsim.rng import Streams
from dartsim.run.backend import desktop_maker, learner, way, workers
from dartsim.run.faulted import faulted
from dartsim.run.models import Models, hosts, models
from dartsim.run.system import System, success_pool
from dartsim.sim import Perturbation, SimReport, simulate
from dartsim.sim.difficulty import TaskDifficulty
from dartsim.sim.perturb import PerturbedLoop
from dartsim.sim.prompts import PromptModel
from dartsim.trace import Trace
from dartsim.types import Weights
from envs.timed import TimedProvider

LOOK_SECONDS = 8.0
"""Virtual seconds between two looks at everything."""

MAX_EVENTS = 60_000
"""Of a run; more is something that polls."""

LOAD_RETRY_SECONDS = 80.0
"""Longest wait between two tries to load weights (``SyncPlan.retry_seconds``, doubled four times)."""


@dataclass(frozen=True)
class Outcome:
    """What a case led to.

    Attributes:
        case: The case.
        rule: The rule that did not hold, or the name of the error that ended the run; None if all is well.
        text: What happened, in words.
        event_hash: Of everything that happened; the same whenever the case is played.
        seconds: Virtual seconds.
        num_events: Callbacks and events.
        struck: How often each kind of fault came to act.
        trace: Its measurements, if they were kept.
        log: What happened at the ports, if it was kept.
    """

    case: Case
    rule: str | None
    text: str
    event_hash: str
    seconds: float
    num_events: int
    struck: Mapping[str, int]
    trace: Trace | None = None
    log: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether something did not hold."""
        return self.rule is not None


Mutation = Callable[[], AbstractContextManager[None]]
"""A planted bug: production code is changed inside its ``with`` block."""


class _Play:
    """A run under way."""

    def __init__(self, case: Case, *, keep: bool) -> None:
        self.case = case
        self.found = _models(case.preset, tuple(sorted(case.choices.items())), case.profile)
        self.shaped = Shaped(case.choices)
        self.config = self.found.config
        self.keep = keep
        self.watch: Watch | None = None
        self.look: Look | None = None
        self.trace: Trace | None = None
        self.schedule: Schedule | None = None
        self.reports: list[SimReport] = []
        self.patience = _patience(self.found, self.shaped)
        heals = bool(self.shaped["healed"])
        self.healed = float(self.shaped["fault_seconds"]) if heals else NEVER
        self.seconds = float(self.shaped["fault_seconds"]) + (1.3 * self.patience if heals else 0.0)

    async def main(self) -> None:
        """Build the system, run it, and look at what is left."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PerturbedLoop)
        system = self._build(loop)
        if self.healed < NEVER:
            loop.call_at(self.healed, loop.calm)
        assert self.look is not None
        await system.run(self.seconds)
        self.look.at_end(loop.time())

    def on_advance(self, now: float) -> None:
        """Look at everything."""
        if self.look is not None and now <= self.seconds:
            self.look.at_rest(now)

    def _build(self, loop: PerturbedLoop) -> System:
        found, config, env = self.found, self.config, loop.env
        streams = Streams(self.case.seed)
        rollout = config.rollout
        self.watch = watch = Watch(config, keep_log=self.keep)
        self.schedule = schedule = Schedule(
            self.case.faults,
            {"desktop": rollout.num_desktops, "worker": rollout.num_workers, "learner": 1, "pool": 1},
        )
        self.trace = trace = Trace(
            loop.time,
            num_envs=rollout.num_desktops,
            num_workers=rollout.num_workers,
            max_segments=60_000 if self.keep else 0,
            max_snapshots=config.trace.max_snapshots,
            first_spacing_seconds=60.0,
        )
        machines = hosts(config, env)
        desktops = TimedProvider(
            desktop_maker(config),
            found.timing,
            machines,
            num_envs=rollout.num_desktops,
            rng=streams.rng("desktops/latency"),
        )
        harm = faulted(found, env, streams, trace)
        made = workers(found, env, streams, None)
        struck = zip(harm.workers(made), made, strict=True)
        engines = [WatchedWorker(watch, w.index, FaultyWorker(inner, w, schedule)) for inner, w in struck]
        trainer = harm.learner(learner(config, streams, None))
        trains = FaultyLearner(trainer, schedule, config.cluster.learner.fixed_seconds)
        store = WatchedStore(watch)
        system = System(
            config,
            tasks=found.tasks,
            provider=WatchedProvider(watch, FaultyProvider(harm.desktops(desktops), schedule, rollout.num_desktops)),
            engines=engines,
            learner=WatchedLearner(watch, trains),
            store=store,
            trace=trace,
            streams=streams,
            way=lambda pool: harm.way(way(config, env, pool)),
            successes=success_pool(config),
        )
        watch.ending = lambda: system.data.ending
        self.look = Look(watch, system, store, engines, machines, healed=self.healed, patience=self.patience)
        for fault, kind in schedule.of("pool", 0):
            if kind.effect == "again":
                loop.call_at(fault.start, self._publish_again, system, store)
        return system

    def _publish_again(self, system: System, store: WatchedStore) -> None:
        """Let publications that were delivered before arrive once more, the older one last."""
        assert self.schedule is not None
        self.schedule.struck["publication_again"] += 1
        system.pool.publish(Weights(store.version))
        system.pool.publish(Weights(max(0, store.version - 1)))


def play_case(case: Case, *, mutation: Mutation | None = None, keep: bool = False) -> Outcome:
    """Play a case to its end, or to the first rule that does not hold.

    Args:
        case: The case.
        mutation: A planted bug.
        keep: Whether to keep what happened, for a folder.

    Raises:
        ConfigError: If the case names what does not exist.
    """
    play = _Play(case, keep=keep)
    rule, text = None, ""
    share = float(play.shaped["delay_share"])
    perturb = Perturbation(latency_share=share, latency_seconds=(1.0, float(play.shaped["delay_seconds"])))
    with mutation() if mutation is not None else nullcontext():
        try:
            simulate(
                play.main(),
                seed=case.seed,
                perturb=perturb,
                max_events=MAX_EVENTS,
                on_advance=play.on_advance,
                every_seconds=LOOK_SECONDS,
                on_end=play.reports.append,
            )
        except ConfigError:
            raise
        except Exception as error:  # whatever production code raises is a finding
            rule, text = _named(error)
    first = play.watch.violated if play.watch is not None else None
    if first is not None:  # what came after it is its consequence
        rule, text = first.rule, str(first)
    report = play.reports[0]
    return Outcome(
        case,
        rule,
        text,
        report.event_hash,
        report.virtual_seconds,
        report.num_events,
        dict(play.schedule.struck) if play.schedule is not None else {},
        play.trace if keep else None,
        list(play.watch.log or ()) if play.watch is not None else [],
    )


def _named(error: BaseException) -> tuple[str, str]:
    """Return the rule that an error stands for, or its name, and its text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Violated):
        return error.rule, str(error)
    return type(error).__name__, f"{type(error).__name__}: {error}"


def _patience(found: Models, shaped: Shaped) -> float:
    """Return how long a healed cluster may take until each of its parts has moved: its own times, generously."""
    config, timing = found.config, found.timing
    envs, turns = config.rollout.num_desktops, config.rollout.max_turns
    engine, update = config.cluster.engine, config.cluster.learner
    boots = (timing.start.mean + timing.boot.mean + timing.teardown.mean) * (1 + envs / config.cluster.hosts.count)
    reply = engine.overhead_seconds + envs * (engine.control_seconds + 3.0)
    attempt = boots + timing.setup.mean + timing.evaluate.mean + turns * (timing.step.mean + reply)
    loads = config.rollout.num_workers * (engine.reload_seconds + reply)
    stretched = float(shaped["delay_seconds"]) * (1 + envs) if shaped["delay_share"] else 0.0
    # Slots whose desktops did not start rest, each time twice as long: the last time about half of all of it.
    rest = float(shaped["fault_seconds"]) / 2.0
    limits = config.rollout.limits
    hung = config.rollout.start_tries * limits.start_seconds + limits.setup_seconds + limits.load_seconds
    waits = LOAD_RETRY_SECONDS + rest + (hung if config.cluster.faults.profile != "none" else 0.0)
    return waits + 2.0 * attempt + 2.0 * update.fixed_seconds + loads + stretched


@lru_cache(maxsize=64)
def _models(preset: str, choices: tuple[tuple[str, Choice], ...], profile: str) -> Models:
    """Return what a case's configuration names, with every task as hard as the case wants it."""
    case = Case(preset, 0, dict(choices), (), profile)
    found = models(config_of(case))
    rate = float(Shaped(case.choices)["success"])
    difficulties = {task.id: TaskDifficulty(rate) for task in found.tasks}
    return replace(found, difficulties=difficulties, prompts=_prompts(found.prompts))


@lru_cache(maxsize=8)
def _prompts(prompts: PromptModel) -> PromptModel:
    """Return the one of equal prompt models whose tables are computed already."""
    return prompts
