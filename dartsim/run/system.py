"""``System``: the control plane over the components of a backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf

from typing_extensions import override

from dartsim.config import Config
from dartsim.config.sections.run import RunConfig
from dartsim.core.errors import DartsimError
from dartsim.core.plugin_errors import leaves
from dartsim.core.ports import AttemptSource, BatchSource, EnvProvider, Learner, PolicyWorker, Store
from dartsim.core.rng import Streams
from dartsim.core.time_limit import TimeLimit
from dartsim.core.types import Task, Version, Weights
from dartsim.curation import (
    DataManager,
    EngineCaches,
    GroupFilter,
    Rules,
    StalenessRule,
    SuccessPool,
    TaskFilter,
    slot_groups,
)
from dartsim.curation.rules.task_order import TaskOrder
from dartsim.curation.status import CurationStatus
from dartsim.observe import HELD_OUT, Instrument, Recorder, TrainerState, UpdateRecord
from dartsim.observe.records import Clock
from dartsim.observe.steady import SteadyCheck
from dartsim.rollout import (
    EnvCluster,
    Lender,
    LockstepService,
    RevertingProvider,
    Rollout,
    RolloutService,
    Service,
    WarmProvider,
)
from dartsim.run.held_out_attempts import HeldOutAttempts
from dartsim.run.resume_point import ResumePoint
from dartsim.run.status import SystemStatus
from dartsim.trainer import Trainer


class ActingSystem:
    """Desktops and engines that play the attempts of a source. It evaluates; its subclass ``System`` trains."""

    def __init__(
        self,
        config: Config,
        *,
        source: AttemptSource,
        provider: EnvProvider,
        engines: Sequence[PolicyWorker],
        recorder: Recorder,
        transport: Callable[[Service], Service],
        weights: Weights,
    ) -> None:
        rollout = config.rollout
        self.recorder = recorder
        self.pool = RolloutService(
            engines,
            weights=weights,
            router=rollout.routing.build(),
            config=rollout,
            recorder=recorder,
            lent=len(engines) - rollout.num_workers,
        )
        service = transport(self.pool)
        if rollout.lockstep:
            service = LockstepService(service)
        self.supply: RevertingProvider | WarmProvider | None = None
        """Keeps desktops beyond their attempts; None: each attempt boots its own."""
        if config.desktop.revert != "boot":
            self.supply = RevertingProvider(provider, config.desktop, recorder.counts, limits=rollout.limits)
        elif rollout.warm_envs:
            self.supply = WarmProvider(provider, rollout, recorder.desktops.tracks[rollout.num_envs :], recorder)
        self.cluster = EnvCluster(self.supply or provider, rollout, recorder)
        self.rollout = Rollout(
            self.cluster,
            service,
            source,
            limits=config.limits,
            recorder=recorder,
            fail_at_limit=rollout.fail_at_limit,
        )

    async def play(self) -> None:
        self.recorder.start(())
        try:
            async with self._reused_desktops(), asyncio.TaskGroup() as group:
                sync = group.create_task(self.pool.run(), name="weight-sync")  # it also brings engines back up
                await self.rollout.run()
                sync.cancel()
        except BaseExceptionGroup as errors:
            raise only_error(errors) from None
        finally:
            self.recorder.close()

    @asynccontextmanager
    async def _reused_desktops(self) -> AsyncIterator[None]:
        """Keep desktops beyond their attempts; close them at the end."""
        async with asyncio.TaskGroup() as group:  # they outlive the slots, which return them
            keeping = None if self.supply is None else group.create_task(self.supply.run(), name="desktops")
            yield
            if keeping is not None:
                keeping.cancel()


class System(ActingSystem):
    """Rollout, curation and trainer over a backend's desktops, workers and learner."""

    def __init__(
        self,
        config: Config,
        *,
        tasks: Sequence[Task],
        provider: EnvProvider,
        engines: Sequence[PolicyWorker],
        learner: Learner,
        store: Store,
        recorder: Recorder,
        streams: Streams,
        transport: Callable[[Service], Service],
        successes: SuccessPool | None = None,
        weights: Weights | None = None,
        resume_point: ResumePoint | None = None,
        caches: EngineCaches | None = None,
        held_out: HeldOutAttempts | None = None,
    ) -> None:
        self.end = RunEnd(config.run)
        self.data = _data_manager(config, tasks, store, recorder, streams, successes, caches)
        self.last_status: CurationStatus | None = None
        """What admission and the next batch waited for when the run ended."""
        super().__init__(
            config,
            source=held_out or self.data,
            provider=provider,
            engines=engines,
            recorder=recorder,
            transport=transport,
            weights=weights or Weights(0),
        )
        self._held_out = held_out
        if held_out is not None:
            held_out.source = self.data
        self.data.withdraw = self.rollout.withdraw
        batches: BatchSource = self.data
        if self.pool.lent:
            batches = Lender(
                self.data,
                self.pool,
                config.rollout.lending.build(),
                recorder,
                batch_groups=config.curation.batch.min_groups,
                publish_every=config.trainer.publish_every,
            )
        self.trainer = Trainer(
            held_out or learner,
            source=batches,
            publisher=self.pool,
            recorder=recorder,
            wait_for_sync=config.trainer.wait_for_sync,
            publish_every=config.trainer.publish_every,
            before_publication=None if config.trainer.publish_wait == "nothing" else self.data.before_publication,
            # With publish_wait "batch", publication waits for the batch that the trainer needs next anyway.
            wait_state=TrainerState.WAIT_DATA if config.trainer.publish_wait == "batch" else TrainerState.WAIT_PUBLISH,
        )
        recorder.status_source = SystemStatus(
            recorder=recorder, cluster=self.cluster, pool=self.pool, data=self.data, trainer=self.trainer
        )
        if resume_point is not None:
            resume_point.restore(self.data, recorder, tasks)
            self.end.resume(resume_point, self.data.ledger.trainer_version)

    async def run(self, seconds: float, instruments: Sequence[Instrument] = ()) -> None:
        """Run until the configured end; then account for every attempt.

        Raises:
            InvariantViolated: If an attempt is unaccounted for at the end.
            LearnerFault: If too many updates failed in a row.
        """
        self.recorder.start([*instruments, self.end])  # last, because it reads the alarms that instruments raise
        try:
            async with self._reused_desktops():
                await self._run_control(seconds)
        except BaseExceptionGroup as group:
            raise only_error(group) from None
        finally:
            self.data.close()
            self.recorder.close()
        if self.data.failure is not None:  # in a slot that was closing its desktop
            raise self.data.failure
        self.data.ledger.check()

    async def _run_control(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.pool.run(), name="weight-sync"),
                group.create_task(self.trainer.run(), name="trainer"),
                group.create_task(self.rollout.run(), name="rollout"),
            ]
            try:
                await self._until(seconds)
                self.last_status = self.data.status()
            except BaseException:
                self.data.suspend(failed=any(map(_failed, tasks)))
                raise
            finally:
                # Before anything is canceled: a slot that ends must not admit another attempt.
                self.data.end_admission()
                if self._held_out is not None:
                    self._held_out.close()
            for task in tasks:
                task.cancel()

    async def _until(self, seconds: float) -> None:
        with suppress(TimeoutError), TimeLimit(seconds):
            await self.end.reached.wait()


