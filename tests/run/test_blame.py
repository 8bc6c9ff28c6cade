"""Who is to blame: every port, and every wrong answer that it may give. ``docs/concepts.md`` has the rule.

Each case is a small run in virtual time in which one component answers wrongly at its n-th call. The run goes on, its
counts add up, and what became of the answer stands in the table.
"""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.core.errors import EnvFault
from dartsim.core.png import Screenshot, encode_png
from dartsim.core.types import Ending, Observation, TrajectoryState, UpdateResult, Weights
from dartsim.observe.recorder import Listener
from dartsim.rollout.guarded_worker import GuardedWorker
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import build_here
from dartsim.sim import run_virtual
from dartsim.store.sql import SqlStore

HALF = "half \ud83d of a pair"
HUGE = "click " * 2_000_000
SECONDS = 40_000.0
LIMITS = {"setup_seconds": 600, "step_seconds": 300, "request_seconds": 300, "evaluate_seconds": 300}


@cache
def prepared():
    small = tomllib.loads(Path(__file__).with_name("small.toml").read_text(encoding="utf-8"))
    blamed = {
        "rollout": {"limits": LIMITS, "request_tries": 1, "sync": {"mode": "drain"}},
        "curation": {"attempts": {"min_group_size": 1}},
    }
    return prepare(from_tree(merge(merge(preset("dart"), small), blamed)))


class Lies:
    """Wrong answers to every so many of the calls of a port, one after the other."""

    def __init__(self, call: str, wrongs: dict[str, Callable[[Any], Any]], every: int) -> None:
        self.call = call
        self.every = every
        self.left = dict(wrongs)
        self.told: dict[int, str] = {}
        """The lie that was told to each attempt, by its seed."""
        self.num_calls = 0

    async def answer(self, right: Any, seed: int) -> Any:
        self.num_calls += 1
        if self.num_calls % self.every or not self.left or seed in self.told:
            return right
        self.told[seed] = name = next(iter(self.left))
        wrong = self.left.pop(name)
        if self.call == "start":
            await right.close()  # nothing is left of a start that failed
        answer = wrong(right)
        return await answer if inspect.isawaitable(answer) else answer


class Lying:
    """A component that tells lies."""

    def __init__(self, inner: Any, lies: Lies) -> None:
        self.inner = inner
        self._lies = lies
        self._seed = 0

    def __getattr__(self, name: str) -> Any:
        right = getattr(self.inner, name)
        if name == "reset":
            right = self._noting_seed(right)
        if name != self._lies.call:
            return right

        async def call(*arguments: Any, **options: Any) -> Any:
            found = await right(*arguments, **options)
            seed = arguments[0].attempt.seed if name == "generate" else self._seed or self._lies.num_calls
            return await self._lies.answer(found, seed)

        return call

    def _noting_seed(self, reset: Any) -> Any:
        async def noted(task: Any, *, seed: int) -> Any:
            self._seed = seed
            return await reset(task, seed=seed)

        return noted


class LyingProvider:
    """Starts desktops that tell lies."""

    def __init__(self, inner: Any, lies: Lies) -> None:
        self.inner = inner
        self._lies = lies

    async def start(self, slot: int) -> Any:
        return Lying(await self.inner.start(slot), self._lies)


def run(folder: Path, port: str, call: str, wrongs: dict[str, Callable[[Any], Any]], *, every: int = 2):
    """Run a small cluster until every lie is told, and ten attempts more; check that its counts add up.

    Returns its recorder, what ended, and by each lie the trajectory of the attempt that it was told to.
    """
    ended: list[Any] = []
    store = SqlStore.open(folder)
    lies = Lies(call, wrongs, every)

    async def main():
        system = await build_here(prepared(), store)
        if port == "provider":
            system.cluster.provider = Lying(system.cluster.provider, lies)
        elif port == "env":
            system.cluster.provider = LyingProvider(system.cluster.provider, lies)
        elif port == "worker":
            for worker in system.pool.workers:
                worker.engine = GuardedWorker(Lying(worker.engine, lies), worker.version)
        else:
            system.trainer.learner = Lying(system.trainer.learner, lies)
        more = [10]

        def attempt_ended(trajectory: Any) -> None:
            ended.append(trajectory)
            more[0] -= not lies.left
            if not more[0]:
                system.end.reached.set()

        await system.run(SECONDS, [Listener(attempt_ended=attempt_ended)])
        return system.recorder

    recorder = run_virtual(main(), max_events=3_000_000)
    assert not lies.left, "the run went on to the last one"
    assert store.counts[TrajectoryState.TRAINED] + store.counts[TrajectoryState.DROPPED] == len(ended)
    assert recorder.counts["trained_turns"] > 0
    assert all((each.reward is None) == (each.cause is not None) for each in ended)
    for cause, reason in recorder.fault_reasons.items():
        f"{cause}{reason}".encode()
    store.close()
    return recorder, ended, {lies.told[each.attempt.seed]: each for each in ended if each.attempt.seed in lies.told}


