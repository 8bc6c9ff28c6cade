"""All states of all components in one table: name, color, meaning, idle cause, and what the component waits for.

Every second of a desktop, an engine or the trainer counts in exactly one state, so the times add up to 100 % of the
run. Pages, the Perfetto trace, idle causes and status messages all read the tables below.

Color-blind readers can tell the colors apart (most are from the palettes of Okabe and Ito, and of Tol). Related states
have the same color in every table: blue generates, green acts, purple trains, orange waits for work, vermilion waits
for weights, and gray is not provisioned.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, Self

AT_WORK = "at work"
"""In place of an idle cause: the component is working."""

IDLE_BINS = 120
"""Number of equal parts of the recorded time for which causes of idle time are told apart."""

NETWORK = "network"
"""Cause of an engine that is idle while all desktops wait for replies: transport, encoding, preprocessing."""
NETWORK_COLOR, NETWORK_MEANING = "#56b4e9", "no engine has a request, although all desktops ask: transport, encoding"

OFF_MEANING, OFF_COLOR = "not provisioned: before its start or after the run's end", "#9aa5b1"


class StateInfo(NamedTuple):
    """A state's description.

    Attributes:
        label: Its name on pages, in status messages and as idle cause.
        color: Its color on pages.
        meaning: A short explanation.
        cause: Its idle cause, or ``AT_WORK``; None if that depends on the other components.
        useful: Whether its time counts as utilization.
        waits_for: What a component in this state waits for.
        woken_by: What ends the wait.
    """

    label: str
    color: str
    meaning: str
    cause: str | None
    useful: bool
    waits_for: str
    woken_by: str


class ComponentState(IntEnum):
    """A state of a component. Its value is the column of its recorded times, and is written to files."""

    info: StateInfo

    def __new__(
        cls,
        value: int,
        label: str = "",
        color: str = "",
        meaning: str = "",
        waits: tuple[str, str] = ("nothing", "nothing: it is off"),
        cause: str | None = "",
        useful: bool = False,
    ) -> Self:
        """Create a state; an empty ``cause`` stands for its label."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.info = StateInfo(label, color, meaning, label if cause == "" else cause, useful, *waits)
        return member

    @property
    def key(self) -> str:
        return self.name.lower()


class DesktopState(ComponentState):
    """States of a desktop slot."""

    STARTING = (
        0,
        "starting",
        "#aa4499",
        "the desktop boots",
        ("its desktop to be ready", "the provider, or rollout.limits.start_seconds"),
    )
    SETUP = (
        1,
        "setting up",
        "#cc79a7",
        "the task is being set up on it",
        ("the task's set-up steps", "the desktop, or rollout.limits.setup_seconds"),
    )
    GENERATING = (
        2,
        "generating",
        "#0072b2",
        "waits for a reply while the engines serve: queue, prefill, decoding and transport",
        ("a reply", "an engine, or rollout.limits.request_seconds"),
        "",
        True,
    )
    SYNC_WAIT = (
        3,
        "weight sync",
        "#d55e00",
        "idle: waits for a reply while all engines are stopped for a weight sync",
        ("an engine that serves", "an engine that has loaded its weights"),
    )
    TURN_WAIT = (
        4,
        "lockstep",
        "#88ccee",
        "waits for the other desktops of a lockstep turn, between two of its own",
        ("the other attempts of its lockstep turn", "the last one of them"),
        "",
        True,
    )
    ACTING = (
        5,
        "acting",
        "#009e73",
        "carries out an action, until the next observation",
        ("the next observation", "the desktop, or rollout.limits.step_seconds"),
        AT_WORK,
        True,
    )
    EVALUATING = (
        6,
        "evaluating",
        "#8fbf4d",
        "scores the attempt",
        ("its score", "the evaluator, or rollout.limits.evaluate_seconds"),
    )
    CLOSING = (
        7,
        "closing",
        "#6e4b8b",
        "is torn down",
        ("its desktop to be gone", "the provider, or two minutes"),
    )
    WAIT_ADMISSION = (
        8,
        "not admitted",
        "#e69f00",
        "idle: free, but the admission rule lets no further attempt start",
        ("admission of another attempt", "published weights, or a drop"),
        None,
    )
    WAIT_UNIT = (
        9,
        "unit unfinished",
        "#f2d94e",
        "idle: free, but other attempts of its task or batch still run",
        ("the other attempts of its sampling unit", "the last one of them"),
    )
    WAIT_START = (
        10,
        "start failed",
        "#a05a2c",
        "idle: waits before it tries to start again",
        ("its next try to start a desktop", "the wait after a failure"),
    )
    OFF = 11, "off", OFF_COLOR, OFF_MEANING
    READY = (
        12,
        "spare",
        "#44aa99",
        "idle: booted ahead, waits for a slot",
        ("a slot that takes it", "the next attempt of any slot"),
    )
    SCORE_WAIT = (
        13,
        "scoring queue",
        "#c7d68a",
        "idle: waits for a free sandbox to be scored in",
        ("a sandbox for its score", "a score that ends; there is one sandbox per core"),
    )


