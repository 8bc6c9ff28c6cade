"""A pool's engines start beside one another, so many at a time, and all end if one of them does not come up."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dartsim.config.sections.vllm import VllmConfig
from dartsim.core.types import Weights
from dartsim.real.engines.errors import EngineStartFailed
from dartsim.real.engines.launcher import LocalEngine
from dartsim.real.engines.ledger import WeightsLedger
from dartsim.real.engines.options import EngineOptions, WorkerSettings
from dartsim.real.engines.request_codec import RequestCodec
from dartsim.real.engines.supervisor import EngineHealth
from dartsim.real.engines.worker import VllmWorker, started
from dartsim.real.processes import free_port
from dartsim.real.stand_ins.serving import ENGINE, PATH

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
    async with started(workers, at_once=2):
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
        async with started(workers, at_once=2):
            raise AssertionError("not reached")
    assert clock() - began == 4.0
    assert [worker.began is None for worker in workers] == [False, False, True]
    assert not any(worker.up for worker in workers)
    assert [worker.closed for worker in workers] == [1] * 3


@pytest.mark.parametrize("after", [5.0, SECONDS + 0.5])
async def test_a_cancelled_pool_is_closed(after):
    workers = slow(Slow(0), Slow(1))

    async def serve():
        async with started(workers, at_once=2):
            await asyncio.sleep(0.1)  # then it closes, which is cancelled as well

    serving = asyncio.create_task(serve())
    await asyncio.sleep(after)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert [worker.closed for worker in workers] == [1, 1]


def pool(models, folder: Path, *flags: tuple[str, ...]) -> list[VllmWorker]:
    """Workers over engines that are processes, one for each group of flags."""
    codec, ledger = RequestCodec(models.vlms[0]), WeightsLedger()
    return [
        VllmWorker(
            number,
            LocalEngine(
                EngineOptions(
                    vllm=VllmConfig(python=sys.executable, flags=list(more)),
                    model=str(models.folders[0]),
                    entry=ENGINE,
                    environment={"OF_TEST": str(folder), **PATH},
                ),
                folder,
                name=f"engine-{number}",
            ),
            codec,
            weights=Weights(0, str(models.folders[0])),
            ledger=ledger,
            settings=WorkerSettings(warm_up=False),
        )
        for number, more in enumerate(flags)
    ]


def pids(folder: Path) -> set[int]:
    """Processes of this folder's engines, by a variable that they were started with."""
    mark, found = str(folder).encode(), set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.add(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.anyio
async def test_engines_come_up_together_and_none_is_left(models, request_of, tmp_path):
    workers = pool(models, tmp_path, (), ())
    async with started(workers, at_once=2):
        assert len({worker.engine.url for worker in workers}) == 2
        replies = [await worker.generate(request_of(seed=1)) for worker in workers]
        assert replies[0].tokens.tolist() == replies[1].tokens.tolist()
        assert len(pids(tmp_path)) == 2
    assert [worker.state for worker in workers] == [EngineHealth.DOWN] * 2
    assert pids(tmp_path) == set()


@pytest.mark.anyio
async def test_one_engine_that_ends_takes_the_starts_of_the_others_with_it(models, tmp_path):
    workers = pool(models, tmp_path, ("--start-seconds", "600"), ("--fail-start",), ())
    with pytest.raises(EngineStartFailed, match="engine-1"):
        async with started(workers, at_once=2):
            raise AssertionError("not reached")
    assert workers[0].engine.starts == 1
    assert pids(tmp_path) == set()


def test_no_port_is_given_twice():
    ports = [free_port("127.0.0.1") for _ in range(100)]
    assert len(set(ports)) == 100
