"""What each part of a run waits for, and what would wake it: a table of states, and what the parts add to it.

Nothing here is asked on the hot path: words are made when somebody looks (``parts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dartsim.observe.alarm import hours
from dartsim.observe.part import Part
from dartsim.observe.recorder import Recorder
from dartsim.observe.states import DesktopState, TrainerState, WorkerState


class Words(NamedTuple):
    """What a part in some state waits for, and who or what ends that."""

    waits_for: str
    woken_by: str


DESKTOPS: Mapping[int, Words] = {
    DesktopState.STARTING: Words("its desktop to be ready", "the provider, or rollout.limits.start_seconds"),
    DesktopState.SETUP: Words("the task's set-up steps", "the desktop, or rollout.limits.setup_seconds"),
    DesktopState.GENERATING: Words("a reply", "a worker, or rollout.limits.request_seconds"),
    DesktopState.SYNC_WAIT: Words("a worker that serves", "a worker that has loaded its weights"),
    DesktopState.TURN_WAIT: Words("the other attempts of its lock-step turn", "the last one of them"),
    DesktopState.ACTING: Words("the next observation", "the desktop, or rollout.limits.step_seconds"),
    DesktopState.EVALUATING: Words("its score", "the evaluator, or rollout.limits.evaluate_seconds"),
    DesktopState.CLOSING: Words("its desktop to be gone", "the provider, or rollout.limits.close_seconds"),
    DesktopState.WAIT_ADMISSION: Words("room for another attempt", "published weights, or a drop"),
    DesktopState.WAIT_UNIT: Words("the other attempts of its unit", "the last one of them"),
    DesktopState.WAIT_START: Words("its next try to start a desktop", "rollout.start_backoff_seconds"),
    DesktopState.OFF: Words("nothing", "nothing: it is off"),
    DesktopState.READY: Words("a slot that takes it", "the next attempt of any slot"),
}
WORKERS: Mapping[int, Words] = {
    WorkerState.IDLE: Words("a request", "a desktop's next turn, or new weights"),
    WorkerState.BUSY: Words("its engine's replies", "the engine"),
    WorkerState.DRAINING: Words("its live requests to end", "the last reply"),
    WorkerState.LOADING: Words("new weights to be loaded", "the engine"),
    WorkerState.DOWN: Words("its engine to be back", "the engine's start, or the next try to load"),
    WorkerState.OFF: Words("nothing", "nothing: it is off"),
}
TRAINER: Mapping[int, Words] = {
    TrainerState.WAIT_DATA: Words("a batch", "a group that becomes eligible"),
    TrainerState.TRAINING: Words("its update to end", "the learner"),
    TrainerState.WAIT_SYNC: Words("all workers to have the new weights", "the last worker that loads them"),
    TrainerState.WAIT_PUBLISH: Words("running attempts to end, to publish", "the last group that new weights wait for"),
    TrainerState.DOWN: Words("its next try after a failed update", "trainer.retry.first_seconds"),
    TrainerState.OFF: Words("nothing", "nothing: it is off"),
}
WORDS: Mapping[str, Mapping[int, Words]] = {"desktops": DESKTOPS, "workers": WORKERS, "trainer": TRAINER}
"""By population and state; every state has its words."""
ONE = {"desktops": "slot", "workers": "worker"}
"""What one part of a population is called."""


def parts(recorder: Recorder) -> list[Part]:
    """Return every part of a run: those with states of their own, then those that described themselves."""
    found = []
    for population in recorder.populations():
        detail = recorder.details.get(population.name, _nothing)
        words = WORDS[population.name]
        for track in population.tracks:
            one = ONE.get(population.name)
            state = population.states(track.state)
            waits_for, woken_by = words[track.state]
            found.append(
                Part(
                    name=population.name if one is None else f"{one} {track.index}",
                    state=state.name.lower(),
                    since=track.since - recorder.started,
                    waits_for=waits_for,
                    woken_by=woken_by,
                    detail=detail(track.index),
                )
            )
    return found + [tell() for tell in recorder.tellers]


def _nothing(index: int) -> str:
    return ""


def told(recorder: Recorder, *, most: int = 40) -> str:
    """Say of every part that is on what it waits for: those of the same state in one line."""
    lines: dict[tuple[str, str], list[Part]] = {}
    for part in parts(recorder):
        if part.state != "off":
            lines.setdefault((part.name.split(" ")[0], part.state), []).append(part)
    text = []
    for (_, state), same in lines.items():
        oldest = min(same, key=lambda part: part.since)
        who = oldest.name if len(same) == 1 else f"{oldest.name} and {len(same) - 1} more"
        detail = f" ({oldest.detail})" if oldest.detail else ""
        text.append(
            f"  {who}: {state} since {hours(oldest.since)}, waits for {oldest.waits_for}{detail}; "
            f"woken by {oldest.woken_by}"
        )
    left = len(text) - most
    return "\n".join(text[:most] + ([f"  and {left} more"] if left > 0 else []))
