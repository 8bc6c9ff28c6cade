"""An inference engine measured from outside by a designed set of loads: its timing model, tested on loads not fitted.

The same coroutine plays a load against a server, in real time, and against the simulated engine, in virtual time. The
fit finds the times of ``cluster.engine`` for which both take equally long: Gauss-Newton on logarithms of times and
figures, with a weak prior for times that the loads do not determine, such as reading the cache of a small model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, inf, log
from typing import Any

import numpy as np

from dartsim.config.sections.cluster import RooflineConfig
from dartsim.core.errors import ConfigError
from dartsim.lab.least_squares import Evidence, Vector, maximize
from dartsim.sim import SimLoop, run_virtual
from dartsim.sim.engine import EngineJob, FluidEngine
from dartsim.sim.gpu import GpuProfile, roofline_profile

Send = Callable[[int, int], Awaitable[tuple[int, int]]]
"""Asks for a reply of so many tokens to a new prompt of so many; returns both lengths as they were."""

GUESSES = {
    "iteration_seconds": 0.01,
    "sequence_seconds": 3e-4,
    "token_seconds": 1e-4,
    "kv_seconds": 1e-8,
    "pair_seconds": 1e-9,
    "overhead_seconds": 3e-3,
}
"""Times that are fitted, with the medians of their priors, seconds."""
PRIOR_SD, FIGURE_SD = 3.0, 0.03
"""Standard deviations of logarithms: of the priors, and of a figure."""
STEP, LARGEST_CHANGE = 0.05, 1.0
"""Changes of logarithms: of the Jacobian, and the largest of an attempt."""
ATTEMPTS, CLOSE = 40, 1e-3
"""Most attempts, and the change that ends them."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it was: start and end, seconds, and tokens."""

    start: float
    end: float
    prompt_tokens: int
    reply_tokens: int


@dataclass(slots=True)
class Load:
    """Clients that each ask for a reply again and again, and what was measured.

    Attributes:
        name: Such as ``512+64 x 8``: prompt and reply, tokens, and clients.
        lengths: Prompt and reply of each request, in the order in which they begin.
        clients: Requests at the same time.
        fitted: Whether the model is fitted to it.
        rounds: Its measured requests, for each time that it was played.
    """

    name: str
    lengths: Sequence[tuple[int, int]]
    clients: int
    fitted: bool
    rounds: list[list[Request]] = field(default_factory=list)


