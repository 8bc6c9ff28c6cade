"""A recorder's counts as JSON, so that a resumed run continues from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

from dartsim.core.types import Trajectory, Version
from dartsim.observe.alarm import Alarm
from dartsim.observe.recorder import Recorder, has_signal
from dartsim.observe.records import DomainHash, HotCounts, Segment, Snapshot, UpdateRecord
from dartsim.observe.states import PhaseState

BY_TASK = ("offered", "judged", "kept", "trained", "trained_groups")
"""Counters keyed by task id."""
BY_VERSIONS = ("staleness", "staleness_trajectories")
"""Counters keyed by pairs of versions."""


def save_state(recorder: Recorder) -> dict[str, Any]:
    """Return all counts; snapshots, updates and segments have their own files."""
    for instrument in recorder.instruments:
        instrument.state_saved()
    now = recorder.measure()
    return {
        "time": now.time,
        "domain_hash": recorder.domain_hash.digest,
        "desktops": now.desktops,
        "engines": now.engines,
        "trainer": now.trainer,
        "phase": now.phase,
        "counts": dict(recorder.counts),
        "fault_reasons": recorder.fault_reasons,
        "hot": astuple(recorder.hot),
        "staleness_max": recorder.staleness_max,
        "running": recorder.running,
        "alarms": [asdict(alarm) for alarm in recorder.alarms],
        "states": [[track.state for track in population.tracks] for population in recorder.populations()],
        **{name: dict(getattr(recorder, name)) for name in BY_TASK},
        **{name: [[*pair, number] for pair, number in getattr(recorder, name).items()] for name in BY_VERSIONS},
    }


def restore_state(
    recorder: Recorder,
    state: Mapping[str, Any],
    *,
    snapshots: Sequence[Snapshot] = (),
    updates: Sequence[UpdateRecord] = (),
    segments: Sequence[Sequence[Segment]] = (),
) -> None:
    """Continue from a saved state, in a new recorder."""
    recorder.started = recorder.clock() - state["time"]
    recorder.domain_hash = DomainHash(state["domain_hash"])
    for population in (*recorder.populations(), recorder.phase):
        before = state[population.name]
        population.totals = [a + b for a, b in zip(population.totals, before, strict=True)]
    recorder.counts = Counter(state["counts"])
    recorder.fault_reasons = dict(state["fault_reasons"])
    recorder.hot = HotCounts(*state["hot"])
    recorder.staleness_max = state["staleness_max"]
    for name in BY_TASK:
        setattr(recorder, name, Counter(state[name]))
    for name in BY_VERSIONS:
        setattr(recorder, name, Counter({(oldest, newest): number for oldest, newest, number in state[name]}))
    recorder.updates.extend(updates)
    recorder.running = state["running"]
    recorder.alarms = [Alarm(**alarm) for alarm in state["alarms"]]
    for population, past in zip(recorder.populations(), segments, strict=False):
        if population.segments is not None:
            population.segments.extend(
                (track, what, start + recorder.started, end + recorder.started) for track, what, start, end in past
            )
    if recorder.running:
        recorder.phase.tracks[0].enter(PhaseState.ROLLOUT)
    recorder.continue_snapshots(snapshots)


def undo_update(recorder: Recorder, trajectories: Sequence[Trajectory], version: Version) -> None:
    """Subtract the counts of a finished update whose weights are lost.

    Signals are judged without stored successes, whose uses still count.

    Args:
        recorder: The recorder that counted the update.
        trajectories: The update's trajectories, which may be trained on again.
        version: The weights that were trained.
    """
    num_turns = 0
    groups: dict[int, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.attempt.group, []).append(trajectory)
    recorder.trained_groups.subtract(members[0].attempt.task.id for members in groups.values())
    again = (members for members in groups.values() if has_signal(members))
    recorder.counts["signal_turns"] -= sum(len(trajectory.turns) for members in again for trajectory in members)
    for trajectory in trajectories:
        recorder.trained[trajectory.attempt.task.id] -= 1
        turns = trajectory.turns
        for (oldest, newest), times in Counter(zip(turns.oldest_versions, turns.versions, strict=True)).items():
            recorder.staleness[version - oldest, version - newest] -= times
        behind = (version - trajectory.oldest_version, version - trajectory.newest_version)
        recorder.staleness_trajectories[behind] -= 1
        num_turns += len(trajectory.turns)
    for name in BY_VERSIONS:
        setattr(recorder, name, +getattr(recorder, name))  # unary plus removes zeros
    recorder.staleness_max = max((behind for behind, _ in recorder.staleness_trajectories), default=0)
    recorder.counts["updates"] -= 1
    recorder.counts["undone_updates"] += 1
    for name in ("trained_turns", "admitted_turns"):
        recorder.counts[name] -= num_turns
    recorder.counts["trained_trajectories"] -= len(trajectories)
