"""Checks of the whole system: when the loop is at rest, after all faults have ended, and at the end of a run."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from dartsim.core.types import Attempt, Drop, Ending, StoredSuccess, Task, TrajectoryState, Version, Weights
from dartsim.curation import SuccessPool
from dartsim.fuzz.checked_ports import CheckedWorker
from dartsim.fuzz.checked_store import CheckedStore
from dartsim.fuzz.port_monitor import SLACK_SECONDS, PortMonitor
from dartsim.observe import DesktopState, EngineState, TrainerState
from dartsim.rollout import WarmProvider
from dartsim.run.held_out_attempts import FIRST_ID
from dartsim.run.system import System
from dartsim.sim.host import SimHost
from dartsim.sim.tasks import pending_tasks

NEVER = inf
"""Value of ``healed`` if faults never end."""

FREE = (DesktopState.WAIT_ADMISSION, DesktopState.WAIT_UNIT, DesktopState.OFF)
"""States of a free slot."""

GONE = (EngineState.DRAINING, EngineState.LOADING)
"""States of a worker that a weight sync has taken out of service."""

ASKING = (DesktopState.GENERATING, DesktopState.SYNC_WAIT, DesktopState.TURN_WAIT)
PLAYING = (*ASKING, DesktopState.SETUP, DesktopState.ACTING, DesktopState.EVALUATING)
"""States of a desktop whose attempt waits for a reply, and of one whose attempt is running."""

CLEANUP_SECONDS = 10.0
"""Longest cleanup of an abandoned start, seconds."""

TALLIED = (
    *("trajectories", "trajectory_turns", "rewarded", "admitted_turns", "failed_updates", "updates"),
    *("trained_trajectories", "trained_turns"),
    *(f"ending/{ending}" for ending in Ending),
    *(f"{kind}/{reason}" for kind in ("dropped", "dropped_turns") for reason in Drop),
)
"""Counts of the recorder that follow from the store's transitions."""