class EngineState(ComponentState):
    """States of an inference engine."""

    IDLE = (0, "idle", "#e69f00", "up, without a request", ("a request", "a desktop's next turn, or new weights"), None)
    BUSY = (
        1,
        "busy",
        "#0072b2",
        "up, with at least one live request (what nvidia-smi shows as utilized)",
        ("its engine's replies", "the engine"),
        AT_WORK,
        True,
    )
    DRAINING = (
        2,
        "draining",
        "#88ccee",
        "takes no new request and still has live ones",
        ("its live requests to end", "the last reply"),
        AT_WORK,
        True,
    )
    LOADING = (3, "weight sync", "#d55e00", "idle: loads new weights", ("new weights to be loaded", "the engine"))
    DOWN = (
        4,
        "down",
        "#882255",
        "idle: failed, waits for another try",
        ("its engine to be back", "the engine's start, or the next try to load"),
    )
    OFF = 5, "off", OFF_COLOR, OFF_MEANING


class TrainerState(ComponentState):
    """States of the trainer."""

    WAIT_DATA = (
        0,
        "waiting for data",
        "#e69f00",
        "idle: waits for a batch",
        ("a batch", "a group that becomes eligible"),
        None,
    )
    TRAINING = 1, "training", "#7a5cc9", "runs an update", ("its update to end", "the learner"), AT_WORK, True
    WAIT_SYNC = (
        2,
        "weight sync",
        "#d55e00",
        "idle: waits until the engines have the new weights",
        ("all engines to have the new weights", "the last engine that loads them"),
    )
    DOWN = (
        3,
        "down",
        "#882255",
        "idle: failed, waits for another try",
        ("its next try after a failed update", "the wait after a failure"),
    )
    OFF = 4, "off", OFF_COLOR, OFF_MEANING
    WAIT_PUBLISH = (
        5,
        "waiting to publish",
        "#f0a5a0",
        "idle: holds new weights back until the attempts that run have ended",
        ("running attempts to end, to publish", "the last group that new weights wait for"),
    )
    LENT = (
        6,
        "lent",
        "#44aa99",
        "its GPUs are engines', until enough groups are ready",
        ("groups for its next updates", "the last group that it calls its GPUs back for"),
    )


class PhaseState(ComponentState):
    """Whether any attempt is running in the cluster."""

    QUIET = 0, "quiet", OFF_COLOR, "no attempt is running"
    ROLLOUT = 1, "rollout", "#0072b2", "at least one attempt is running"


class PopulationInfo(NamedTuple):
    """A kind of component."""

    title: str
    member: str
    states: type[ComponentState]
    shares: str
    at_work: ComponentState


POPULATIONS: Mapping[str, PopulationInfo] = {
    "desktops": PopulationInfo("Desktops", "slot", DesktopState, "desktop_shares", DesktopState.ACTING),
    "engines": PopulationInfo("Engines", "engine", EngineState, "engine_shares", EngineState.BUSY),
    "trainer": PopulationInfo("Trainer", "trainer", TrainerState, "trainer_shares", TrainerState.TRAINING),
}
"""Every population that has a timeline."""


def _causes() -> dict[str, StateInfo]:
    """Return every idle cause, described by the first table that has it."""
    network = StateInfo(NETWORK, NETWORK_COLOR, NETWORK_MEANING, NETWORK, False, "", "")
    causes = {DesktopState.GENERATING.info.label: DesktopState.GENERATING.info, NETWORK: network}
    awaited = {state.info for state in (DesktopState.ACTING, DesktopState.WAIT_ADMISSION, TrainerState.TRAINING)}
    for population in POPULATIONS.values():
        for info in (state.info for state in population.states):
            if info.cause == info.label or info in awaited:
                causes.setdefault(info.label, info)
    sync = DesktopState.SYNC_WAIT.info
    causes[sync.label] = sync._replace(meaning="engines are stopped for a weight sync, or load new weights")
    causes["off"] = causes.pop("off")  # drawn last
    return causes


CAUSES: Mapping[str, StateInfo] = _causes()
"""Why a component may be idle: its own state, or the state of the others; in drawing order."""
