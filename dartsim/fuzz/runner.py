"""Runs one case: the production control plane on a modeled cluster with faults, with checked ports."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast

from dartsim.config.schema import FaultWindow
from dartsim.core.errors import ConfigError, StoreFault
from dartsim.core.plugin_errors import describe, leaves, plugin_error
from dartsim.core.ports import Store
from dartsim.core.rng import Streams
from dartsim.core.types import Task, Weights
from dartsim.fuzz.cases import Case, Choice
from dartsim.fuzz.checked_ports import (
    CheckedLearner,
    CheckedProvider,
    CheckedService,
    CheckedWorker,
)
from dartsim.fuzz.checked_store import CheckedStore
from dartsim.fuzz.faulty_database import KINDS as DATABASE_KINDS
from dartsim.fuzz.faulty_database import DatabaseChecks, DatabaseState, FaultyDatabase, ProcessKilled
from dartsim.fuzz.port_monitor import PortMonitor, RuleViolated, StoreFacts
from dartsim.fuzz.space import STORED, CaseSettings, config_of
from dartsim.fuzz.system_checks import NEVER, SystemChecks
from dartsim.observe import Recorder
from dartsim.rollout.cluster import START_TRIES
from dartsim.rollout.sync import RETRY_SECONDS
from dartsim.run.held_out_attempts import held_out_attempts
from dartsim.run.prepare import prepare
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.resume_point import LIVES, ResumePoint, read_resume_point
from dartsim.run.sim_cluster import caches, faulty_cluster, learner, modeled_transport, provider, workers
from dartsim.run.system import System, success_pool
from dartsim.sim import Perturbation, SimReport, run_virtual
from dartsim.sim.faults import FaultyCluster, fault_kinds
from dartsim.sim.faults.kinds import kind_named
from dartsim.sim.perturb import PerturbedLoop
from dartsim.sim.prompts import PromptModel
from dartsim.sim.task_difficulties import TaskDifficulty
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import MAX_CHANGES, SqlStore

CHECK_SECONDS, LONG_CHECK_SECONDS = 8.0, 60.0
"""Virtual seconds between two complete checks, in a short run and in a run of hours."""

LATE_KINDS = frozenset(("store_stall", "worker_slow"))
"""Kinds of faults that delay replies in transport."""

LONGEST_REST_SECONDS = 300.0
"""Longest backoff of a slot whose desktops do not start."""

MAX_EVENTS = 60_000
"""Most events of a life; more indicate polling."""

LOAD_RETRY_SECONDS = RETRY_SECONDS * 2**4
"""Longest wait between two tries to load weights."""


@dataclass(frozen=True)
class CaseResult:
    """Result of a case."""

    case: Case
    rule: str | None
    text: str
    event_hash: str
    seconds: float
    num_events: int
    lives: int
    injected: Mapping[str, int]
    recorder: Recorder | None = None
    log: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return self.rule is not None


Mutation = Callable[[], AbstractContextManager[None]]
"""A planted bug: a context manager that changes production code."""


class _CaseRun:
    """A run in progress, with a new life after each kill of the process and each failure of the store."""

    def __init__(self, case: Case, *, keep: bool) -> None:
        for fault in case.faults:
            kind_named(fault.kind)
        self.case = case
        self.prepared = _models(case.preset, tuple(sorted(case.choices.items())), case.profile)
        self.settings = CaseSettings(case.choices)
        self.config = self.prepared.config
        self.keep = keep
        self.monitor: PortMonitor | None = None
        self.checks: SystemChecks | None = None
        self.recorder: Recorder | None = None
        self.log: list[tuple[float, str, dict[str, Any]]] = []
        self.counts: Counter[str] = Counter()
        self.reports: list[SimReport] = []
        self.database_checks = DatabaseChecks()
        stored = any(fault.kind in STORED for fault in case.faults)
        self.database = FaultyDatabase(case.faults, self.counts) if stored else None
        self.patience = _patience(self.prepared, self.settings)
        heals = bool(self.settings["healed"])
        self.healed = self.settings.fault_seconds if heals else NEVER
        self.seconds = self.settings.fault_seconds + (1.3 * self.patience if heals else 0.0)

    def run(self) -> None:
        """Start lives until the run has ended.

        Raises:
            Exception: If a life ended by anything but a fault.
        """
        while not self._run_life():
            self.database_checks.lives += 1

    def _run_life(self) -> bool:
        """Start or resume the process; return whether the run ended."""
        database, ended = self.database, True
        try:
            self._simulate_life()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            refused = database is not None and database.failed and isinstance(next(leaves(error)), StoreFault)
            if database is None or not (database.dead or refused):
                raise
            ended = False
        finally:
            if self.monitor is not None:
                self.log += self.monitor.log or ()
        if self.monitor is not None and self.monitor.violated is not None:
            raise self.monitor.violated
        if database is not None:
            self.database_checks.check(database)
            ended = ended and not database.dead
        return ended

    def _simulate_life(self) -> None:
        self.monitor = self.checks = None
        store, resume_point, past = self._open()
        start = 0.0 if resume_point is None else resume_point.seconds
        if self.database is not None:
            self.database.begin(start)
        share, most = float(self.settings["delay_share"]), float(self.settings["delay_seconds"])
        run_virtual(
            self._main(store, resume_point, past),
            seed=self.case.seed + self.database_checks.lives - 1,
            start=start,
            perturb=Perturbation(latency_share=share, latency_seconds=(1.0, most)),
            max_events=MAX_EVENTS * (1 + self.settings["hours"]),
            on_advance=self._on_advance,
            every_seconds=CHECK_SECONDS if not self.settings["hours"] else LONG_CHECK_SECONDS,
            on_end=self.reports.append,
        )

    def _open(self) -> tuple[Store, ResumePoint | None, DatabaseState]:
        """Return the store, the resume point, and the store's expected state, as ``dartsim run`` opens them."""
        database, checks = self.database, self.database_checks
        if database is None:
            return MemoryStore(), None, DatabaseState({}, StoreFacts(), None)
        database.begin(self.reports[-1].virtual_seconds if self.reports else 0.0)
        checks.recovering = True
        settings = self.settings
        store = SqlStore(database, max_changes=1 if settings["durability"] == "each" else MAX_CHANGES)
        resume_point = read_resume_point(store, None) if self.reports else None
        past = checks.begin(database, 0 if resume_point is None else resume_point.recovered.version)
        if resume_point is None:
            store.clear()
        else:
            store.save({LIVES: [*resume_point.lives, resume_point.as_json()]})
        return store, resume_point, past

    async def _main(self, store: Store, resume_point: ResumePoint | None, past: DatabaseState) -> None:
        """Build the system, run it, and check its end state."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PerturbedLoop)
        self.monitor = monitor = PortMonitor(self.config, keep_log=self.keep)
        monitor.late = self.case.profile != "none" or any(fault.kind in LATE_KINDS for fault in self.case.faults)
        checked = CheckedStore(monitor, store, past.facts)
        monitor.updated = past.facts.version
        monitor.tasks = frozenset(task.id for task in self.prepared.tasks)
        if self.database is not None:
            self._connect(self.database, checked, loop)
        system, faults = self._build(loop, checked, resume_point, past.learned)
        if self.healed < NEVER:
            loop.call_at(self.healed, loop.calm)
        assert self.checks is not None
        await system.run(self.seconds - loop.time())
        ended = loop.time()
        await faults.settle()
        self.checks.at_end(ended)

    def _connect(self, database: FaultyDatabase, store: CheckedStore, loop: PerturbedLoop) -> None:
        """Connect the database to the store's transitions, and schedule the kills of the process."""
        checks, monitor = self.database_checks, self.monitor
        assert monitor is not None

        def die() -> None:
            monitor.note("killed", life=checks.lives)
            store.suspend()

        def kill(fault: FaultWindow) -> None:
            if not database.failed:  # otherwise its last transaction was refused and the run is about to end
                checks.at_rest()
            with suppress(ProcessKilled):
                database.kill(fault)
            raise SystemExit  # leaves the loop immediately, without cancelling tasks

        def read() -> DatabaseState:
            return DatabaseState(
                store.states(), store.facts.copy(), None if self.checks is None else self.checks.scheduler_memory()
            )

        monitor.failed = lambda: database.failed
        checks.read = read
        database.now, database.on_commit, database.on_death = loop.time, checks.commit, die
        for fault in database.kills():
            loop.call_at(fault.at_seconds, kill, fault)

    def _on_advance(self, now: float) -> None:
        if self.checks is not None and self.monitor is not None and not self.monitor.dead and now <= self.seconds:
            self.checks.at_rest(now)

    def _build(
        self, loop: PerturbedLoop, store: CheckedStore, resume_point: ResumePoint | None, learned: Any
    ) -> tuple[System, FaultyCluster]:
        prepared, config, env, monitor = self.prepared, self.config, loop.env, self.monitor
        assert monitor is not None
        streams = Streams(self.case.seed, life=self.database_checks.lives)
        version = store.facts.version
        rollout = config.rollout
        self.recorder = recorder = Recorder(
            loop.time,
            num_envs=rollout.num_desktops,
            num_engines=rollout.num_engines,
            max_segments=60_000 if self.keep else 0,
            max_snapshots=10,
            first_spacing_seconds=60.0,
        )
        windows = [fault for fault in self.case.faults if fault.kind not in DATABASE_KINDS]
        faults = faulty_cluster(prepared, env, streams, self.counts, windows)
        desktops = provider(prepared, env, streams)
        sim_workers = workers(prepared, env, streams, None, version=version)
        pairs = zip(faults.workers(sim_workers), sim_workers, strict=True)
        successes = success_pool(config)
        trains = CheckedLearner(monitor, faults.learner(learner(prepared, None)), store)
        engines = [CheckedWorker(monitor, inner, engine, version) for inner, engine in pairs]
        system = System(
            config,
            tasks=prepared.tasks,
            provider=CheckedProvider(monitor, faults.provider(desktops)),
            engines=engines,
            learner=trains,
            held_out=held_out_attempts(prepared, trains),
            store=cast("Store", store),
            recorder=recorder,
            streams=streams,
            transport=lambda pool: CheckedService(monitor, faults.transport(modeled_transport(config, env, pool))),
            successes=successes,
            weights=Weights(version),
            resume_point=resume_point,
            caches=caches(prepared, sim_workers),
        )
        machines = list(dict.fromkeys(desktops.hosts))
        self.checks = SystemChecks(
            monitor, system, store, engines, machines, successes, healed=self.healed, patience=self.patience
        )
        self.checks.check_resumed(learned)
        for fault in windows:
            if fault.kind == "publication_repeated" and fault.at_seconds >= loop.time():
                loop.call_at(fault.at_seconds, self._publish_again, system, store)
        return system, faults

    def _publish_again(self, system: System, store: CheckedStore) -> None:
        """Repeat earlier publications, the oldest one last."""
        self.counts["fault/publication_repeated"] += 1
        for version in (store.facts.version, max(0, store.facts.version - 1)):
            system.pool.sync.publish(Weights(version))


