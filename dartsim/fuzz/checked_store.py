"""``CheckedStore``: checks every transition of a store, in memory or in a database over several lives."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dartsim.core.ports import Store
from dartsim.core.types import Batch, Drop, Ending, Group, Trajectory, TrajectoryState, Version
from dartsim.fuzz.port_monitor import PortMonitor, StoreFacts
from dartsim.run.held_out_attempts import FIRST_ID
from dartsim.store.wrapper import StoreWrapper

MASKED = (Ending.BROKEN, Ending.TIMED_OUT, Ending.WORKER_FAULT, Ending.UNSCORED, Ending.CANCELLED)
INTERRUPTED = "interrupted"
"""Cause of attempts that were running when the process died; they are repeated with the same seed."""
_TRAINED, _DROPPED = TrajectoryState.TRAINED.value, TrajectoryState.DROPPED.value


class CheckedStore(StoreWrapper):
    """A store that checks every transition."""

    def __init__(self, monitor: PortMonitor, inner: Store, facts: StoreFacts | None = None) -> None:
        super().__init__(inner)
        self._monitor = monitor
        self.facts = facts or StoreFacts()
        monitor.store = self.facts
        self._ended_before = Counter(self.facts.ended.values())

    def count(self, state: TrajectoryState) -> int:
        """Return how many trajectories of all lives are in a state."""
        return self._inner.counts[state] + self._ended_before[state.value]

    def states(self) -> dict[int, str]:
        return {**self.facts.ended, **self._inner.live}

    def record(self, trajectory: Trajectory) -> None:
        """Store a trajectory, and compare it with the observations at its desktop and workers."""
        monitor, attempt, facts = self._monitor, trajectory.attempt, self.facts
        if monitor.dead:
            return
        monitor.note("record", attempt=attempt.id, ending=trajectory.ending, reward=trajectory.reward)
        self._inner.record(trajectory)
        if attempt.id in facts.known:
            monitor.fail("I1", f"attempt {attempt.id} ended twice")
        if attempt.id >= FIRST_ID or attempt.task.id not in monitor.tasks:
            monitor.fail("I13", f"attempt {attempt.id} at {attempt.task.id} is an evaluation, and was recorded")
        facts.known[attempt.id] = _facts_of(trajectory)
        self._check_reward(trajectory)
        self._check_cause(trajectory)
        self._check_turns(trajectory)
        self._check_seed(trajectory)
        if attempt.version > facts.version:
            monitor.fail("I6", f"attempt {attempt.id} was admitted under version {attempt.version}, {facts.version} is")
        self._tally(trajectory)
        if not trajectory.masked:
            monitor.progress = monitor.time()

    def _tally(self, trajectory: Trajectory) -> None:
        tally, group, turns = self.facts.tally, trajectory.attempt.group, len(trajectory.turns)
        tally["trajectories"] += 1
        tally["trajectory_turns"] += turns
        tally[f"ending/{trajectory.ending}"] += 1
        usable, masked = self.facts.groups.get(group, (0, 0))
        if trajectory.reward is None:
            tally["masked"] += 1
            tally[f"cause/{trajectory.cause}"] += 1
            masked += trajectory.ending is not Ending.CANCELLED
        else:
            tally["rewarded"] += 1
            usable += 1
            tally["stored_online"] += self._monitor.is_success(trajectory)
        self.facts.groups[group] = usable, masked

    def eligible(self, group: Group) -> None:
        """Mark a group as eligible, which must be complete, carry a signal and have at most one stored success."""
        monitor = self._monitor
        if monitor.dead:
            return
        self._inner.eligible(group)
        config, own = monitor.config.curation, group.own
        usable, masked = self.facts.groups.pop(group.id, (0, 0))
        num = len(own) + len(group.pooled)
        if num != usable or {t.attempt.group for t in own} - {group.id}:
            monitor.fail("I13", f"group {group.id} is eligible with {num} attempts, and {usable} ended with a reward")
        if monitor.running_of(group.id):
            monitor.fail("I13", f"group {group.id} is eligible, and attempts {monitor.running_of(group.id)} of it run")
        lacking = config.attempts.smallest_group - max(0, masked - config.attempts.max_replacements)
        if usable < lacking:
            monitor.fail("I13", f"group {group.id} is eligible with {usable} attempts, at least {lacking} are wanted")
        rewards = [t.reward or 0.0 for t in group.trajectories]
        wanted, mean = config.groups, sum(rewards) / len(rewards)
        if (wanted.drop_all_failed and mean <= 0.0) or (wanted.drop_solved and mean >= 1.0):
            monitor.fail("I13", f"group {group.id} is eligible with rewards {rewards}")
        self.facts.uses.update(t.attempt.id for t in group.pooled)

    def lease(self, batch: Batch) -> None:
        """Mark a batch as leased, which must not be stale or too large, nor have duplicates."""
        monitor, facts = self._monitor, self.facts
        if monitor.dead:
            return
        ids = [t.attempt.id for t in batch.trajectories]
        monitor.note("lease", update=batch.update, attempts=ids)
        if early := [n for n in ids if self._inner.live.get(n) is TrajectoryState.RECORDED]:
            monitor.fail("I13", f"attempts {early} are leased, and their group was not eligible")
        self._inner.lease(batch)
        self._check_staleness(batch)
        sizes = monitor.config.curation.batch
        if batch.update != facts.version + 1 or batch.version != facts.version:
            monitor.fail("I6", f"update {batch.update} of {batch.version} was leased after version {facts.version}")
        if not sizes.min_groups <= len(batch.groups) <= sizes.max_groups:
            wanted = f"{sizes.min_groups} to {sizes.max_groups}"
            monitor.fail("I13", f"a batch of {len(batch.groups)} groups; {wanted} are wanted")
        if len(ids) != len(set(ids)):
            monitor.fail("I4", f"a batch names an attempt twice: {ids}")
        facts.leased = batch
        facts.tally["admitted_turns"] += batch.num_turns

    def release(self, batch: Batch) -> None:
        if self._monitor.dead:
            return
        self._monitor.note("release", update=batch.update)
        self._inner.release(batch)
        self.facts.give_back(batch)

    def trained(self, batch: Batch, version: Version, *, checkpoint: Any = None) -> None:
        """Mark a batch as trained; its update must have happened, once, without stale trajectories."""
        monitor, facts = self._monitor, self.facts
        if monitor.dead:
            return
        monitor.note("trained", update=batch.update, version=version)
        ids = [t.attempt.id for t in batch.trajectories]
        if doubled := [n for n in ids if facts.ended.get(n) == _TRAINED]:
            monitor.fail("I4", f"attempts {doubled} were trained twice")
        facts.ended.update(dict.fromkeys(ids, _TRAINED))
        self._inner.trained(batch, version, checkpoint=checkpoint)
        self._check_staleness(batch)
        if version != facts.version + 1 or version != batch.update:
            monitor.fail("I6", f"version {version} of update {batch.update} was committed after {facts.version}")
        if version > monitor.updated:
            monitor.fail("I6", f"version {version} was committed, but the learner has made {monitor.updated}")
        facts.version, facts.leased = version, None
        tally = facts.tally
        tally["updates"] += 1
        tally["trained_trajectories"] += len(ids)
        tally["trained_turns"] += batch.num_turns
        tally["pooled_trained"] += monitor.pooled
        behind = [batch.version - facts.known[n][2] for n in ids]
        tally["staleness_max"] = max(tally["staleness_max"], *behind)
        monitor.progress = monitor.time()

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        """Mark trajectories as dropped; the reason must be true."""
        monitor, facts = self._monitor, self.facts
        if monitor.dead:
            return
        ids = [t.attempt.id for t in trajectories]
        monitor.note("drop", attempts=ids, reason=reason)
        facts.ended.update(dict.fromkeys(ids, _DROPPED))
        self._inner.drop(trajectories, reason)
        facts.tally[f"dropped/{reason}"] += len(ids)
        facts.tally[f"dropped_turns/{reason}"] += sum(facts.known[n][1] for n in ids)
        if reason in (Drop.LOST, Drop.UNDONE):
            monitor.fail("I3", f"attempts {ids} are dropped as {reason}")
        if reason is Drop.UNUSED and not monitor.ending():
            monitor.fail("I13", f"attempts {ids} go unused before the end")
        rewards = {t.reward for t in trajectories}
        wrong = (reason is Drop.ALL_FAILED and rewards != {0.0}) or (reason is Drop.NO_SIGNAL and len(rewards) != 1)
        if wrong or (reason is Drop.MASKED) != all(t.masked for t in trajectories):
            monitor.fail("I2", f"attempts {ids} with rewards {rewards} were dropped as {reason}")

    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        """Fail, because no file is damaged here: every trajectory must be readable."""
        self._monitor.fail("I3", f"attempts {list(attempts)} were stored, and are given up as {reason} after a crash")

    def suspend(self) -> None:
        """Make the store ignore further transitions."""
        self._inner.suspend()
        if self._inner.resumable:
            self._monitor.dead = True

    def _check_reward(self, trajectory: Trajectory) -> None:
        monitor, attempt = self._monitor, trajectory.attempt
        score = monitor.scores.pop(attempt.seed, None)
        too_late = trajectory.masked and trajectory.ending is Ending.TIMED_OUT  # at the very end of its time limit
        if trajectory.reward != score and not too_late:
            monitor.fail("R7", f"attempt {attempt.id} has reward {trajectory.reward}; its desktop was scored {score}")
        if not trajectory.masked == (trajectory.ending in MASKED) == (trajectory.cause is not None):
            monitor.fail("R7", f"attempt {attempt.id}: {trajectory.ending}, {trajectory.reward}, {trajectory.cause}")

    def _check_cause(self, trajectory: Trajectory) -> None:
        """Check that something happened that justifies masking the attempt."""
        monitor, attempt, ending, cause = self._monitor, trajectory.attempt, trajectory.ending, trajectory.cause
        task = asyncio.current_task()
        struck = monitor.struck.pop(task.get_name() if task else "", ()) or ()
        struck = (*struck, *monitor.struck.pop(attempt.id, ()))
        if cause is None or cause == INTERRUPTED:
            return
        seconds = trajectory.finished - trajectory.started
        limit = getattr(monitor.limits, f"{cause.split()[0]}_seconds", 0.0)
        what = {Ending.BROKEN: "EnvFault", Ending.WORKER_FAULT: "WorkerFault", Ending.UNSCORED: "ScoreUnavailable"}
        wanted = what.get(ending)
        if wanted is not None and wanted not in struck and cause != "EnvStartFailed":  # no place was free
            monitor.fail("R7", f"attempt {attempt.id} is masked by {cause}, and had no {wanted}")
        if ending is Ending.TIMED_OUT and seconds < limit - 1e-6:
            monitor.fail("R7", f"attempt {attempt.id}: {cause} after {seconds:g} s, the limit is {limit:g} s")
        raised = sys.exception()
        if raised is not None and not isinstance(raised, asyncio.CancelledError):
            monitor.raised = True  # that error ends the run, and is the failure to report
        ends = monitor.ending() or monitor.failed() or monitor.raised
        if ending is Ending.CANCELLED and cause == "run ended" and not ends:
            monitor.fail("R7", f"attempt {attempt.id} was canceled at the end of a run that goes on")

    def _check_seed(self, trajectory: Trajectory) -> None:
        """Check that no attempt of any life had this seed, except those that this one repeats."""
        attempt, seeds = trajectory.attempt, self.facts.seeds
        if attempt.seed in seeds:
            self._monitor.fail("I4", f"attempt {attempt.id} has the seed {attempt.seed} of an earlier attempt")
        if trajectory.cause != INTERRUPTED:
            seeds.add(attempt.seed)

    def _check_turns(self, trajectory: Trajectory) -> None:
        monitor, attempt = self._monitor, trajectory.attempt
        replies = monitor.replies.pop(attempt.id, [])
        if trajectory.ending is Ending.CANCELLED:
            return  # its turns are lost
        turns = [turn.reply for turn in trajectory.turns]
        # A reply may arrive at the very end of its attempt, and then belongs to no turn.
        if turns != replies[: len(turns)] or len(replies) - len(turns) > (1 if trajectory.masked else 0):
            monitor.fail("I7", f"attempt {attempt.id} has {len(turns)} turns, not those of its {len(replies)} replies")
        if len(turns) > attempt.turn_limit:
            monitor.fail("I2", f"attempt {attempt.id} took {len(turns)} turns, {attempt.turn_limit} were allowed")

    def _check_members(self, groups: Sequence[Group]) -> None:
        """Check that members are as recorded, also after a crash, and that stored successes belong to the task."""
        for group in groups:
            for t in group.trajectories:
                if _facts_of(t) != self.facts.known[t.attempt.id] or t.attempt.task.id != group.task.id:
                    self._monitor.fail("I3", f"attempt {t.attempt.id} in group {group.id} is not as it was recorded")
            pooled = group.pooled
            if len(pooled) > 1 or not all(map(self._monitor.is_success, pooled)):
                ids = [t.attempt.id for t in pooled]
                self._monitor.fail("I4", f"attempts {ids} of other groups are in group {group.id}")

    def check_update(self, batch: Batch) -> None:
        """Check a batch as the learner gets it, with stored successes."""
        if self._monitor.dead:
            return
        self._check_members(batch.groups)
        leased = self.facts.leased
        own = [t.attempt.id for t in batch.own.trajectories]
        if leased is None or [t.attempt.id for t in leased.trajectories] != own or leased.update != batch.update:
            self._monitor.fail("I4", f"update {batch.update} of attempts {own}, which are not leased to it")

    def _check_staleness(self, batch: Batch) -> None:
        rule = self._monitor.config.curation.staleness
        if rule.max_staleness is None:
            return
        for group in batch.groups:
            for t in group.own:
                _, _, oldest, newest = self.facts.known[t.attempt.id]
                version = {"oldest": oldest, "newest": newest, "start": t.attempt.version}[rule.measured_by]
                if batch.version - version > rule.max_staleness:
                    self._monitor.fail(
                        "I5", f"attempt {t.attempt.id}, made by version {version}, is in a batch of {batch.version}"
                    )


def _facts_of(trajectory: Trajectory) -> tuple[float | None, int, Version, Version]:
    turns, version = trajectory.turns, trajectory.attempt.version
    oldest, newest = min(turns.oldest_versions, default=version), max(turns.versions, default=version)
    return trajectory.reward, len(turns), oldest, newest
