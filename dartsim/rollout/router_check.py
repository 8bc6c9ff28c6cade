"""``check_router``: a conformance check of routers, also of plug-ins'."""

from __future__ import annotations

import numpy as np

from dartsim.rollout.routers import Routed, Router


def check_router(router: type[Router], *, seed: int = 0, num_workers: int = 4, num_calls: int = 2000) -> None:
    """Check a router with random requests, and workers that go down and come back.

    It must return a worker that is up, change nothing by looking, and choose the same way again after the same calls.

    Raises:
        AssertionError: Saying after which call it did what it must not.
    """
    choices = [_driven(router, seed, num_workers, num_calls) for _ in range(2)]
    for number, (first, second) in enumerate(zip(*choices, strict=True)):
        if first != second:
            raise AssertionError(
                f"{router.__name__} chose worker {first} at call {number}, and worker {second} after the same calls: a "
                "router is deterministic; take a numpy.random.Generator with a fixed seed instead of global chance"
            )


def _driven(router_class: type[Router], seed: int, num_workers: int, num_calls: int) -> list[int]:
    """Return the numbers of the workers that a router chose."""
    rng = np.random.default_rng(seed)
    router = router_class(router_class.Parameters())
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
