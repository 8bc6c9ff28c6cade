"""The cores of a host, shared by everything that runs on it: fluid processor sharing.

A job has nominal seconds (what it takes alone) and a demand in cores. All jobs progress at one common rate,
``min(1, cores / sum of demands)``, so an uncontended job takes exactly its nominal seconds, and on a host
with twice the demand it has cores for, everything takes twice as long.

Until jobs contend, each waits for a timer of its own. From then on all advance together, so each is described by the
virtual time at which it finishes, the earliest is always next, and one armed timer per host is enough. That timer is
lazy: a slower rate leaves it armed, and if it rings too early it is armed again.
"""

from __future__ import annotations

import asyncio
import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Protocol

from dartsim.core.errors import ConfigError
from dartsim.sim.pause import Pause

if TYPE_CHECKING:
    from dartsim.sim.environment import SimEnvironment
    from dartsim.sim.event_heap import Timer

CoreJob = list[Any]
"""A running job: [virtual finish time, number, demand, nominal seconds, future or None after it has left].

A list, because the heap compares lists in C and making one costs a fifth of making an object.
"""

_FINISH: Final = 0
_NUMBER: Final = 1
_DEMAND: Final = 2
_SECONDS: Final = 3
_FUTURE: Final = 4


class Completion(Protocol):
    """What a job completes: an ``asyncio.Future``, or a SimPy event with its methods."""

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...