def raising(error: BaseException):
    def wrong(right: Any) -> Any:
        raise error

    return wrong


async def never(right: Any) -> Any:
    await asyncio.sleep(2 * SECONDS)


async def too_late(right: Any) -> Any:
    """Answer only when the caller has given up, and hide that from it."""
    try:
        await asyncio.sleep(2 * SECONDS)
    except asyncio.CancelledError:
        return right


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


ERRORS = {
    "an error": raising(KeyError("x")),
    "an error of its library": raising(CancelledError()),
    "a cancellation of its own": raising(asyncio.CancelledError()),
    "an exit": raising(SystemExit(3)),
    "a bare exception": raising(BaseException("x")),
    "an error with half a character": raising(ValueError(HALF)),
    "an error without a text": raising(Unprintable()),
    "an error of 10 MB": raising(ValueError(HUGE)),
    "a group of errors": raising(ExceptionGroup("x", [ValueError("y")])),
    "a failed check": raising(AssertionError("x")),
}
NO_ANSWER = {
    "None": lambda right: None,
    "a text": lambda right: "x",
    "a dictionary": lambda right: {"a": 1},
    "nothing, too late": never,
    "an answer, too late": too_late,
}


def shown(**changes: Any):
    """Replace fields of an observation, also within the result of a step."""

    def wrong(right: Any) -> Any:
        if isinstance(right, Observation):
            return right._replace(**changes)
        return right._replace(observation=right.observation._replace(**changes))

    return wrong


def broken_file(right: Any) -> Any:
    return shown(screenshot=Screenshot(encode_png(np.zeros((4, 4, 3), np.uint8))[:-9]))(right)


SCREENS = {
    "no screen": shown(screenshot=None),
    "another size": shown(screenshot=np.zeros((2, 500, 3), np.uint8)),
    "float32": shown(screenshot=np.zeros((1080, 1920, 3), np.float32)),
    "gray": shown(screenshot=np.zeros((1080, 1920), np.uint8)),
    "with alpha": shown(screenshot=np.zeros((1080, 1920, 4), np.uint8)),
    "empty": shown(screenshot=np.zeros((0, 1920, 3), np.uint8)),
    "a list": shown(screenshot=[[1]]),
    "a broken file": broken_file,
    "half a character": shown(instruction=HALF),
    "no instruction": shown(instruction=None),
    "a tree of bytes": shown(accessibility_tree=b"<a/>"),
}
FIRST_SCREENS = {name: SCREENS[name] for name in SCREENS if name not in ("no screen", "another size")}
OVER = {
    name: lambda right, value=value: right._replace(over=value)
    for name, value in {"over None": None, "over 1": 1, "over a text": "no"}.items()
}
NUMBERS = {
    repr(value): lambda right, value=value: value
    for value in (5.0, -1, float("nan"), float("inf"), "0.5", b"1", None, [1.0], 1j, 10**400)
}


def replied(**changes: Any):
    return lambda right: right._replace(**changes)


def tokens(num: int = 3, **changes: Any):
    """Make a reply of a model that says its tokens."""
    fields = {"response_tokens": num, "tokens": np.arange(num), "logprobs": np.full(num, -0.5, np.float32)}
    return lambda right: right._replace(**{**fields, **changes})


REPLIES = {
    "no action": replied(action=None),
    "bytes": replied(action=b"DONE"),
    "a version that nobody published": replied(version=999),
    "an older version that nobody published": replied(oldest_version=-1),
    "a version that is a text": replied(version="0"),
    "a count that is a text": replied(prompt_tokens="many"),
    "a negative count": replied(response_tokens=-5),
    "a count that no turn keeps": replied(prompt_tokens=2**31),
    "more cached than there is": replied(cached_tokens=10**9),
    "a worker without a number": replied(worker=None),
    "a worker that no turn keeps": replied(worker=2**31),
    "too few log-probabilities": tokens(logprobs=np.full(2, -0.5)),
    "too many log-probabilities": tokens(logprobs=np.full(4, -0.5)),
    "log-probability nan": tokens(logprobs=np.array([-0.5, np.nan, -0.5])),
    "log-probability -inf": tokens(logprobs=np.array([-0.5, -np.inf, -0.5])),
    "log-probability above 0": tokens(logprobs=np.array([-0.5, 0.5, -0.5])),
    "log-probabilities without tokens": replied(logprobs="x"),
    "other tokens than counted": tokens(response_tokens=9),
    "negative tokens": tokens(tokens=[1, -1, 2]),
    "tokens that no database keeps": tokens(tokens=[1, 2**31, 2]),
    "tokens that are no integers": tokens(tokens=[1.5, 2.0, 3.0]),
    "entropies of another length": tokens(entropies=np.zeros(2)),
}
STARTS = {
    **{name: NO_ANSWER[name] for name in ("None", "a text")},
    "a broken desktop": raising(EnvFault("x")),
    **ERRORS,
}

