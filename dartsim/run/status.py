"""Detailed status of each component: which group is incomplete, which engine loads which version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from dartsim.core.words import plural
from dartsim.curation import DataManager
from dartsim.observe import ComponentStatus, DesktopState, EngineState, Recorder, StatusSource, TrainerState
from dartsim.rollout import EnvCluster, RolloutService
from dartsim.trainer import Trainer

LEASED = frozenset(
    {
        DesktopState.STARTING,
        DesktopState.SETUP,
        DesktopState.GENERATING,
        DesktopState.SYNC_WAIT,
        DesktopState.TURN_WAIT,
        DesktopState.ACTING,
        DesktopState.SCORE_WAIT,
        DesktopState.EVALUATING,
        DesktopState.CLOSING,
        DesktopState.WAIT_START,
    }
)
"""States in which a slot serves an attempt."""


@dataclass(eq=False, kw_only=True)
class SystemStatus(StatusSource):
    """Says what the components of a system wait for; computed on request, without side effects."""

    recorder: Recorder
    cluster: EnvCluster
    pool: RolloutService
    data: DataManager
    trainer: Trainer

    def __post_init__(self) -> None:
        self._details: Mapping[str, Callable[[int], str]] = {
            "desktops": self._slot,
            "engines": self._engine,
            "trainer": lambda _: self._trainer_detail(),
        }

    @override
    def detail(self, population: str, index: int) -> str:
        return self._details[population](index)

    @override
    def components(self) -> Sequence[ComponentStatus]:
        return [self._sync_status(), self._data_status()]

    def _slot(self, index: int) -> str:
        if index >= self.cluster.num_envs:
            return "a spare"
        state = self.recorder.desktops.tracks[index].state
        if state == DesktopState.WAIT_ADMISSION:
            return self.data.status().admission()
        if state == DesktopState.WAIT_UNIT:
            return f"{self.data.unit_running(index)} attempts of its unit run"
        attempt = self.cluster.leases.get(index)
        if attempt is None or state not in LEASED:
            return ""
        text = f"attempt {attempt.id} of task {attempt.task.id}, group {attempt.group}"
        asks = state in (DesktopState.GENERATING, DesktopState.SYNC_WAIT)
        return f"{text}; {self._engine_states()}" if asks and not self.pool.router.num_routable else text

    def _engine_states(self) -> str:
        states = [EngineState(worker.track.state).info.label for worker in self.pool.workers]
        return "engines: " + ", ".join(f"{states.count(name)} {name}" for name in sorted(set(states)))

    def _engine(self, index: int) -> str:
        pool = self.pool
        worker = pool.workers[index]
        state = worker.track.state
        if state == EngineState.OFF:
            return "its GPU is the trainer's, which lends it while it waits for data"
        text = f"version {worker.version}"
        if state in (EngineState.LOADING, EngineState.DRAINING) or worker.version < pool.sync.target:
            text = f"version {worker.version}, loads version {pool.sync.target}"
        if worker.in_flight:
            text += f"; {plural(worker.in_flight, 'live request')}"
        return text + ("; comes back by itself, nothing waits for it" if worker.out_of_rotation else "")

    def _trainer_detail(self) -> str:
        """Return what the trainer is doing, or what its next batch lacks."""
        state = self.recorder.trainer.tracks[0].state
        if state in (TrainerState.WAIT_DATA, TrainerState.LENT, TrainerState.WAIT_PUBLISH):
            waits = self.data.status()
            return waits.publication() if self.data.holds_publication else waits.batch()
        if state == TrainerState.DOWN:
            return f"{self.trainer.failures} failed in a row; {self.trainer.doing} goes back"
        if state == TrainerState.WAIT_SYNC:
            return self._behind()
        return self.trainer.doing if state == TrainerState.TRAINING else ""

    def _behind(self) -> str:
        pool = self.pool
        here = [worker for worker in pool.workers if worker.track.state != EngineState.OFF]
        lacking = [str(worker.index) for worker in here if worker.version < pool.sync.target]
        if not lacking:
            return ""
        who = f"engine {lacking[0]} lacks" if len(lacking) == 1 else f"engines {', '.join(lacking)} lack"
        return f"{who} version {pool.sync.target}"

    def _sync_status(self) -> ComponentStatus:
        sync, behind = self.pool.sync, self._behind()
        return ComponentStatus(
            name="weight sync",
            state="syncing" if behind else "settled",
            since=sync.since - self.recorder.started,
            waits_for="engines to load their weights" if behind else "new weights",
            woken_by="an engine that drained or loaded" if behind else "the trainer's next publication",
            detail=behind or f"every engine serves version {sync.target}",
        )

    def _data_status(self) -> ComponentStatus:
        waits = self.data.status()
        short = waits.eligible < waits.min_groups
        return ComponentStatus(
            name="data manager",
            state="collecting" if short else "ready",
            since=self.data.changed - self.recorder.started,
            waits_for="attempts to end" if short else "the trainer to take a batch",
            woken_by="a slot that hands its attempt over" if short else "the trainer, when its update ends",
            detail=f"{waits.batch()}; {waits.running} attempts run, {waits.leased} are trained; {waits.admission()}",
        )