class SharedCores:
    """Cores that all jobs of a host share.

    Its states: *calm* (no contention since it had no job; jobs have timers of their own), *free* (demand within the
    cores, rate 1, virtual time is the clock less a constant lag) and *contended* (rate below 1). The lag is zero until
    the first contention and again whenever no job is left, so uncontended finish times are exact sums. Demands that are
    multiples of 1/1024 add up exactly too.
    """

    __slots__ = (
        "_armed",
        "_done_core_seconds",
        "_heap",
        "_lag",
        "_number",
        "_own",
        "_rate",
        "_ring_timer",
        "_since",
        "_timer",
        "_virtual",
        "cores",
        "demand",
        "env",
        "num_jobs",
    )

    def __init__(self, env: SimEnvironment, cores: float = math.inf) -> None:
        if not cores > 0:
            raise ConfigError(f"cores must be > 0, got {cores}")
        self.env = env
        self.cores = cores
        self.demand = 0.0
        self.num_jobs = 0
        self._heap: list[CoreJob] = []
        self._own: dict[int, CoreJob] = {}  # calm: the jobs, by number
        self._number = 0
        self._rate = 1.0
        self._lag = 0.0  # free: virtual time = now - lag
        self._virtual = 0.0  # contended: virtual time = _virtual + (now - _since) * rate
        self._since = 0.0
        self._timer: Timer | None = None
        self._ring_timer = self._ring  # bound once
        self._armed = math.inf
        self._done_core_seconds = 0.0

    @property
    def rate(self) -> float:
        """Current progress of every job, nominal seconds per second, in (0, 1]."""
        return self._rate

    @property
    def core_seconds(self) -> float:
        """Work of the jobs that have left, core seconds; never more than cores times time."""
        return self._done_core_seconds

    def use(self, seconds: float, demand: float, future: Completion) -> CoreJob:
        """Run a job and complete ``future`` when it is done.

        Args:
            seconds: Nominal time, alone on the host, >= 0.
            demand: Cores it keeps busy, >= 0; 0 contends with nobody but is slowed like the others.
            future: Gets ``set_result(None)`` at the end, unless it is done already.

        Returns:
            The job, to pass to ``leave`` if the caller stops waiting.
        """
        env = self.env
        now: float = env.now
        if self._own:
            self._end_calm(now)
        total = self.demand + demand
        self.num_jobs += 1
        if self._rate == 1.0 and total <= self.cores:
            self.demand = total
            finish = now - self._lag + env.delay(seconds)
        else:
            self._set_demand(now, total)
            finish = self._virtual_now(now) + env.delay(seconds)
        self._number = number = self._number + 1
        job = [finish, number, demand, seconds, future]
        heap = self._heap
        heappush(heap, job)
        if heap[0] is job:
            self._arm(now)
        return job

    async def run(self, seconds: float, demand: float) -> None:
        """Run a job to its end; if cancelled, it leaves the cores."""
        total = self.demand + demand
        future: Any
        if self._rate == 1.0 and total <= self.cores and not self._heap:
            env = self.env
            delay: float = env.delay(seconds)
            future = Pause(env, delay)
            self._number = number = self._number + 1
            job = self._own[number] = [env.now + delay, number, demand, seconds, future]
            self.demand = total
            self.num_jobs += 1
        else:
            future = asyncio.get_running_loop().create_future()
            job = self.use(seconds, demand, future)
        try:
            await future
        finally:
            self.leave(job)

    def leave(self, job: CoreJob) -> None:
        """Take a job off the cores; does nothing if it has finished or left."""
        if job[_FUTURE] is None:
            return
        job[_FUTURE] = None
        self._own.pop(job[_NUMBER], None)
        now: float = self.env.now
        demand: float = job[_DEMAND]
        done: float = job[_SECONDS]
        left: float = job[_FINISH] - self._virtual_now(now)
        if left > 0.0:
            done = max(0.0, done - left)
        self.num_jobs -= 1
        self._done_core_seconds += done * demand
        self._set_demand(now, self.demand - demand)
        if self._timer is not None:
            self._arm(now)

    def _end_calm(self, now: float) -> None:
        """Let all jobs wait for the host's timer."""
        for job in self._own.values():
            job[_FUTURE].hold()
            heappush(self._heap, job)
        self._own.clear()
        self._arm(now)

    def _ring(self) -> None:
        """Finish every job that is due, then wait for the next.

        Futures are completed last, so that their callbacks see the final state of the cores.
        """
        self._timer = None
        now: float = self.env.now
        heap = self._heap
        demand = self.demand
        finished: list[Completion] = []
        free, lag, due = self._rate == 1.0, self._lag, now
        while heap:
            job = heap[0]
            finish, _, cores, seconds, future = job
            if future is not None:
                due = finish + lag if free else self._due(finish, now)
                if due > now:
                    break
                job[_FUTURE] = None
                self.num_jobs -= 1
                demand -= cores
                self._done_core_seconds += seconds * cores
                finished.append(future)
            heappop(heap)
        if free and heap:
            self.demand = demand
            # _arm(), inlined: the first remaining job is live, and nothing is armed.
            self._armed = due
            self._timer = self.env.call_at(due, self._ring_timer)
        else:
            self._set_demand(now, demand)
            self._arm(now)
        for future in finished:
            if not future.done():
                future.set_result(None)

    def _virtual_now(self, now: float) -> float:
        """Virtual time at ``now``."""
        if self._rate == 1.0:
            return now - self._lag
        return self._virtual + (now - self._since) * self._rate

    def _due(self, finish: float, now: float) -> float:
        """Time at which a job with this virtual finish ends at the current rate; at most ``now`` if it is due."""
        if self._rate == 1.0:
            return finish + self._lag
        return now + (finish - self._virtual_now(now)) / self._rate

    def _set_demand(self, now: float, demand: float) -> None:
        """Change the demand and with it the rate; virtual time stays continuous."""
        if self.num_jobs == 0:  # reset the lag, and rounding errors of the demand
            self.demand, self._rate, self._lag = 0.0, 1.0, 0.0
            self._heap.clear()
            return
        virtual = self._virtual_now(now)
        self.demand = demand
        if demand > self.cores:
            self._rate = self.cores / demand
            self._virtual, self._since = virtual, now
        elif self._rate != 1.0:
            self._rate = 1.0
            self._lag = now - virtual

    def _arm(self, now: float) -> None:
        """Make the timer ring no later than the first job ends."""
        heap = self._heap
        while heap and heap[0][_FUTURE] is None:
            heappop(heap)
        timer = self._timer
        if heap:
            due = self._due(heap[0][_FINISH], now)
            if timer is None or due < self._armed:
                if timer is not None:
                    timer.cancel()
                self._armed = due if due > now else now
                self._timer = self.env.call_at(self._armed, self._ring_timer)
        elif timer is not None:
            timer.cancel()
            self._timer = None
