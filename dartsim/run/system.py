"""``System``: the control plane, assembled over whatever backend it is given, and run for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dartsim.config import Config
from dartsim.curation import (
    AttemptsBySuccess,
    AttemptsRule,
    BatchRule,
    DataManager,
    FixedAttempts,
    FixedTurnLimit,
    GroupRule,
    StalenessRule,
    TaskOrder,
    Units,
)
from dartsim.ports import EnvProvider, Learner, PolicyWorker, Store, SyncMode
from dartsim.rng import Streams
from dartsim.rollout import (
    EnvCluster,
    LeastInFlight,
    Limits,
    LockStepService,
    Rollout,
    RolloutService,
    Router,
    Service,
    SessionAffine,
    StartRule,
    SyncPlan,
)
from dartsim.trace import Trace
from dartsim.trainer import RetryRule, Trainer
from dartsim.types import Task, Weights


class System:
    """Rollout, curation and trainer over a backend's desktops, workers and learner.

    Args:
        config: The configuration.
        tasks: What is offered.
        provider: Starts desktops.
        engines: The inference workers, at version 0.
        learner: Trains.
        store: Keeps states of trajectories.
        trace: Measures.
        streams: Random streams of the run's seed.
        way: Puts the way between desktops and pool in front of the pool.
    """

    def __init__(
        self,
        config: Config,
        *,
        tasks: Sequence[Task],
        provider: EnvProvider,
        engines: Sequence[PolicyWorker],
        learner: Learner,
        store: Store,
        trace: Trace,
        streams: Streams,
        way: Callable[[Service], Service],
    ) -> None:
        self.trace = trace
        self.data = _data_manager(config, tasks, store, trace, streams)
        self.pool = RolloutService(
            engines,
            weights=Weights(0),
            router=_router(config),
            plan=_sync_plan(config),
            trace=trace,
            max_tries=config.rollout.request_tries,
        )
        service = way(self.pool)
        if config.rollout.lock_step:
            service = LockStepService(service)
        rollout = config.rollout
        rule = StartRule(
            tries=rollout.start_tries,
            backoff_seconds=rollout.start_backoff_seconds,
            start_seconds=rollout.limits.start_seconds,
            close_seconds=rollout.limits.close_seconds,
        )
        self.cluster = EnvCluster(provider, num_envs=rollout.num_envs, rule=rule, trace=trace)
        self.rollout = Rollout(self.cluster, service, self.data, limits=_limits(config), trace=trace)
        self.trainer = Trainer(
            learner,
            source=self.data,
            publisher=self.pool,
            trace=trace,
            wait_for_sync=config.trainer.wait_for_sync,
            retry=RetryRule(
                first_seconds=config.trainer.retry_seconds,
                longest_seconds=config.trainer.retry_longest_seconds,
                max_failures=config.trainer.max_failures,
            ),
        )

    async def run(self, seconds: float) -> None:
        """Run for ``seconds`` of loop time, then end every attempt and account for all of them.

        Raises:
            InvariantViolated: If an attempt is unaccounted for in the end.
            LearnerFault: If updates failed too often in a row.
        """
        try:
            await self._run_parts(seconds)
        except BaseExceptionGroup as group:
            raise _only_error(group) from None
        finally:
            self.data.close()
            self.trace.close()
        self.data.check()

    async def _run_parts(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as parts:
            tasks = [
                parts.create_task(self.pool.run(), name="weight-sync"),
                parts.create_task(self.trainer.run(), name="trainer"),
                parts.create_task(self.rollout.run(), name="rollout"),
            ]
            try:
                await asyncio.sleep(seconds)
            finally:
                # Before anything is cancelled: a slot that goes must not make room for another attempt.
                self.data.end_admission()
            for task in tasks:
                task.cancel()


def _only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error of nested task groups; the group itself if there are several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _data_manager(config: Config, tasks: Sequence[Task], store: Store, trace: Trace, streams: Streams) -> DataManager:
    curation, rollout = config.curation, config.rollout
    groups, staleness = curation.groups, curation.staleness
    return DataManager(
        order=TaskOrder(tasks, streams.rng("curation/tasks")),
        attempts=_attempts_rule(config),
        group_rule=GroupRule(
            min_size=groups.min_size,
            drop_all_failed=groups.drop_all_failed,
            drop_solved=groups.drop_solved,
            max_mean_reward=groups.max_mean_reward,
            drop_equal=groups.drop_equal,
        ),
        batch_rule=BatchRule(min_groups=curation.batch.min_groups, max_groups=curation.batch.max_groups),
        staleness=StalenessRule(bound=staleness.bound, measured_by=staleness.measured_by),
        units=Units(rollout.unit, num_envs=rollout.num_envs, attempts_per_task=curation.attempts.most),
        store=store,
        trace=trace,
        turn_limits=FixedTurnLimit(rollout.max_turns),
        max_ahead=curation.max_ahead,
        max_replacements=curation.attempts.max_replacements,
        seed=streams.seed_of("curation/attempts"),
    )


def _attempts_rule(config: Config) -> AttemptsRule:
    attempts = config.curation.attempts
    if attempts.rule == "fixed":
        return FixedAttempts(attempts.most)
    return AttemptsBySuccess(most=attempts.most, least=attempts.least, threshold=attempts.threshold)


def _router(config: Config) -> Router:
    routing = config.rollout.routing
    return LeastInFlight() if routing.rule == "least_in_flight" else SessionAffine(routing.max_excess)


def _sync_plan(config: Config) -> SyncPlan:
    sync = config.rollout.sync
    size = None if sync.workers_at_a_time == "all" else sync.workers_at_a_time
    return SyncPlan(mode=SyncMode(sync.mode), workers_at_a_time=size)


def _limits(config: Config) -> Limits:
    limits = config.rollout.limits
    return Limits(
        setup_seconds=limits.setup_seconds,
        request_seconds=limits.request_seconds,
        step_seconds=limits.step_seconds,
        evaluate_seconds=limits.evaluate_seconds,
        lease_seconds=limits.lease_seconds,
    )
