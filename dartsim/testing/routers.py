"""``check_router``: a conformance check of routers, including those of plug-ins."""

from __future__ import annotations

from typing import Any

import numpy as np

from dartsim.core.registry import ComponentSection
from dartsim.rollout.routers import Routed, Router
from dartsim.sim.run_virtual import run_virtual


def check_router(
    router: type[Router], *, seed: int = 0, num_workers: int = 4, num_calls: int = 2000, **parameters: Any
) -> None:
    """Check a router with random requests, and workers that go down and come back.

    It must return a worker that is up, must not change the workers, and must repeat its choices after the same calls.
    It runs in virtual time, as in a simulated run: ``asyncio.get_running_loop().rng(name)`` draws random numbers.

    Args:
        router: The class.
        seed: Seed of the calls and of the router's own draws.
        num_workers: Workers to choose from.
        num_calls: Number of calls.
        parameters: The router's parameters that differ from its defaults.

    Raises:
        AssertionError: If it breaks a rule; names the rule and the call.
        ValueError: If a parameter is wrong.
    """
    section = router.Parameters(**parameters)
    choices = [run_virtual(_drive(router, section, seed, num_workers, num_calls), seed=seed) for _ in range(2)]
    for number, (first, second) in enumerate(zip(*choices, strict=True)):
        if first != second:
            raise AssertionError(
                f"{router.__name__} chose worker {first} at call {number}, and worker {second} after the same calls: a "
                "router is deterministic; take asyncio.get_running_loop().rng(name) instead of global chance"
            )


async def _drive(
    router_class: type[Router], parameters: ComponentSection, seed: int, num_workers: int, num_calls: int
) -> list[int]:
    """Return the numbers of the workers that a router chose."""
    rng = np.random.default_rng(seed)
    router = router_class(parameters)
    workers = [Routed(number) for number in range(num_workers)]
    for worker in workers:
        router.add(worker)
    last: dict[int, Routed] = {}
    running: list[Routed] = []
    chosen: list[int] = []
    for number in range(num_calls):
        kind = rng.choice(["request", "request", "end", "down or up"])
        if kind == "request":
            session = int(rng.integers(3 * num_workers))
            before = [(worker.in_flight, worker.routable) for worker in workers]
            worker = router.pick(last.get(session), session // 3)
            where = f"{router_class.__name__}.pick({last.get(session) and last[session].index}), call {number},"
            if not any(worker is known for known in workers):
                raise AssertionError(f"{where} returned {worker!r}, which is none of the workers that were added")
            if not worker.routable:
                raise AssertionError(f"{where} returned worker {worker.index}, which is down; see Routed.routable")
            if before != [(worker.in_flight, worker.routable) for worker in workers]:
                raise AssertionError(f"{where} changed in_flight or routable of a worker; begin() and end() count")
            chosen.append(worker.index)
            last[session] = worker
            router.begin(worker)
            running.append(worker)
        elif kind == "end" and running:
            router.end(running.pop(int(rng.integers(len(running)))))
        else:
            worker = workers[int(rng.integers(num_workers))]
            if not worker.routable:
                router.add(worker)
            elif router.num_routable > 1:
                router.remove(worker)
    return chosen
