"""The particulars of what each part of a system waits for: which group lacks what, which worker loads which version."""

from __future__ import annotations

from dartsim.core.ports import Store
from dartsim.curation import DataManager
from dartsim.observe import DesktopState, Part, Recorder, TrainerState, WorkerState
from dartsim.rollout import EnvCluster, RolloutService
from dartsim.trainer import Trainer

LENT = frozenset(
    {
        DesktopState.STARTING,
        DesktopState.SETUP,
        DesktopState.GENERATING,
        DesktopState.SYNC_WAIT,
        DesktopState.TURN_WAIT,
        DesktopState.ACTING,
        DesktopState.EVALUATING,
        DesktopState.CLOSING,
        DesktopState.WAIT_START,
    }
)
"""States in which a slot serves an attempt."""


class SystemWords:
    """Tells a system's recorder what its parts wait for. It is asked when somebody looks, and changes nothing.

    Args:
        recorder: Given the words.
        cluster: The desktops.
        pool: The workers.
        data: The data manager.
        trainer: The trainer.
        store: The data manager's store.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        cluster: EnvCluster,
        pool: RolloutService,
        data: DataManager,
        trainer: Trainer,
        store: Store,
    ) -> None:
        self._recorder = recorder
        self._cluster = cluster
        self._pool = pool
        self._data = data
        self._trainer = trainer
        self._store = store
        recorder.details |= {"desktops": self.slot, "workers": self.worker, "trainer": self.trainer}
        recorder.tellers += [self.sync, self.data, self.store]

    def slot(self, index: int) -> str:
        """Say what a slot works on, or why it has no work."""
        if index >= self._cluster.num_envs:
            return "a spare"
        state = self._recorder.desktops.tracks[index].state
        if state == DesktopState.WAIT_ADMISSION:
            return self._data.waits().room()
        if state == DesktopState.WAIT_UNIT:
            return f"{self._data.unit_running(index)} attempts of its unit run"
        attempt = self._cluster.leases.get(index)
        if attempt is None or state not in LENT:
            return ""
        text = f"attempt {attempt.id} of task {attempt.task.id}, group {attempt.group}"
        asks = state in (DesktopState.GENERATING, DesktopState.SYNC_WAIT)
        return f"{text}; {self._workers()}" if asks and not self._pool.router.num_routable else text

    def _workers(self) -> str:
        states = [WorkerState(worker.track.state).name.lower() for worker in self._pool.workers]
        return "workers: " + ", ".join(f"{states.count(name)} {name}" for name in sorted(set(states)))

    def worker(self, index: int) -> str:
        """Say what a worker serves, and what it comes to."""
        pool = self._pool
        worker = pool.workers[index]
        state = worker.track.state
        text = f"version {worker.version}"
        if state in (WorkerState.LOADING, WorkerState.DRAINING) or worker.version < pool.sync.target:
            text = f"version {worker.version}, loads version {pool.sync.target}"
        if worker.in_flight:
            text += f"; {worker.in_flight} live request{'s' if worker.in_flight > 1 else ''}"
        return text + ("; comes back by itself, nothing waits for it" if worker.apart else "")

    def trainer(self, index: int) -> str:
        """Say what the trainer does, or what its next batch lacks."""
        state = self._recorder.trainer.tracks[0].state
        if state in (TrainerState.WAIT_DATA, TrainerState.WAIT_PUBLISH):
            waits = self._data.waits()
            return waits.publication() if self._data.holds_publication else waits.batch()
        if state == TrainerState.DOWN:
            return f"{self._trainer.failures} failed in a row; {self._trainer.doing} goes back"
        if state == TrainerState.WAIT_SYNC:
            return self._behind()
        return self._trainer.doing if state == TrainerState.TRAINING else ""

    def _behind(self) -> str:
        pool = self._pool
        lacking = [str(worker.index) for worker in pool.workers if worker.version < pool.sync.target]
        if not lacking:
            return ""
        who = f"worker {lacking[0]} lacks" if len(lacking) == 1 else f"workers {', '.join(lacking)} lack"
        return f"{who} version {pool.sync.target}"

    def sync(self) -> Part:
        """Tell of the weight synchronisation."""
        sync, behind = self._pool.sync, self._behind()
        return Part(
            name="weight sync",
            state="changing" if behind else "settled",
            since=sync.since - self._recorder.started,
            waits_for="workers to load their weights" if behind else "new weights",
            woken_by="a worker that drained or loaded" if behind else "the trainer's next publication",
            detail=behind or f"every worker serves version {sync.target}",
        )

    def data(self) -> Part:
        """Tell of the data manager."""
        waits = self._data.waits()
        short = waits.eligible < waits.min_groups
        return Part(
            name="data manager",
            state="collecting" if short else "ready",
            since=self._data.changed - self._recorder.started,
            waits_for="attempts to end" if short else "the trainer to take a batch",
            woken_by="a slot that hands its attempt over" if short else "the trainer, when its update ends",
            detail=f"{waits.batch()}; {waits.running} attempts run, {waits.leased} are trained; {waits.room()}",
        )

    def store(self) -> Part:
        """Tell of the store."""
        kept = ", ".join(f"{number} {name!s}" for name, number in sorted(self._store.counts.items()) if number)
        return Part(
            name="store",
            state="open",
            since=0.0,
            waits_for="something to keep",
            woken_by="an attempt that ends, a batch, an update",
            detail=kept or "nothing is kept yet",
        )