class RunEnd(Instrument):
    """Ends a run early: after its updates, at its target success rate, once it is steady, or on an alarm."""

    def __init__(self, config: RunConfig) -> None:
        self._num_updates = config.updates
        self._target_success = inf if config.target_success is None else config.target_success
        self._fail_on_alarm = config.fail_on_alarm
        self._recorder: Recorder | None = None
        self.steady = None if config.until_steady is None else SteadyCheck(config.until_steady)
        self.reached = asyncio.Event()
        self.alarm: str | None = None
        """Name of the alarm that ended the run."""

    def resume(self, resume_point: ResumePoint, version: Version) -> None:
        """End a resumed run at once if it crashed between its last update and its end."""
        last = resume_point.updates[-1] if not resume_point.longer and resume_point.updates else None
        done = self._num_updates is not None and version >= self._num_updates
        if done or (last is not None and self._is_target(last)):
            self.reached.set()

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder
        if self.steady is not None:
            self.steady.start(recorder.measure())

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        if record.update == self._num_updates or self._is_target(record) or self._is_steady():
            self.reached.set()

    @override
    def snapshot_taken(self) -> None:
        self._check_alarms()

    @override
    def time_advanced(self, now: float) -> None:
        self._check_alarms()

    def _check_alarms(self) -> None:
        if not self._fail_on_alarm or self._recorder is None:
            return
        standing = next((alarm for alarm in self._recorder.alarms if alarm.cleared is None), None)
        if standing is not None:
            self.alarm = self.alarm or standing.name
            self.reached.set()

    def _is_steady(self) -> bool:
        if self.steady is None or self._recorder is None:
            return False
        self.steady.update_finished(self._recorder.measure())
        return self.steady.reached

    def _is_target(self, record: UpdateRecord) -> bool:
        """Return whether an update's weights were evaluated and reach the target."""
        return record.metrics.get(HELD_OUT, 0.0) >= self._target_success


def new_recorder(config: Config, clock: Clock, *, first_spacing_seconds: float) -> Recorder:
    """Return the configured recorder; its first snapshots are ``first_spacing_seconds`` apart, less in a short run."""
    return Recorder(
        clock,
        num_envs=config.rollout.num_desktops,
        num_engines=config.rollout.num_engines,
        max_segments=config.run.max_segments,
        first_spacing_seconds=min(first_spacing_seconds, 36.0 * config.run.hours),
    )


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


def only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error of nested task groups, the first of equal ones; the group itself if they differ."""
    first, *others = leaves(group)
    alike = isinstance(first, DartsimError) and all(type(leaf) is type(first) for leaf in others)
    return first if alike or not others else group


def _data_manager(
    config: Config,
    tasks: Sequence[Task],
    store: Store,
    recorder: Recorder,
    streams: Streams,
    successes: SuccessPool | None,
    caches: EngineCaches | None,
) -> DataManager:
    curation, rollout = config.curation, config.rollout
    group_size = curation.attempts.group_size
    order: TaskOrder = curation.task_order.build(tasks=tasks, rng=streams.rng("curation/tasks"))
    if curation.task_filter.enabled:
        order = TaskFilter(order, curation.task_filter, num_tasks=len(tasks), pool=successes)
    rules = Rules(
        order=order,
        attempts=curation.attempts.build(),
        turn_limits=curation.turn_limit.build(max_turns=rollout.max_turns),
        admission=curation.admission.build(
            batch_groups=curation.batch.max_groups, group_size=group_size, caches=caches
        ),
        group_filter=GroupFilter(curation.groups),
        batch_rule=curation.batch.build(),
        staleness=StalenessRule(curation.staleness),
        pool=successes,
        publish_wait=config.trainer.publish_wait,
    )
    return DataManager(
        rules,
        slot_groups=slot_groups(rollout.unit, num_envs=rollout.num_envs, attempts_per_task=group_size),
        store=store,
        recorder=recorder,
        seed=streams.seed_of("curation/attempts"),
    )


def success_pool(config: Config) -> SuccessPool | None:
    """Return the configured pool of stored successes, empty; None if there is none."""
    pool = config.curation.pool
    return SuccessPool(pool) if pool.enabled else None