class SystemChecks:
    """Checks of a whole system.

    Args:
        monitor: The observations at the ports.
        system: The system.
        store: Its store.
        engines: Its workers.
        hosts: The hosts of its desktops.
        successes: Its success pool, if there is one.
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
        successes: SuccessPool | None = None,
        *,
        healed: float,
        patience: float,
    ) -> None:
        self._monitor = monitor
        self._system = system
        self._store = store
        self._engines = engines
        self._hosts = hosts
        self._successes = successes
        self._healed = healed
        self._patience = patience
        self._check_times: list[float] = []
        self._admitted: list[int] = []
        """Attempts admitted before each check."""
        self._num_slots = system.cluster.num_envs
        self._targets: deque[tuple[float, Version]] = deque([(0.0, 0)])
        """When the workers' target changed, and to which version."""
        self._counted: object = None
        """Facts of the store when the counts were last compared."""
        self._since: dict[tuple[str, int], tuple[object, float]] = {}
        """What each slot is doing, by kind, and since when."""
        curation = monitor.config.curation
        rule, size = curation.admission, curation.batch.max_groups
        bounds = (rule.ahead_batches, rule.open_batches, rule.waiting_batches)
        self._most_open = min((round(most * size) for most in bounds if most is not None), default=None)
        """Groups whose attempts may run; None: any number."""
        ledger = system.data.ledger
        monitor.ending = lambda: system.data.ending
        monitor.admitted = lambda: ledger.admitted
        monitor.running_of = lambda group: [
            a.id for a in ledger.running.values() if a.group == group and a.id not in ledger.withdrawn
        ]
        publish, published, admit = system.pool.publish, system.data.published, system.data.admit

        def check_publish(weights: Weights) -> None:
            self._check_publication(weights.version)
            publish(weights)

        def check_published(version: Version) -> None:
            self._check_settled(version)
            published(version)

        def check_admit(slot: int) -> Awaitable[Attempt | None]:
            monitor.slot_back(slot)
            return admit(slot)

        data: Any = system.data
        data.published, data.admit = check_published, check_admit
        system.pool.publish = check_publish  # type: ignore[method-assign]

    def at_rest(self, now: float) -> None:
        """Check everything; called when nothing is ready and time is about to move to ``now``.

        Raises:
            RuleViolated: If a rule is broken, or was broken at a port before.
        """
        if self._monitor.violated is not None:
            raise self._monitor.violated
        self._accounts()
        self._counts()
        self._slots()
        self._calls(now)
        self._waits(now)
        self._lockstep()
        self._workers()
        if self._system.pool.sync.target > self._targets[-1][1]:
            self._targets.append((now, self._system.pool.sync.target))
        reason = self._system.data.idle_without_reason()
        if reason is not None:
            self._monitor.fail("I8", reason)
        if now >= self._healed + self._patience:
            self._moving(now - self._patience)

    def _accounts(self) -> None:
        ledger, count, monitor = self._system.data.ledger, self._store.count, self._monitor
        self._system.data.ledger.check()
        leased, trained, dropped = map(
            count, (TrajectoryState.LEASED, TrajectoryState.TRAINED, TrajectoryState.DROPPED)
        )
        if (ledger.leased, ledger.trained, ledger.dropped) != (leased, trained, dropped):
            monitor.fail(
                "I1",
                f"{ledger.leased} leased, {ledger.trained} trained, {ledger.dropped} dropped; the store has {leased}, "
                f"{trained}, {dropped}",
            )
        recorded = len(self._store.facts.known)
        if ledger.admitted - len(ledger.running) != recorded:
            monitor.fail("I1", f"{ledger.admitted} admitted, {len(ledger.running)} running, {recorded} recorded")
        if self._most_open is not None:
            groups = {a.group for a in ledger.running.values() if a.id not in ledger.withdrawn}
            if len(groups) > self._most_open:
                monitor.fail("I9", f"attempts of {len(groups)} groups run, {self._most_open} groups may be open")
        self._check_times.append(monitor.time())
        self._admitted.append(ledger.admitted)

    def _slots(self) -> None:
        """Check that a slot serves one attempt, running or recorded, and that free slots have none."""
        monitor, leases = self._monitor, self._system.cluster.leases
        known = self._store.facts.known
        running = sum(attempt.id not in known and attempt.id < FIRST_ID for attempt in leases.values())
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
        supply = self._system.supply
        if supply is None and len(monitor.desktops) > len(leases):
            monitor.fail("I9", f"{len(monitor.desktops)} desktops live for {len(leases)} attempts")
        if len(monitor.desktops) > self._monitor.config.rollout.num_desktops:
            monitor.fail("I9", f"{len(monitor.desktops)} desktops live, more than there are places")
        if isinstance(supply, WarmProvider) and not monitor.ending():
            free, places = set(supply._free), set(range(self._monitor.config.rollout.num_desktops))
            starting = {key[1] for key in monitor.calls if isinstance(key, tuple) and key[0] == "start"}
            if free != places - monitor.desktops.keys() - starting or len(free) != len(supply._free):
                live = f"desktops live in {sorted(monitor.desktops)} and start in {sorted(starting)}"
                monitor.fail("I9", f"places {sorted(supply._free)} of {len(places)} are free; {live}")

    def _counts(self) -> None:
        """Check that the counts of the recorder and the success pool equal the store's."""
        monitor, facts, recorder = self._monitor, self._store.facts, self._system.recorder
        state = (len(facts.known), len(facts.ended), facts.version, facts.leased is None)
        if state == self._counted:
            return
        self._counted = state
        counts, tally, pool = recorder.counts, facts.tally, self._successes
        counted, true = counts.get, tally.get  # a Counter makes up its zeros slowly
        wrong = {name: (counts[name], tally[name]) for name in TALLIED if counted(name, 0) != true(name, 0)}
        pairs = {
            "attempts": (counts["attempts"], self._system.data.ledger.admitted),
            "staleness_max": (recorder.staleness_max, tally["staleness_max"]),
            "staleness": (sum(recorder.staleness.values()), tally["trained_turns"]),
            "staleness_trajectories": (sum(recorder.staleness_trajectories.values()), tally["trained_trajectories"]),
        }
        if pool is not None:
            rescued = tally[f"dropped/{Drop.REPLACED}"]
            pairs |= {
                "rescued": (pool.counts["rescued"], rescued),
                "pool trained": (pool.counts["trained"], tally["pooled_trained"]),
                "stored_online": (pool.counts["stored_online"], tally["stored_online"]),
            }
            entries = pool.entries()
            if len({entry.trajectory.attempt.id for entry in entries}) < len(entries):
                wrong["stored twice"] = (len(entries), 0)
            if rescued == facts.uses.total():  # otherwise a group was dropped after its rescue
                pairs |= {
                    f"uses of {number}": (entry.uses, facts.uses[number])
                    for entry in entries
                    if (number := entry.trajectory.attempt.id) in facts.known
                }
        wrong |= {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if wrong:
            monitor.fail("I1", f"counted, and true: {wrong}")

    def _waits(self, now: float) -> None:
        """Check that no attempt runs or waits for a reply for longer than its limit."""
        monitor, limits, leases = self._monitor, self._monitor.limits, self._system.cluster.leases
        asks = limits.request_seconds
        if monitor.config.rollout.lockstep:  # it waits for the others' replies, acts, and asks again
            asks += limits.step_seconds + limits.request_seconds
        for track in self._system.recorder.desktops.tracks[: self._num_slots]:
            attempt = leases[track.index].id if track.index in leases and track.state in PLAYING else None
            replies = len(monitor.replies.get(attempt, ())) if attempt is not None and track.state in ASKING else None
            for kind, doing, limit in (
                ("play", attempt, limits.lease_seconds + CLEANUP_SECONDS),
                ("request", None if replies is None else (attempt, replies), asks),
            ):
                before, since = self._since.get((kind, track.index), (None, now))
                if doing != before:
                    self._since[kind, track.index] = doing, monitor.time()
                elif doing is not None and now > since + limit + SLACK_SECONDS:
                    monitor.fail("I14", f"{kind} of attempt {attempt} takes since t={since:g}, {limit:g} s are allowed")

    def _lockstep(self) -> None:
        """Check that a turn proceeds once all members have asked or left, and that none proceeds without the others."""
        sessions = self._monitor.sessions.values()
        if not sessions:
            return
        waiting = [session for session in sessions if session.track.state == DesktopState.TURN_WAIT]
        answered = [s for s in waiting if s.replied is not None and s.track.since <= s.replied]
        over = answered or (waiting and len(waiting) == len(sessions))
        if over and not any(session.asking for session in sessions):
            slots = [session.track.index for session in waiting]
            self._monitor.fail("I8", f"slots {slots} wait for a lockstep turn in which nobody asks")
        last = max((session.asked for session in sessions if session.asked is not None), default=-inf)
        if left := [s.track.index for s in sessions if s.opened < last and s.asked != last]:
            self._monitor.fail("I8", f"slots {left} were left out of the lockstep turn of t={last:g}")

    def _check_publication(self, version: Version) -> None:
        stored, every = self._store.facts.version, self._monitor.config.trainer.publish_every
        if version != stored or version % every:
            self._monitor.fail("I6", f"version {version} is published; {stored} is stored, every {every} are published")
        data, wait = self._system.data, self._monitor.config.trainer.publish_wait
        if wait != "nothing" and data.ledger.open and not data.ending:
            self._monitor.fail("I6", f"version {version} is published while {len(data.ledger.open)} groups run")

    def _check_settled(self, version: Version) -> None:
        """Check, when attempts may begin under a version, that the workers have it if the trainer waits for them."""
        pool = self._system.pool
        serving = [worker.version for worker in pool.workers if not worker.out_of_rotation]
        waits = self._monitor.config.trainer.wait_for_sync and not pool.sync._torn
        if version > pool.sync.target or (waits and (not serving or min(serving) < version)):
            self._monitor.fail("I6", f"version {version} counts as published, and the workers serve {serving}")

    def scheduler_memory(self) -> Any:
        """Return what a crash must not change: counts, open groups, and the state that the rules have learned."""
        ledger, rules = self._system.data.ledger, self._system.data._rules
        places = {
            group.id: [group.task.id, group.size, group.planned - group.finished, group.turn_limit]
            + [t.attempt.id for t in group.usable]
            for group in ledger.open.values()
        }
        learned = (rules.order, rules.attempts, rules.turn_limits, rules.pool)
        # Tasks of groups that are stale by then are offered again immediately.
        again = None if self._monitor.config.curation.staleness.requeue else ledger._again
        return _plain([places, ledger.admitted, ledger._drawn, ledger._begun, again, *learned])

    def check_resumed(self, learned: Any) -> None:
        """Compare a resumed scheduler with its state at the last transaction, if there was one.

        Raises:
            RuleViolated: If something was lost.
        """
        if learned is not None and (now := self.scheduler_memory()) != learned:
            self._monitor.fail("I3", f"the scheduler resumes with {now}, and had {learned}")

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
        moving = [slot.index for slot in pool.workers if not (slot.routable or slot.out_of_rotation)]
        behind = [slot.index for slot in pool.workers if slot.routable and slot.version < pool.sync.target]
        if behind and not moving and not pool.sync._torn and pool._returns is not None:
            monitor.fail("I6", f"workers {behind} are up and lack version {pool.sync.target}, and nobody loads it")
        waiting = [t.index for t in self._system.recorder.desktops.tracks if t.state == DesktopState.SYNC_WAIT]
        if waiting and routable:
            monitor.fail("I8", f"desktops {waiting} wait for a pool that is stopped, and {routable} workers are up")
        if pool.waiting and routable:
            monitor.fail("I8", f"{pool.waiting} requests wait until a worker is up, and {routable} are")
        size = monitor.config.rollout.sync.workers_at_a_time
        taken = sum(slot.track.state in GONE and not slot.out_of_rotation for slot in pool.workers)
        if size != "all" and taken > size:
            monitor.fail("I10", f"{taken} workers change weights at once, {size} may")
        trainer = self._system.recorder.trainer.tracks[0].state
        held = [engine.index for engine in self._engines[len(pool.workers) - len(pool.lent) :] if engine.holds_gpu]
        if held and trainer != TrainerState.LENT:
            monitor.fail("I10", f"workers {held} hold the trainer's GPUs while it is {TrainerState(trainer).name}")

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
        lends = trainer.state == TrainerState.LENT
        for_data = lends or trainer.state == TrainerState.WAIT_DATA or self._system.data.holds_publication
        if trainer.since < since and not for_data:
            monitor.fail("I11", f"the trainer is {TrainerState(trainer.state).name} since t={trainer.since:g}")
        while len(self._targets) > 1 and self._targets[1][0] < since:
            self._targets.popleft()
        target = self._targets[0][1]
        pool = self._system.pool
        lent = lends and trainer.since < since
        for worker in pool.workers if lent else pool.workers[: len(pool.workers) - len(pool.lent)]:
            if worker.version < target or (not worker.routable and worker.track.since < since):
                monitor.fail("I11", f"worker {worker.index} does not serve version {target} since t={since:g}")

    def at_end(self, seconds: float) -> None:
        """Check the end state of a run, after ``seconds`` of virtual time.

        Raises:
            RuleViolated: If a rule is broken.
        """
        if self._monitor.violated is not None:
            raise self._monitor.violated
        self._drained()
        self._terminal()
        self._counts()
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
        self._system.data.ledger.check()
        if ledger.running or ledger.leased or store.live:
            monitor.fail(
                "I2", f"{len(ledger.running)} run, {ledger.leased} are leased, {len(store.live)} have no last state"
            )
        if ledger.trained + ledger.dropped != ledger.admitted or len(store.facts.known) != ledger.admitted:
            monitor.fail("I2", f"{ledger.admitted} admitted, {ledger.trained} trained, {ledger.dropped} dropped")
        causes = {name: n for name, n in self._system.recorder.counts.items() if name.startswith("cause/")}
        recorded = {name: n for name, n in store.facts.tally.items() if name.startswith("cause/")}
        if causes != recorded:
            monitor.fail("I2", f"attempts were masked by {recorded}, and {causes} were counted")

    def _times(self, seconds: float) -> None:
        """Check that every component was always in one state, and that no host used more than its cores."""
        monitor, last = self._monitor, self._system.recorder.snapshots[-1]
        config = monitor.config.rollout
        sizes = {"desktops": config.num_desktops, "engines": config.num_engines, "trainer": 1}
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


def _plain(value: Any) -> Any:
    """Return a value as lists, mappings, numbers and texts, which a crash and a resume must not change."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, StoredSuccess):
        return [value.trajectory.attempt.id, value.uses, value.origin.value]
    if isinstance(value, Task):
        return value.id
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value) if value[key] != 0}
    if isinstance(value, list | tuple | deque):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(value)
    names = getattr(type(value), "__slots__", None) or vars(value)
    return {name: _plain(getattr(value, name)) for name in names}