UPDATES = {
    **{name: NO_ANSWER[name] for name in ("None", "a text", "a dictionary")},
    "no weights": lambda right: UpdateResult(None),
    "another version": lambda right: UpdateResult(Weights(right.weights.version + 1)),
    "an earlier one again": lambda right: UpdateResult(Weights(right.weights.version - 1)),
    "no metrics": lambda right: UpdateResult(right.weights, None),
}

BROKEN, UNSCORED, TIMED_OUT = (Ending.BROKEN, "EnvBroken"), (Ending.UNSCORED, "ScoreUnavailable"), Ending.TIMED_OUT
FAULTY = (Ending.WORKER_FAULT, "WorkerFault")


def timed(masked: Any, label: str) -> dict[str, tuple[Any, Any]]:
    """Return what becomes of each kind of missing answer."""
    late = (TIMED_OUT, f"{label} timed out")
    return {name: (wrong, late if "too late" in name else masked) for name, wrong in NO_ANSWER.items()}


def table(masked: Any, label: str, *kinds: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    every = {name: (wrong, masked) for kind in (*kinds, ERRORS) for name, wrong in kind.items()}
    return {**timed(masked, label), **every}


MASKED = {
    ("env", "reset"): table(BROKEN, "setup", FIRST_SCREENS),
    ("env", "step"): table(BROKEN, "step", SCREENS, OVER),
    ("env", "evaluate"): table(UNSCORED, "evaluate", NUMBERS),
    ("worker", "generate"): table(FAULTY, "request", REPLIES),
}
"""By port and call: each wrong answer, and how the attempt ends."""


@pytest.mark.parametrize(("port", "call"), MASKED)
def test_what_the_agent_cannot_cause_masks_the_attempt(tmp_path, port, call):
    wrongs = MASKED[port, call]
    lies = {name: wrong for name, (wrong, _) in wrongs.items()}
    recorder, ended, told = run(tmp_path, port, call, lies, every=7 if call in ("step", "generate") else 3)
    wanted = {name: (ending, cause, None) for name, (_, (ending, cause)) in wrongs.items()}
    assert {name: (each.ending, each.cause, each.reward) for name, each in told.items()} == wanted
    for ending, cause in {masked for _, masked in wrongs.values()}:
        assert recorder.counts[f"cause/{cause}"] == sum(each.cause == cause for each in ended)
        assert ending is TIMED_OUT or cause in recorder.fault_reasons
    assert sum(each.masked for each in ended if each.ending is not Ending.CANCELLED) == len(wrongs)


OWN = {"half a character": HALF, "nothing": "", "10 MB": HUGE, "NUL": "\0", "text of no grammar": "rm -rf /"}


def test_what_the_agent_writes_is_its_own(tmp_path):
    lies = {name: replied(action=text) for name, text in OWN.items()}
    _, ended, told = run(tmp_path, "worker", "generate", lies, every=7)
    assert all(each.ending is Ending.CANCELLED for each in ended if each.masked)
    for name, text in OWN.items():
        said = [turn.reply.action for turn in told[name].turns]
        assert text.replace("\ud83d", "\ufffd") in said


NOT_MASKED = {
    ("provider", "start"): ("fault/start", {"too late": never, **STARTS}),
    ("env", "close"): ("fault/close", {"too late": never, "a broken desktop": raising(EnvFault("x")), **ERRORS}),
    ("worker", "load"): ("fault/load", {"too late": never, **ERRORS}),
    ("learner", "update"): ("fault/update", {**UPDATES, **ERRORS}),
}
"""By port and call: what counts each wrong answer, and the answers."""


@pytest.mark.parametrize(("port", "call"), NOT_MASKED)
def test_what_can_be_tried_again_or_left_masks_nothing(tmp_path, port, call):
    count, lies = NOT_MASKED[port, call]
    recorder, ended, _ = run(tmp_path, port, call, lies, every=5 if call == "start" else 2)
    assert recorder.counts[count] == len(lies)
    assert all(each.ending is Ending.CANCELLED for each in ended if each.masked)
    assert [update.update for update in recorder.updates] == list(range(1, len(recorder.updates) + 1))


def test_a_metric_that_is_no_number_spoils_no_update(tmp_path):
    lies = {
        repr(value): lambda right, value=value: UpdateResult(right.weights, {"loss": value, "computed_tokens": value})
        for value in (float("nan"), "x", None, HALF)
    }
    recorder, _, _ = run(tmp_path, "learner", "update", lies)
    assert recorder.counts["fault/update"] == 0
