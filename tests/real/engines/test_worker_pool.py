"""A pool's engines start beside one another, so many at a time, and all end if one of them does not come up."""

import asyncio
from dataclasses import dataclass

import pytest

pytest.importorskip("torch")

from dartsim.real.engines.errors import EngineStartFailed
from dartsim.real.engines.worker import running
from dartsim.real.processes import free_port

SECONDS = 10.0


@dataclass
class Named:
    name: str


class Slow:
    """A worker that takes its time to start, or to fail."""

    def __init__(self, index: int, seconds: float = SECONDS, *, fails: bool = False):
        self.engine = Named(f"engine-{index}")
        self.began: float | None = None
        self.up = False
        self.closed = 0
        self._seconds, self._fails = seconds, fails

    async def start(self):
        self.began = asyncio.get_running_loop().time()
        await asyncio.sleep(self._seconds)
        if self._fails:
            raise EngineStartFailed(f"{self.engine.name} ended")
        self.up = True

    async def close(self):
        await asyncio.sleep(1.0)
        self.closed += 1


def slow(*workers: Slow):
    return list(workers)


async def test_so_many_start_at_a_time_and_all_are_closed_together():
    clock = asyncio.get_running_loop().time
    workers = slow(*(Slow(number) for number in range(5)))
    began = clock()
    async with running(workers, at_once=2):
        assert [worker.began - began for worker in workers] == [0.0, 0.0, SECONDS, SECONDS, 2 * SECONDS]
        assert all(worker.up for worker in workers)
        assert clock() - began == 3 * SECONDS
        left = clock()
    assert clock() - left == 1.0
    assert [worker.closed for worker in workers] == [1] * 5


async def test_one_that_fails_cancels_the_others_and_is_what_is_told():
    clock = asyncio.get_running_loop().time
    workers = slow(Slow(0), Slow(1, 3.0, fails=True), Slow(2))
    began = clock()
    with pytest.raises(EngineStartFailed, match="engine-1 ended"):
        async with running(workers, at_once=2):
            raise AssertionError("not reached")
    assert clock() - began == 4.0
    assert [worker.began is None for worker in workers] == [False, False, True]
    assert not any(worker.up for worker in workers)
    assert [worker.closed for worker in workers] == [1] * 3


@pytest.mark.parametrize("after", [5.0, SECONDS + 0.5])
async def test_a_cancelled_pool_is_closed(after):
    workers = slow(Slow(0), Slow(1))

    async def serve():
        async with running(workers, at_once=2):
            await asyncio.sleep(0.1)  # then it closes, which is cancelled as well

    serving = asyncio.create_task(serve())
    await asyncio.sleep(after)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert [worker.closed for worker in workers] == [1, 1]


def test_no_port_is_given_twice():
    ports = [free_port("127.0.0.1") for _ in range(100)]
    assert len(set(ports)) == 100
