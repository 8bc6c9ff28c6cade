"""Checks of the whole system: whenever the loop is at rest, after all faults have healed, and at the end of a run."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from math import inf

from dartsim.core.types import TrajectoryState, Version
from dartsim.fuzz.checked_ports import SLACK_SECONDS, CheckedWorker, PortMonitor
from dartsim.fuzz.checked_store import CheckedStore
from dartsim.observe import DesktopState, EngineState, TrainerState
from dartsim.run.system import System
from dartsim.sim.host import SimHost
from dartsim.sim.tasks import pending_tasks

NEVER = inf
"""Value of ``healed`` if faults never end."""

FREE = (DesktopState.WAIT_ADMISSION, DesktopState.WAIT_UNIT, DesktopState.OFF)
"""States of a free slot."""

GONE = (EngineState.DRAINING, EngineState.LOADING)
"""States of a worker that a weight sync has taken out."""


class SystemChecks:
    """Checks of a whole system.

    Args:
        monitor: The observations at the ports.
        system: The system.
        store: Its store.
        engines: Its workers.
        hosts: The hosts of its desktops.
        healed: Virtual time after which there are no faults, or ``NEVER``.
        patience: Seconds within which every healed component must make progress.
    """

    def __init__(
        self,
        monitor: PortMonitor,
        system: System,
        store: CheckedStore,
        engines: Sequence[CheckedWorker],
        hosts: Sequence[SimHost],
        *,
        healed: float,
        patience: float,
    ) -> None:
        self._monitor = monitor
        self._system = system
        self._store = store
        self._engines = engines
        self._hosts = hosts
        self._healed = healed
        self._patience = patience
        self._check_times: list[float] = []
        self._admitted: list[int] = []
        """Attempts admitted until each check."""
        self._num_slots = system.cluster.num_envs
        self._target: Version = 0
        """Newest publication."""
        self._published_at = 0.0

    def at_rest(self, now: float) -> None:
        """Check everything; called when nothing is ready and time is about to move to ``now``.

        Raises:
            RuleViolated: If a rule is broken, or was broken at a port before.
        """
        if self._monitor.violated is not None:
            raise self._monitor.violated
        self._accounts()
        self._slots()
        self._calls(now)
        self._workers()
        if self._system.pool.sync.target > self._target:
            self._target, self._published_at = self._system.pool.sync.target, now
        reason = self._system.data.idle_without_reason()
        if reason is not None:
            self._monitor.fail("I8", reason)
        if now >= self._healed + self._patience:
            self._moving(now - self._patience)

    def _accounts(self) -> None:
        ledger, count, monitor = self._system.data.ledger, self._store.count, self._monitor
        self._system.data.check()
        leased, trained, dropped = map(
            count, (TrajectoryState.LEASED, TrajectoryState.TRAINED, TrajectoryState.DROPPED)
        )
        if (ledger.leased, ledger.trained, ledger.dropped) != (leased, trained, dropped):
            monitor.fail(
                "I1",
                f"{ledger.leased} leased, {ledger.trained} trained, {ledger.dropped} dropped; the store has {leased}, "
                f"{trained}, {dropped}",
            )
        if ledger.admitted - len(ledger.running) != len(self._store.seen):
            places = f"{len(ledger.running)} running, {len(self._store.seen)} recorded"
            monitor.fail("I1", f"{ledger.admitted} admitted, {places}")
        most = self._monitor.config.curation.max_ahead
        # Counted by the store, from what published weights contain.
        ahead = ledger.admitted - dropped - trained
        if most is not None and ahead > most:
            monitor.fail("I9", f"{ahead} attempts are ahead of the trainer, {most} are allowed")
        self._check_times.append(monitor.time())
        self._admitted.append(ledger.admitted)

    def _slots(self) -> None:
        """Check that a slot serves one attempt, running or recorded, and that free slots have none."""
        monitor, leases = self._monitor, self._system.cluster.leases
        running = sum(attempt.id not in self._store.seen for attempt in leases.values())
        num_running = len(self._system.data.ledger.running)
        if running != num_running:
            monitor.fail("I1", f"{num_running} attempts run, slots serve {running} that have not ended")
        for track in self._system.recorder.desktops.tracks[: self._num_slots]:
            if track.state not in FREE:
                continue
            if track.index in leases:
                monitor.fail("I9", f"slot {track.index} is free, but lent to attempt {leases[track.index].id}")
            if track.state == DesktopState.WAIT_ADMISSION:
                others = self._admitted[-1] - self._admitted[bisect_left(self._check_times, track.since)]
                if others > 2 * self._num_slots:
                    monitor.fail(
                        "I14", f"slot {track.index} waits since {track.since:g}; {others} others were admitted"
                    )
        kept = self._system.warm is not None or self._system.revert is not None
        if not kept and len(monitor.desktops) > len(leases):
            monitor.fail("I9", f"{len(monitor.desktops)} desktops live for {len(leases)} attempts")
        if len(monitor.desktops) > self._monitor.config.rollout.num_desktops:
            monitor.fail("I9", f"{len(monitor.desktops)} desktops live, more than there are places")

    def _calls(self, now: float) -> None:
        for call in self._monitor.calls.values():
            if call.limit is not None and now > call.began + call.limit + SLACK_SECONDS:
                self._monitor.fail(
                    "I14", f"{call.name} has taken {now - call.began:g} s; its deadline is {call.limit:g}"
                )

    def _workers(self) -> None:
        monitor, pool = self._monitor, self._system.pool
        routable = 0
        for slot, engine in zip(pool.workers, self._engines, strict=True):
            if slot.in_flight != engine.live:
                monitor.fail("I9", f"worker {slot.index}: {slot.in_flight} requests are counted, {engine.live} live")
            if not slot.routable:
                continue
            routable += 1
            if slot.version != engine.version or not engine.usable:
                monitor.fail("I6", f"worker {slot.index} is up as version {slot.version}, and has {engine.version}")
        if routable != pool.router.num_routable:
            monitor.fail("I10", f"{routable} workers are up, {pool.router.num_routable} are counted")
        waiting = [t.index for t in self._system.recorder.desktops.tracks if t.state == DesktopState.SYNC_WAIT]
        if waiting and routable:
            monitor.fail("I8", f"desktops {waiting} wait for a pool that is stopped, and {routable} workers are up")
        if pool.waiting and routable:
            monitor.fail("I8", f"{pool.waiting} requests wait until a worker is up, and {routable} are")
        size = monitor.config.rollout.sync.workers_at_a_time
        taken = sum(slot.track.state in GONE and not slot.apart for slot in pool.workers)
        if size != "all" and taken > size:
            monitor.fail("I10", f"{taken} workers change weights at once, {size} may")

    def _moving(self, since: float) -> None:
        """Check that every component has made progress since a time."""
        monitor = self._monitor
        if monitor.progress < since:
            monitor.fail("I11", f"no attempt was scored and no update done since t={monitor.progress:g}, all is healed")
        for track in self._system.recorder.desktops.tracks[: self._num_slots]:
            if track.since < since and track.state != DesktopState.WAIT_ADMISSION:
                monitor.fail("I11", f"slot {track.index} is {DesktopState(track.state).name} since t={track.since:g}")
        trainer = self._system.recorder.trainer.tracks[0]
        # Data may take long: the tasks determine how many groups are dropped.
        for_data = trainer.state == TrainerState.WAIT_DATA or self._system.data.holds_publication
        if trainer.since < since and not for_data:
            monitor.fail("I11", f"the trainer is {TrainerState(trainer.state).name} since t={trainer.since:g}")
        if self._published_at < since:
            behind = [w.index for w in self._system.pool.workers if w.version < self._target or not w.routable]
            if behind:
                monitor.fail("I11", f"workers {behind} do not serve version {self._target}")

    def at_end(self, seconds: float) -> None:
        """Check the end state of a run, after ``seconds`` of virtual time.

        Raises:
            RuleViolated: If a rule is broken.
        """
        if self._monitor.violated is not None:
            raise self._monitor.violated
        self._drained()
        self._terminal()
        self._times(seconds)

    def _drained(self) -> None:
        monitor, system = self._monitor, self._system
        left: dict[str, Sequence[object]] = {
            "desktops": sorted(monitor.desktops),
            "leases": sorted(system.cluster.leases),
        }
        if monitor.config.cluster.faults.profile == "none":  # otherwise reapers and messages remain
            left |= {
                "calls": [call.name for call in monitor.calls.values()],
                "requests": [worker.index for worker in system.pool.workers if worker.in_flight],
                "jobs": [worker.index for worker in self._engines if worker.engine.engine.num_jobs],
                "hosts": [host.name for host in self._hosts if not _is_empty(host)],
                "tasks": [
                    name for task in pending_tasks(asyncio.get_running_loop()) if (name := task.get_name()) != "main"
                ],
            }
        for what, found in left.items():
            if found:
                monitor.fail("I12", f"{what} are left at the end: {found}")

    def _terminal(self) -> None:
        ledger, store, monitor = self._system.data.ledger, self._store, self._monitor
        self._system.data.check()
        counts = self._system.recorder.counts
        if ledger.running or ledger.leased or store.live:
            monitor.fail(
                "I2", f"{len(ledger.running)} run, {ledger.leased} are leased, {len(store.live)} have no last state"
            )
        if ledger.trained + ledger.dropped != ledger.admitted or len(store.seen) != ledger.admitted:
            monitor.fail("I2", f"{ledger.admitted} admitted, {ledger.trained} trained, {ledger.dropped} dropped")
        if sum(n for name, n in counts.items() if name.startswith("ending/")) != ledger.admitted:
            monitor.fail("I2", "the endings that were counted are not the attempts that were admitted")
        if sum(n for name, n in counts.items() if name.startswith("cause/")) != store.masked:
            monitor.fail("I2", f"{store.masked} attempts are masked, but other causes were counted: {Counter(counts)}")

    def _times(self, seconds: float) -> None:
        """Check that every component was always in one state, and that no host used more than its cores."""
        monitor, last = self._monitor, self._system.recorder.snapshots[-1]
        config = monitor.config.rollout
        sizes = {"desktops": config.num_desktops, "engines": config.num_workers, "trainer": 1}
        for population, size in sizes.items():
            spent = getattr(last, population)
            if min(spent) < 0.0 or abs(sum(spent) - size * seconds) > 1e-6 * max(1.0, size * seconds):
                monitor.fail("I15", f"{population} spent {sum(spent):g} s in their states; {size} x {seconds:g} s were")
        for host in self._hosts:
            if host.cores.core_seconds > host.cores.cores * seconds * (1 + 1e-9):
                monitor.fail("I15", f"{host.name} used {host.cores.core_seconds:g} core seconds in {seconds:g} s")


def _is_empty(host: SimHost) -> bool:
    full = host.memory.level == host.memory.capacity and not host.memory.get_queue
    return bool(full and not host.starts.count and not host.starts.queue and not host.cores.num_jobs)
