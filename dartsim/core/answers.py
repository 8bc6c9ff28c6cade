"""Checks of what components answer, made where the control plane receives it; ``docs/concepts.md`` has the table.

A desktop, an engine or a learner may be anyone's code, so it may return or raise anything. Here that becomes a fault of
the port, which masks an attempt and never ends the run. The agent's text is not checked: any text is an action, at
worst a malformed one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dartsim.core.errors import (
    ConfigError,
    DartsimError,
    EnvBroken,
    EnvFault,
    EnvStartFailed,
    EnvStartTimedOut,
    ScoreUnavailable,
    TaskFileError,
    UpdateUncertain,
    WorkerFault,
)
from dartsim.core.time_limit import TimeLimit
from dartsim.core.types import Observation, Reply, Score, Task, UpdateResult, Version
from dartsim.core.words import clean, is_clean

if TYPE_CHECKING:
    from dartsim.core.ports import AsyncEnv, EnvProvider

logger = logging.getLogger(__name__)

MAX_ERROR_CHARACTERS = 500
"""Length to which the text of a component's error is cut."""
TOO_LARGE = 2**31
"""Turns and stores keep tokens and counts as 32-bit integers."""
ROUNDING = 1e-3
"""Engines compute log-probabilities in float32 or less, so some come out just above 0."""


def is_own(error: BaseException) -> bool:
    """Return whether an error came from a component's own code: neither a declared fault nor a request to stop."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()  # true if something inside the component was canceled, not we
    if isinstance(error, DartsimError):
        return isinstance(error, (ConfigError, TaskFileError))
    return not isinstance(error, (KeyboardInterrupt, GeneratorExit))


def worker_fault(error: BaseException) -> WorkerFault:
    """Return the fault of a worker whose call raised an error.

    Raises:
        BaseException: The error itself, if it is not the worker's.
    """
    if isinstance(error, WorkerFault):
        return error
    if not is_own(error):
        raise error
    fault = WorkerFault(f"the worker failed: {describe(error)}")
    fault.__cause__ = error
    return fault


def describe(error: BaseException) -> str:
    """Return the kind and text of an error."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return an error's text, encodable and cut to ``MAX_ERROR_CHARACTERS``; empty if the error cannot be printed."""
    with suppress(Exception):  # its __str__ may raise
        return clean(str(error)[:MAX_ERROR_CHARACTERS])
    return ""


def check_task(task: Task) -> None:
    """Check that a task can be shown, sent and stored.

    Raises:
        TaskFileError: If a text is missing, is not a string or holds half a surrogate pair, or the spec is not JSON.
    """
    texts: dict[str, Any] = {"id": task.id, "instruction": task.instruction, "domain": task.domain}
    for name, text in texts.items():
        if not isinstance(text, str) or not text or not is_clean(text) or (name != "instruction" and "\0" in text):
            raise TaskFileError(
                f"task {task.id!a:.200}: its {name} is {text!a:.200}, wanted a text of whole characters"
            )
    try:
        json.dumps(task.spec, default=repr)
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskFileError(f"task {task.id}: its spec is no JSON: {error}") from None


async def start_desktop(provider: EnvProvider, slot: int, seconds: float) -> AsyncEnv:
    """Start a desktop.

    Raises:
        EnvStartFailed: Whatever the provider raised; ``EnvStartTimedOut`` if it took longer than ``seconds``.
    """
    try:
        with TimeLimit(seconds):
            env: Any = await provider.start(slot)
        missing = [name for name in ("reset", "step", "evaluate", "close") if not callable(getattr(env, name, None))]
    except BaseException as error:
        if isinstance(error, TimeoutError):
            raise EnvStartTimedOut(f"not ready after {seconds:g} s") from None
        fault = isinstance(error, EnvFault) and not isinstance(error, EnvStartFailed)
        if fault or is_own(error):
            raise EnvStartFailed(f"slot {slot}: {describe(error)}") from error
        raise
    if missing:
        raise EnvStartFailed(f"slot {slot}: the start returned {env!a:.200}, which has no {', '.join(missing)}")
    return cast("AsyncEnv", env)


async def close_desktop(env: AsyncEnv, seconds: float | None, counts: Counter[str]) -> None:
    """Close a desktop; one that fails to, or takes longer than ``seconds``, is counted and left behind."""
    try:
        with TimeLimit(seconds):
            await env.close()
    except BaseException as error:
        if not isinstance(error, (TimeoutError, EnvFault)) and not is_own(error):
            raise
        counts["fault/close"] += 1
        if not isinstance(error, TimeoutError):
            logger.warning("a desktop failed in close: %s", describe(error))


def check_observation(shown: Any, first: Any, instruction: str) -> None:
    """Check what a desktop shows.

    Args:
        shown: What it answered.
        first: Its first observation of the attempt; ``shown`` itself at the first check.
        instruction: The task's instruction.

    Raises:
        EnvBroken: If it is not a valid observation, or the shape of the screen has changed.
    """
    if not isinstance(shown, Observation):
        raise EnvBroken(f"it shows {shown!a:.200}, wanted an Observation")
    shape = _shape(shown.screenshot)
    if shown is not first and shape != _shape(first.screenshot):
        raise EnvBroken(f"its screen is {shape}, and was {_shape(first.screenshot)} at first")
    text: Any = shown.instruction
    tree: Any = shown.accessibility_tree
    known = text is instruction and shown is not first
    if not known and (not isinstance(text, str) or not is_clean(text)):
        raise EnvBroken(f"it shows the instruction {text!a:.200}, wanted a text of whole characters")
    if tree is not None and not isinstance(tree, str):
        raise EnvBroken(f"its accessibility tree is {tree!a:.200}, wanted a text or None")