def design(*, max_prompt: int, max_reply: int, max_clients: int) -> list[Load]:
    """Return loads at the corners of these ranges, which are fitted, and loads between them, which are not."""
    prompts = [max(1, max_prompt // 32), max(1, max_prompt // 5), max_prompt]
    replies = [1, max(1, max_reply // 4), max_reply]
    clients = sorted({1, ceil(max_clients / 4), max_clients})
    fitted = [
        (prompts[0], replies[0], 1),
        (prompts[2], replies[0], 1),
        (prompts[0], replies[2], 1),
        (prompts[2], replies[1], 1),
        (prompts[0], replies[2], clients[-1]),
        (prompts[0], replies[1], clients[len(clients) // 2]),
        (prompts[2], replies[1], clients[-1]),
        (prompts[2], replies[2], clients[len(clients) // 2]),
    ]
    between = [
        (prompts[1], replies[1], ceil(max_clients / 2)),
        (prompts[1], replies[2], ceil(max_clients / 6)),
        (max_prompt // 2, max_reply // 2, ceil(0.7 * max_clients)),
    ]
    loads = [
        Load(
            f"{prompt}+{reply} x {count}", [(max(1, prompt), max(1, reply))] * max(6, 3 * count), count, cell in fitted
        )
        for cell in dict.fromkeys([*fitted, *between])
        for prompt, reply, count in [cell]
    ]
    rng = np.random.default_rng(0)
    mixed = [
        (int(rng.integers(1, max_prompt + 1)), int(rng.integers(1, max_reply + 1)))
        for _ in range(max(6, 3 * max_clients))
    ]
    return [*loads, Load(f"mixed x {ceil(max_clients / 2)}", mixed, ceil(max_clients / 2), False)]


async def play(lengths: Sequence[tuple[int, int]], clients: int, send: Send, seconds: float = inf) -> list[Request]:
    """Play a load and return its requests in the order in which they began; none begins after so many seconds."""
    loop = asyncio.get_running_loop()
    done: dict[int, Request] = {}
    waiting = iter(enumerate(lengths))
    begun = loop.time()

    async def client() -> None:
        for number, (prompt, reply) in waiting:
            start = loop.time()
            if start - begun > seconds:
                return
            counted = await send(prompt, reply)
            done[number] = Request(start, loop.time(), *counted)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return [done[number] for number in sorted(done)]


async def measure(
    loads: Sequence[Load],
    send: Send,
    *,
    minutes: float,
    rounds: int = 2,
    report: Callable[[], None] = lambda: None,
) -> None:
    """Play all loads some times, in another random order each time, in at most so many minutes in all.

    Raises:
        ConfigError: If a load gave fewer than two replies.
    """
    await play([loads[0].lengths[0]] * 2, 1, send)
    share = 60.0 * minutes / (rounds * len(loads))
    for number in range(rounds):
        for place in np.random.default_rng(number).permutation(len(loads)):
            load = loads[place]
            found = await play(load.lengths, load.clients, send, share)
            if len(found) < 2:
                raise ConfigError(
                    f"load {load.name}: {len(found)} replies in {share:.0f} s; give more --minutes, or a "
                    "smaller --max-prompt, --max-reply or --max-clients"
                )
            load.rounds.append(found)
            report()


def figures(rounds: Sequence[Sequence[Request]]) -> dict[str, float]:
    """Return the figures of a load's rounds together."""
    times = [request.end - request.start for requests in rounds for request in requests]
    lasted = sum(max(request.end for request in requests) - requests[0].start for requests in rounds)
    tokens = sum(request.reply_tokens for requests in rounds for request in requests)
    return {
        "tokens_per_second": tokens / lasted,
        "p50_seconds": float(np.quantile(times, 0.5)),
        "p95_seconds": float(np.quantile(times, 0.95)),
    }


def simulate(loads: Sequence[Load], times: Mapping[str, float]) -> list[dict[str, float]]:
    """Return the figures of each load's measured requests on the simulated engine."""
    profile = engine_profile(times)

    async def again(load: Load, requests: Sequence[Request]) -> list[Request]:
        lengths = [(request.prompt_tokens, request.reply_tokens) for request in requests]
        return await play(lengths, load.clients, simulated(profile, times["overhead_seconds"]))

    return [figures([run_virtual(again(load, requests)) for requests in load.rounds]) for load in loads]


def simulated(profile: GpuProfile, overhead: float) -> Send:
    """Return a simulated server on the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    engine = FluidEngine(loop.env, profile)

    async def send(prompt: int, reply: int) -> tuple[int, int]:
        await asyncio.sleep(overhead)
        answered: asyncio.Future[EngineJob] = loop.create_future()
        engine.submit(prompt, 0, 0, reply, answered.set_result)
        await answered
        return prompt, reply

    return send


def engine_profile(times: Mapping[str, float]) -> GpuProfile:
    """Return the profile of an engine with these times (``GUESSES``), without its overhead."""
    roofline = {name: seconds for name, seconds in times.items() if name != "overhead_seconds"}
    return roofline_profile(RooflineConfig.model_validate(roofline))


def fit(loads: Sequence[Load]) -> dict[str, float]:
    """Return the times at which the simulated engine plays the fitted loads as measured."""
    chosen = [load for load in loads if load.fitted]
    wanted = np.array([log(value) for load in chosen for value in figures(load.rounds).values()])
    middle = np.array([log(value) for value in GUESSES.values()])
    known = Evidence(middle, np.eye(len(middle)) / PRIOR_SD**2, wanted, np.full(len(wanted), FIGURE_SD**-2.0))

    def predicted(at: Vector) -> Vector:
        return np.array([log(value) for each in simulate(chosen, _times(at)) for value in each.values()])

    def derive(at: Vector, values: Vector) -> Vector:
        return np.array([(predicted(at + STEP * unit) - values) / STEP for unit in np.eye(len(at))]).T

    limits = np.full(len(middle), LARGEST_CHANGE)
    fit = maximize(known, predicted, derive, limits=limits, attempts=ATTEMPTS, close=CLOSE)
    return _times(fit.at)


def _times(logarithms: Vector) -> dict[str, float]:
    return {name: exp(value) for name, value in zip(GUESSES, logarithms, strict=True)}


def compare(loads: Sequence[Load], times: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return each figure of each load as measured and as simulated."""
    return [
        {
            "load": load.name,
            "figure": name,
            "predicted": found[name],
            "measured": measured,
            "error": found[name] / measured - 1.0,
            "fitted": load.fitted,
        }
        for load, found in zip(loads, simulate(loads, times), strict=True)
        for name, measured in figures(load.rounds).items()
    ]
