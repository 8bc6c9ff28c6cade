"""The pool: as many calls at once as sandboxes, others wait; what broke is replaced, what may pass is tried again."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import pytest

from dartsim.core.waiting import pausable
from dartsim.real.scoring import SandboxPool, ScoreFault, ScorerFacts
from dartsim.real.scoring.container import local_engine


class FakeSandbox:
    """Takes as long as its pool says, and breaks when it is told to."""

    def __init__(self, log: list[str], faults: list[ScoreFault]):
        self.facts = ScorerFacts("fake 1")
        self.broken = False
        self.log = log
        self.faults = faults

    async def metric(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> float:
        await asyncio.sleep(1.0)
        if self.faults:
            self.broken = True
            raise self.faults.pop()
        return 0.5

    async def close(self):
        self.log.append("closed")


def pool_of(
    *,
    size: int = 2,
    faults: Sequence[ScoreFault] = (),
    start_faults: Sequence[ScoreFault] = (),
    **options,
) -> tuple[SandboxPool, list[str]]:
    log: list[str] = []
    left, at_start = list(faults), list(start_faults)

    async def start() -> Any:
        await asyncio.sleep(10.0)
        if at_start:
            raise at_start.pop()
        log.append("started")
        return FakeSandbox(log, left)

    return SandboxPool(start, size=size, **options), log


def score(pool: SandboxPool) -> Awaitable[float]:
    return pool.run(lambda sandbox: sandbox.metric("any", (), {}))


async def test_no_more_calls_run_at_once_than_there_are_sandboxes():
    pool, log = pool_of(size=2)
    async with pool:
        await pool.warm()
        began = asyncio.get_running_loop().time()
        scores = [asyncio.create_task(score(pool)) for _ in range(6)]
        await asyncio.sleep(0.5)
        assert (pool.running, pool.waiting) == (2, 4)
        assert await asyncio.gather(*scores) == [0.5] * 6
        assert asyncio.get_running_loop().time() - began == 3.0
    assert log == ["started", "started", "closed", "closed"]


async def test_who_waits_has_its_deadline_stand_still():
    events: list[tuple[float, str]] = []
    loop = asyncio.get_running_loop()

    class Deadline:
        def pause(self):
            events.append((loop.time(), "pause"))

        def resume(self):
            events.append((loop.time(), "resume"))

    pool, _ = pool_of(size=1)
    async with pool:
        await pool.warm()
        began = loop.time()
        first = asyncio.create_task(score(pool))
        await asyncio.sleep(0)
        with pausable(Deadline()):
            await score(pool)
        await first
    assert events == [(began, "pause"), (began + 1.0, "resume")]


async def test_a_call_that_died_with_its_sandbox_is_tried_once_more_in_another():
    pool, log = pool_of(size=1, faults=[ScoreFault("died", cause="sandbox_died")])
    async with pool:
        assert await score(pool) == 0.5
    assert log == ["started", "closed", "started", "closed"]
    pool, _ = pool_of(size=1, faults=[ScoreFault("died", cause="sandbox_died")] * 2)
    async with pool:
        with pytest.raises(ScoreFault) as caught:
            await score(pool)
    assert caught.value.cause == "sandbox_died"


async def test_a_metric_that_fails_is_not_tried_again():
    pool, _ = pool_of(faults=[ScoreFault("no number", cause="metric_failed")])
    async with pool:
        with pytest.raises(ScoreFault):
            await score(pool)
        assert await score(pool) == 0.5


async def test_a_sandbox_is_replaced_after_its_share_of_calls():
    pool, log = pool_of(size=1, calls=3)
    async with pool:
        for _ in range(7):
            await score(pool)
    assert log.count("started") == 3


async def test_a_cancelled_call_takes_its_sandbox_with_it():
    pool, log = pool_of(size=1)
    async with pool:
        await pool.warm()
        task = asyncio.create_task(score(pool))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await score(pool) == 0.5
    assert log == ["started", "closed", "started", "closed"]


async def test_a_pool_that_closes_while_a_sandbox_is_replaced_leaves_none():
    pool, log = pool_of(size=1, calls=1)
    async with pool:
        await score(pool)
    assert log == ["started", "closed"]
    pool, log = pool_of(size=1, calls=1)
    async with pool:
        await score(pool)
        await asyncio.sleep(5.0)  # the next one is starting
    assert log == ["started", "closed"]


async def test_a_pool_whose_sandboxes_do_not_start_says_why_and_serves_again_when_they_do():
    faults = [ScoreFault("no engine", cause="sandbox_start_failed")] * 2
    pool, _ = pool_of(size=1, start_faults=faults)
    async with pool:
        with pytest.raises(ScoreFault, match="no engine"):
            await score(pool)
        assert await score(pool) == 0.5


@pytest.mark.docker
def test_our_own_metrics_are_scored_in_a_sandbox_that_a_slow_pattern_does_not_hold(open_pool, tmp_path):
    with open_pool(None, tmp_path) as pool:
        assert pool.portal.call(pool.pool.facts).scorer == "dartsim 1"
        assert pool.metric("file_contains", pool.file("a.txt", "one two"), {"expected": ["two"]}) == 1.0
        with pytest.raises(ScoreFault) as caught:
            pool.metric("compare_table", "a", "b")
        assert caught.value.cause == "metric_unavailable"
        with pytest.raises(ScoreFault) as caught:
            pool.metric("check_list", pool.file("b.txt", "a" * 60), {"expect": ["^(a+)+$b"]})
        assert caught.value.cause in ("score_cpu", "score_timeout")
        assert pool.metric("exact_match", "a", {"expected": "b"}) == 0.0


def test_scores_are_computed_on_this_machine_wherever_desktops_run(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    assert local_engine().url == "unix:///var/run/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", "unix:///tmp/a.sock")
    assert local_engine().target == "unix:///tmp/a.sock"