def _shape(screen: Any) -> tuple[int, ...] | None:
    """Return height, width and channels; None for a desktop that shows no screen."""
    if screen is None:
        return None
    shape, dtype = getattr(screen, "shape", None), getattr(screen, "dtype", None)
    # "B" is uint8; building the type's name would take microseconds.
    if getattr(dtype, "char", "") != "B" or not isinstance(shape, tuple) or len(shape) != 3 or shape[2] != 3:
        raise EnvBroken(f"its screenshot is {dtype or type(screen).__name__} {shape}, wanted uint8 (height, width, 3)")
    if 0 in shape:
        raise EnvBroken(f"its screenshot has no pixels: {shape}")
    return shape


def score_of(value: Any) -> float:
    """Return a desktop's score.

    Raises:
        ScoreUnavailable: If it is not a number in [0, 1].
    """
    if type(value) is float and 0.0 <= value <= 1.0:
        return value
    number = _number(value)
    if not 0.0 <= number <= 1.0:  # true for nan as well
        raise ScoreUnavailable(f"the score is {value!a:.200}, wanted a number in [0, 1]")
    return value if isinstance(value, Score) else number


def _number(value: Any) -> float:
    """Return a value as a float; nan if it is not a number. Text is not, although ``float`` would parse some of it."""
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    return math.nan


def check_reply(reply: Any, published: Collection[Version]) -> Reply:
    """Return a worker's reply, its action free of half surrogate pairs.

    Raises:
        WorkerFault: If the reply cannot become a turn, or cannot be trained on.
    """
    if not isinstance(reply, Reply):
        raise WorkerFault(f"the worker answered {reply!a:.200}, wanted a Reply")
    if not isinstance(reply.action, str):
        raise WorkerFault(f"the action of a reply is {reply.action!a:.200}, wanted a text")
    for name, value in (("prompt_tokens", reply.prompt_tokens), ("response_tokens", reply.response_tokens)):
        if not _is_count(value):
            raise WorkerFault(f"{name} of a reply is {value!a:.200}, wanted a count")
    cached = reply.cached_tokens
    if cached is not None and not (_is_count(cached) and cached <= reply.prompt_tokens):
        raise WorkerFault(f"cached_tokens of a reply is {cached!a:.200}, wanted at most its prompt_tokens")
    if not _is_count(reply.worker):
        raise WorkerFault(f"the worker of a reply is {reply.worker!a:.200}, wanted its number")
    for version in (reply.version, reply.oldest_version):
        if not _is_count(version) or version not in published:
            raise WorkerFault(f"a reply was generated by version {version!a:.200}, which was never published")
    if reply.oldest_version > reply.version:
        raise WorkerFault(f"a reply has versions {reply.oldest_version} to {reply.version}")
    if reply.tokens is not None or reply.logprobs is not None or reply.entropies is not None:
        _check_tokens(reply)
    return reply if is_clean(reply.action) else reply._replace(action=clean(reply.action))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < TOO_LARGE


def _check_tokens(reply: Reply) -> None:
    """Check the arrays of a reply, which have one entry per token."""
    import numpy as np  # imported here: simulated replies have no arrays

    try:
        tokens = np.asarray(reply.tokens)
        numbers = {
            name: np.asarray(values, dtype=np.float64)
            for name, values in (("logprobs", reply.logprobs), ("entropies", reply.entropies))
            if values is not None
        }
    except (TypeError, ValueError) as error:
        raise WorkerFault(f"the tokens of a reply cannot be read: {describe(error)}") from None
    shape = (reply.response_tokens,)
    if reply.tokens is not None:
        kind = tokens.dtype.kind
        if tokens.shape != shape or kind not in "iu" or ((tokens < 0) | (tokens >= TOO_LARGE)).any():
            raise WorkerFault(
                f"a reply of {reply.response_tokens} tokens holds {tokens.dtype} {tokens.shape}, wanted token ids"
            )
    for name, values in numbers.items():
        if values.shape != shape or not np.isfinite(values).all():
            raise WorkerFault(
                f"a reply of {reply.response_tokens} tokens has {name} of shape {values.shape}, wanted finite numbers"
            )
    if (numbers.get("logprobs", np.zeros(0)) > ROUNDING).any():
        raise WorkerFault("a log-probability of a reply is above 0")


def check_update(result: Any, update: int) -> UpdateResult:
    """Return a learner's result for a batch, without metrics that are not numbers.

    Raises:
        UpdateUncertain: If it is not an ``UpdateResult``, or its version is not the update's number.
    """
    if not isinstance(result, UpdateResult) or not isinstance(result.metrics, Mapping):
        raise UpdateUncertain(f"the learner answered update {update} with {result!a:.200}, wanted an UpdateResult")
    version = getattr(result.weights, "version", None)
    if version != update:
        raise UpdateUncertain(f"the learner answered update {update} with version {version!a:.200}, wanted the same")
    metrics: Mapping[str, Any] = result.metrics
    numbers = {name: value for name, value in metrics.items() if isinstance(value, (int, float))}
    return result if len(numbers) == len(result.metrics) else replace(result, metrics=numbers)