def run_case(case: Case, *, mutation: Mutation | None = None, keep: bool = False) -> CaseResult:
    """Run a case to its end, or to the first broken rule.

    Raises:
        ConfigError: If the case is invalid.
    """
    result = _result(case, mutation, keep)
    if result.failed:
        # Closes the coroutines that did not end. If CPython 3.11 closes them at any later allocation, and one of them
        # resets a context variable while another is being set, the process crashes.
        gc.collect()
    return result


def _result(case: Case, mutation: Mutation | None, keep: bool) -> CaseResult:
    run = _CaseRun(case, keep=keep)
    rule, text = None, ""
    with mutation() if mutation is not None else nullcontext():
        try:
            run.run()
        except ConfigError:
            raise
        except Exception as error:  # any error in production code is a failure
            rule, text = _rule_and_text(error)
    first = run.monitor.violated if run.monitor is not None else None
    if first is not None:  # later errors are its consequences
        rule, text = first.rule, str(first)
    lives = [report.event_hash for report in run.reports]
    return CaseResult(
        case,
        rule,
        text,
        lives[0] if len(lives) == 1 else sha256("-".join(lives).encode()).hexdigest()[:16],
        run.reports[-1].virtual_seconds if run.reports else 0.0,
        sum(report.num_events for report in run.reports),
        run.database_checks.lives,
        {name: run.counts[f"fault/{name}"] for name in fault_kinds() if run.counts[f"fault/{name}"]},
        run.recorder if keep else None,
        run.log,
    )


