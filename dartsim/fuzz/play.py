"""One case, played: the production control plane over the modelled cluster, watched and disturbed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

from dartsim.core.errors import ConfigError, StoreFault
from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.core.types import Weights
from dartsim.envs.timed import TimedProvider
from dartsim.fuzz.cases import Case, Choice, Fault
from dartsim.fuzz.disk import Disk, Killed
from dartsim.fuzz.faults import KINDS, STORED, FaultyLearner, FaultyProvider, FaultyWorker, Schedule
from dartsim.fuzz.lives import NOTHING, Ledger, Past
from dartsim.fuzz.look import NEVER, Look
from dartsim.fuzz.space import Shaped, config_of
from dartsim.fuzz.stored import WatchedStore
from dartsim.fuzz.watch import Violated, Watch
from dartsim.fuzz.watched import WatchedLearner, WatchedProvider, WatchedWorker
from dartsim.observe import Recorder
from dartsim.run.backend import caches, desktop_maker, learner, way, workers
from dartsim.run.faulted import faulted
from dartsim.run.models import Models, hosts, models
from dartsim.run.origin import LIVES, Origin, read_origin
from dartsim.run.system import System, success_pool
from dartsim.sim import Perturbation, SimReport, simulate
from dartsim.sim.difficulty import TaskDifficulty
from dartsim.sim.perturb import PerturbedLoop
from dartsim.sim.prompts import PromptModel
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore

LOOK_SECONDS, LONG_LOOK_SECONDS = 8.0, 60.0
"""Virtual seconds between two looks at everything; in a run of hours."""

LONGEST_REST_SECONDS = 300.0
"""Longest rest of a slot whose desktops do not start (``EnvCluster.rest``)."""

MAX_EVENTS = 60_000
"""Of a life; more is something that polls."""

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
        seconds: Virtual seconds of the run, those of a life that were lost with it left out.
        num_events: Callbacks and events of all lives.
        lives: How often the process was begun.
        struck: How often each kind of fault came to act.
        recorder: Its measurements, if they were kept.
        log: What happened at the ports, if it was kept.
    """

    case: Case
    rule: str | None
    text: str
    event_hash: str
    seconds: float
    num_events: int
    lives: int
    struck: Mapping[str, int]
    recorder: Recorder | None = None
    log: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether something did not hold."""
        return self.rule is not None


Mutation = Callable[[], AbstractContextManager[None]]
"""A planted bug: production code is changed inside its ``with`` block."""


class _Play:
    """A run under way: one life, or as many as its process is killed and its store fails."""

    def __init__(self, case: Case, *, keep: bool) -> None:
        if unknown := {fault.kind for fault in case.faults} - KINDS.keys():
            raise ConfigError(f"the case has faults {sorted(unknown)}; there are: {', '.join(KINDS)}")
        self.case = case
        self.found = _models(case.preset, tuple(sorted(case.choices.items())), case.profile)
        self.shaped = Shaped(case.choices)
        self.config = self.found.config
        self.keep = keep
        self.watch: Watch | None = None
        self.look: Look | None = None
        self.recorder: Recorder | None = None
        self.log: list[tuple[float, str, dict[str, Any]]] = []
        self.struck: Counter[str] = Counter()
        self.reports: list[SimReport] = []
        self.ledger = Ledger()
        stored = any(fault.kind in STORED for fault in case.faults)
        self.disk = Disk(case.faults, self.struck) if stored else None
        self.patience = _patience(self.found, self.shaped)
        heals = bool(self.shaped["healed"])
        self.healed = self.shaped.fault_seconds if heals else NEVER
        self.seconds = self.shaped.fault_seconds + (1.3 * self.patience if heals else 0.0)

    # -- lives ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live, as often as it takes until the run has ended.

        Raises:
            Exception: What ended it, if that was none of the faults that end a life.
        """
        while not self._lived():
            self.ledger.lives += 1

    def _lived(self) -> bool:
        """Begin the process, or resume what it left; return whether the run came to its end."""
        disk, ended = self.disk, True
        try:
            self._live()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            refused = disk is not None and disk.failed and isinstance(_first(error), StoreFault)
            if disk is None or not (disk.dead or refused):
                raise
            ended = False
        finally:
            if self.watch is not None:
                self.log += self.watch.log or ()
        if self.watch is not None and self.watch.violated is not None:
            raise self.watch.violated
        if disk is not None:
            self.ledger.look(disk.engine)
            ended = ended and not disk.dead
        return ended

    def _live(self) -> None:
        self.watch = self.look = None
        store, origin, past = self._opened()
        start = 0.0 if origin is None else origin.seconds
        if self.disk is not None:
            self.disk.begin(start)
        share, most = float(self.shaped["delay_share"]), float(self.shaped["delay_seconds"])
        simulate(
            self._main(store, origin, past),
            seed=self.case.seed + self.ledger.lives - 1,
            start=start,
            perturb=Perturbation(latency_share=share, latency_seconds=(1.0, most)),
            max_events=MAX_EVENTS * (1 + self.shaped["hours"]),
            on_advance=self._on_advance,
            every_seconds=LOOK_SECONDS if not self.shaped["hours"] else LONG_LOOK_SECONDS,
            on_end=self.reports.append,
        )

    def _opened(self) -> tuple[Store, Origin | None, Past]:
        """Return the store, where the run goes on, and what it left there; as ``dartsim resume`` does it."""
        disk, ledger = self.disk, self.ledger
        if disk is None:
            return MemoryStore(), None, NOTHING
        disk.begin(self.reports[-1].virtual_seconds if self.reports else 0.0)
        ledger.recovering = True
        shaped = self.shaped
        store = SqlStore(disk.engine, durability=shaped["durability"], keep=shaped["keep"], settled=True)
        origin = read_origin(store, None) if self.reports else None
        past = ledger.begin(disk.engine, 0 if origin is None else origin.recovered.version)
        if origin is None:
            store.clear()
        else:
            store.save({LIVES: [*origin.lives, origin.told()]})
        return store, origin, past

    async def _main(self, store: Store, origin: Origin | None, past: Past) -> None:
        """Build the system, run it, and look at what is left."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PerturbedLoop)
        self.watch = watch = Watch(self.config, keep_log=self.keep)
        watch.late = self.case.profile != "none" or any(fault.kind == "store_stall" for fault in self.case.faults)
        watched = WatchedStore(watch, store, past)
        watch.updated = past.version
        if self.disk is not None:
            self._mortal(self.disk, watched, loop)
        system = self._build(loop, watched, origin)
        if self.healed < NEVER:
            loop.call_at(self.healed, loop.calm)
        assert self.look is not None
        await system.run(self.seconds - loop.time())
        self.look.at_end(loop.time())

    def _mortal(self, disk: Disk, store: WatchedStore, loop: PerturbedLoop) -> None:
        """Let the disk see what is told, and the process die when it is to."""
        ledger, watch = self.ledger, self.watch
        assert watch is not None

        def die() -> None:
            watch.note("killed", life=ledger.lives)
            store.suspend()

        def kill(fault: Fault) -> None:
            ledger.at_rest()
            with suppress(Killed):
                disk.kill(fault)
            raise SystemExit  # leaves the loop at once, and no task hears of it

        ledger.saying = lambda: (store.told(), store.version)
        disk.now, disk.on_commit, disk.on_death = loop.time, ledger.commit, die
        for fault in disk.kills():
            loop.call_at(fault.start, kill, fault)

    def _on_advance(self, now: float) -> None:
        """Look at everything."""
        if self.look is not None and self.watch is not None and not self.watch.dead and now <= self.seconds:
            self.look.at_rest(now)

    # -- the system -------------------------------------------------------------------------------

    def _build(self, loop: PerturbedLoop, store: WatchedStore, origin: Origin | None) -> System:
        found, config, env, watch = self.found, self.config, loop.env, self.watch
        assert watch is not None
        streams = Streams(self.case.seed, life=self.ledger.lives)
        version = store.version
        rollout = config.rollout
        schedule = Schedule(
            self.case.faults,
            {"desktop": rollout.num_desktops, "worker": rollout.num_workers, "learner": 1, "pool": 1},
            self.struck,
        )
        self.recorder = recorder = Recorder(
            loop.time,
            num_envs=rollout.num_desktops,
            num_workers=rollout.num_workers,
            max_segments=60_000 if self.keep else 0,
            max_snapshots=config.recorder.max_snapshots,
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
        harm = faulted(found, env, streams, recorder)
        made = workers(found, env, streams, None, version=version)
        struck = zip(harm.workers(made), made, strict=True)
        engines = [WatchedWorker(watch, w.index, FaultyWorker(inner, w, schedule), version) for inner, w in struck]
        trainer = harm.learner(learner(config, streams, None))
        trains = FaultyLearner(trainer, schedule, config.cluster.learner.fixed_seconds)
        system = System(
            config,
            tasks=found.tasks,
            provider=WatchedProvider(watch, FaultyProvider(harm.desktops(desktops), schedule, rollout.num_desktops)),
            engines=engines,
            learner=WatchedLearner(watch, trains),
            store=store,
            recorder=recorder,
            streams=streams,
            way=lambda pool: harm.way(way(config, env, pool)),
            successes=success_pool(config),
            weights=Weights(version),
            origin=origin,
            caches=caches(found, made),
        )
        watch.ending = lambda: system.data.ending
        self.look = Look(watch, system, store, engines, machines, healed=self.healed, patience=self.patience)
        for fault, kind in schedule.of("pool", 0):
            if kind.effect == "again" and not schedule.is_past(fault):
                loop.call_at(fault.start, self._publish_again, system, store)
        return system

    def _publish_again(self, system: System, store: WatchedStore) -> None:
        """Let publications that were delivered before arrive once more, the older one last."""
        self.struck["publication_again"] += 1
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
    with mutation() if mutation is not None else nullcontext():
        try:
            play.run()
        except ConfigError:
            raise
        except Exception as error:  # whatever production code raises is a finding
            rule, text = _named(error)
    first = play.watch.violated if play.watch is not None else None
    if first is not None:  # what came after it is its consequence
        rule, text = first.rule, str(first)
    return Outcome(
        case,
        rule,
        text,
        _hash([report.event_hash for report in play.reports]),
        play.reports[-1].virtual_seconds if play.reports else 0.0,
        sum(report.num_events for report in play.reports),
        play.ledger.lives,
        dict(play.struck),
        play.recorder if keep else None,
        play.log,
    )


def _hash(lives: list[str]) -> str:
    """Return the event hash of a run from those of its lives."""
    return lives[0] if len(lives) == 1 else sha256("-".join(lives).encode()).hexdigest()[:16]


def _first(error: BaseException) -> BaseException:
    """Return the first error of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _named(error: BaseException) -> tuple[str, str]:
    """Return the rule that an error stands for, or its name, and its text."""
    error = _first(error)
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
    rest = min(shaped.fault_seconds / 2.0, LONGEST_REST_SECONDS)
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