def _rule_and_text(error: BaseException) -> tuple[str, str]:
    """Return the rule that an error names, or the name of its type, and its text."""
    error = plugin_error(error) or next(leaves(error))
    if isinstance(error, RuleViolated):
        return error.rule, str(error)
    return type(error).__name__, describe(error)


def _patience(prepared: PreparedRun, settings: CaseSettings) -> float:
    """Return a generous limit for the time until every component of a healed cluster has made progress, seconds."""
    config, timing = prepared.config, prepared.timing
    envs, turns = config.rollout.num_desktops, config.rollout.max_turns
    engine, update = config.cluster.engine, config.cluster.learner
    boots = (timing.start.mean + timing.boot.mean + timing.teardown.mean) * (1 + envs / config.cluster.hosts.count)
    reply = engine.overhead_seconds + envs * (engine.control_seconds + 3.0)
    attempt = boots + timing.setup.mean + timing.evaluate.mean + turns * (timing.step.mean + reply)
    loads = config.rollout.num_workers * (engine.reload_seconds + reply)
    stretched = float(settings["delay_seconds"]) * (1 + envs) if settings["delay_share"] else 0.0
    # The backoff of a slot doubles, so the last one may take half of the time with faults.
    rest = min(settings.fault_seconds / 2.0, LONGEST_REST_SECONDS)
    limits = config.limits
    hung = START_TRIES * limits.start_seconds + limits.setup_seconds + limits.load_seconds
    waits = LOAD_RETRY_SECONDS + rest + (hung if config.cluster.faults.profile != "none" else 0.0)
    return waits + 2.0 * attempt + 2.0 * update.fixed_seconds + loads + stretched


@lru_cache(maxsize=64)
def _models(preset: str, choices: tuple[tuple[str, Choice], ...], profile: str) -> PreparedRun:
    """Prepare a case's configuration, with the case's success rate for every task."""
    case = Case(preset, 0, dict(choices), (), profile)
    prepared = prepare(config_of(case))
    settings = CaseSettings(case.choices)
    held_out = [Task(f"held-out-{number}", "Do it.") for number in range(settings["held_out"])]
    difficulties = {task.id: TaskDifficulty(float(settings["success"])) for task in (*prepared.tasks, *held_out)}
    return replace(prepared, held_out=held_out, difficulties=difficulties, prompts=_prompts(prepared.prompts))


@lru_cache(maxsize=8)
def _prompts(prompts: PromptModel) -> PromptModel:
    """Return the first of equal prompt models, so that its tables are computed only once."""
    return prompts
