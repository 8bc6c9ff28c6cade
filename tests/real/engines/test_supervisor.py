"""An engine that dies, and what its next start may find: nothing of what it served, a full disk, another death."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from dartsim.core.errors import ConfigError, WorkerFault
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Weights
from dartsim.real.engines.errors import EngineDied, EngineStartFailed
from dartsim.real.engines.options import WorkerSettings
from dartsim.real.engines.request_codec import RequestCodec
from dartsim.real.engines.supervisor import EngineHealth
from dartsim.real.engines.weights import Spool
from dartsim.real.engines.worker import VllmWorker

pytestmark = pytest.mark.anyio

QUICK = WorkerSettings(patience_seconds=0.05, retry_seconds=0.01, warm_up=False)
PATIENT = WorkerSettings(patience_seconds=30.0, retry_seconds=0.01, warm_up=True)


class Process:
    """An engine whose process is a stand-in in the test's own loop.

    Attributes:
        faults: What the next starts raise, one each.
        lies: What the next watches raise.
        prepare: Told each server that was started, before it is healthy.
    """

    name, can_restart = "engine", True

    def __init__(self, standin, model: Path):
        self.faults: list[Exception] = []
        self.lies: list[Exception] = []
        self.prepare: Callable[[Any], None] = lambda server: None
        self.starts: list[Path | None] = []
        self.server: Any = None
        self._standin, self._model = standin, model
        self.end = asyncio.Event()

    @property
    def url(self) -> str:
        return str(self.server.url)

    @property
    def running(self) -> bool:
        return self.server is not None

    async def start(self, model: Path | None = None):
        self.starts.append(model)
        if self.faults:
            raise self.faults.pop(0)
        self.end = asyncio.Event()
        self.server = await self._standin.StandInEngine(model or self._model).__aenter__()
        self.prepare(self.server)

    async def stop(self):
        server, self.server = self.server, None
        if server is not None:
            await server.__aexit__()

    async def die(self):
        await self.stop()
        self.end.set()

    async def ended(self) -> int:
        await self.end.wait()
        if self.lies:
            raise self.lies.pop(0)
        return -9

    def mark_unreachable(self):
        """Its end is watched."""


@asynccontextmanager
async def serving(standin, models, **more) -> AsyncIterator[tuple[Process, VllmWorker]]:
    engine = Process(standin, models.folders[0])
    settings = more.pop("settings", QUICK)
    weights = Weights(0, str(models.folders[0]))
    async with (
        asyncio.timeout(30),
        VllmWorker(0, engine, RequestCodec(models.vlms[0]), weights=weights, settings=settings, **more) as worker,
    ):
        yield engine, worker


async def fault_of(worker: VllmWorker, request) -> WorkerFault:
    with pytest.raises(WorkerFault) as caught:
        await worker.generate(request)
    return caught.value


async def died_under(engine: Process, worker: VllmWorker, request) -> WorkerFault:
    """End the process while it answers a request; return the request's fault."""
    engine.server.faults.hang = True
    asking = asyncio.create_task(worker.generate(request))
    await until(lambda: bool(engine.server.live))
    engine.server, server = None, engine.server
    engine.end.set()
    with pytest.raises(WorkerFault) as caught:
        await asking
    await server.__aexit__()
    return caught.value


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def until(condition: Callable[[], bool]):
    while not condition():  # noqa: ASYNC110 - a server
        await asyncio.sleep(0.005)


async def test_an_engine_whose_last_weights_were_pruned_takes_the_next_load(standin, models, request_of, tmp_path):
    async with serving(standin, models) as (engine, worker):
        old = shutil.copytree(models.folders[1], tmp_path / "version-000001")
        await worker.load(Weights(1, str(old)), SyncMode.KEEP)
        shutil.rmtree(old)
        fault = await died_under(engine, worker, request_of())
        assert isinstance(fault, EngineDied)
        assert fault.back is not None
        await fault.back()
        assert worker.state is EngineHealth.UNLOADED
        assert (await fault_of(worker, request_of())).back is None
        await worker.load(Weights(6, str(models.folders[2])), SyncMode.DRAIN)
        assert (await worker.generate(request_of())).version == 6
        assert engine.starts == [None, models.folders[2]]
        assert worker.counts["fault/weights_torn"] >= 1
        assert worker.counts["deaths"] == 1
        await engine.die()  # it is watched as before
        await until(lambda: len(engine.starts) == 3 and worker.state is EngineHealth.UP)
        assert (await worker.generate(request_of())).version == 6


async def test_a_load_comes_between_two_tries_of_a_start(standin, models, request_of):
    """Nobody waits for the next try of what failed."""

    async with serving(
        standin, models, settings=WorkerSettings(patience_seconds=0.05, retry_seconds=1000.0, warm_up=False)
    ) as (engine, worker):
        engine.faults = [EngineStartFailed("out of memory")]
        await engine.die()
        await until(lambda: len(engine.starts) == 2)
        async with asyncio.timeout(10):
            await worker.load(Weights(1, str(models.folders[1])), SyncMode.DRAIN)
        assert (await worker.generate(request_of())).version == 1
        assert engine.starts == [None, None, models.folders[1]]


async def test_the_pool_brings_an_engine_whose_weights_are_gone_to_the_newest(standin, models, request_of, tmp_path):
    from dartsim.config.sections.rollout import RolloutConfig, SyncConfig
    from dartsim.observe import DesktopState, Recorder
    from dartsim.rollout import RolloutService
    from dartsim.rollout.routers.session_affine import SessionAffine

    async with serving(standin, models) as (engine, worker):
        recorder = Recorder(asyncio.get_running_loop().time, num_envs=1, num_engines=1)
        config = RolloutConfig(sync=SyncConfig(mode="drain"))
        service = RolloutService([worker], weights=Weights(0), router=SessionAffine(), config=config, recorder=recorder)
        running = asyncio.create_task(service.run())
        old = shutil.copytree(models.folders[1], tmp_path / "version-000001")
        service.publish(Weights(1, str(old)))
        await service.settled(1)
        # It is slow to come up; meanwhile the pool learns that it is down, and more is published.
        engine.faults = [OSError(28, "No space left on device")] * 3
        await engine.die()
        await until(lambda: worker.state is EngineHealth.DOWN)
        track = recorder.desktops.tracks[0]
        track.enter(DesktopState.GENERATING)
        asking = asyncio.create_task(service.session(request_of().attempt, track).generate(request_of()))
        await until(lambda: service.workers[0].out_of_rotation)
        shutil.rmtree(old)
        service.publish(Weights(6, str(models.folders[2])))
        assert (await asking).version == 6
        await service.settled(6)
        running.cancel()
        await asyncio.wait([running])


async def test_what_an_engine_starts_from_stays_until_it_is_up(standin, models, request_of, tmp_path, monkeypatch):
    """Versions may come every second, and a start takes half a minute."""
    spool = Spool(tmp_path, like=models.folders[0], keep=1)

    async with serving(standin, models, spool=spool) as (engine, worker):
        await worker.load(Weights(1, models.vlms[1].snapshot()), SyncMode.KEEP)
        before = await worker.generate(request_of())
        start = engine.start

        async def slowly(model: Path | None = None):
            await spool.folder(Weights(2, models.vlms[2].snapshot()))
            assert not (tmp_path / "version-000001").exists()
            await start(model)

        monkeypatch.setattr(engine, "start", slowly)
        await engine.die()
        await until(lambda: len(engine.starts) == 2 and worker.state is EngineHealth.UP)
        after = await worker.generate(request_of())
        assert (after.version, after.tokens.tolist()) == (1, before.tokens.tolist())
    assert names(tmp_path) == ["version-000002"]


async def test_whatever_a_start_raises_it_is_tried_again(standin, models, request_of):
    async with serving(standin, models) as (engine, worker):
        engine.faults = [OSError(28, "No space left on device"), KeyError(1), ConfigError("no such backend")]
        await engine.die()
        await until(lambda: worker.state is EngineHealth.DOWN)
        fault = await fault_of(worker, request_of())
        assert fault.back is not None
        await fault.back()
        assert (await worker.generate(request_of())).version == 0
        assert len(engine.starts) == 5
        assert worker.counts["fault/engine_start_failed"] == 3
        assert worker.counts["deaths"] == 1


async def test_an_engine_that_cannot_be_watched_is_started_anew(standin, models, request_of):
    async with serving(standin, models) as (engine, worker):
        engine.lies = [OSError(5, "Input/output error")]
        engine.end.set()
        await until(lambda: len(engine.starts) == 2 and worker.state is EngineHealth.UP)
        assert (await worker.generate(request_of())).version == 0


async def test_an_engine_that_dies_warming_up_was_never_up(standin, models, request_of):
    async with serving(standin, models, settings=PATIENT) as (engine, worker):
        assert not worker.counts  # its first request is nobody's
        assert len(engine.server.bodies) == 1
        await worker.generate(request_of())
        counts = dict(worker.counts)
        states: list[EngineHealth] = []

        def prepare(server):
            if len(engine.starts) == 2:
                server.faults.drop = 2

            class Seen(list[Any]):
                def append(self, body):
                    states.append(worker.state)
                    super().append(body)

            server.bodies = Seen()

        engine.prepare = prepare
        await engine.die()
        await until(lambda: worker.state is EngineHealth.DOWN)
        asking = [asyncio.create_task(worker.generate(request_of(number))) for number in range(3)]
        assert [reply.version for reply in await asyncio.gather(*asking)] == [0, 0, 0]
        assert len(engine.starts) == 3
        up = states.index(EngineHealth.UP)
        assert up >= 1
        assert states == [EngineHealth.DOWN] * up + [EngineHealth.UP] * 3
        assert worker.counts["fault/engine_lost"] == 1
        assert worker.counts["requests"] == counts["requests"] + 3
        assert worker.counts["prompt_tokens"] == 4 * counts["prompt_tokens"]


async def test_an_engine_on_a_lent_gpu_starts_joins_answers_and_stops_with_each_lending(standin, models, request_of):
    from dartsim.config.sections.rollout import RolloutConfig, SyncConfig
    from dartsim.observe import Recorder
    from dartsim.rollout import RolloutService
    from dartsim.rollout.routers.least_in_flight import LeastInFlight

    async with serving(standin, models) as (_, own), serving(standin, models) as (engine, lent):
        await lent.release()
        assert not engine.running
        recorder = Recorder(asyncio.get_running_loop().time, num_envs=1, num_engines=2)
        config = RolloutConfig(sync=SyncConfig(mode="restart"))
        weights = Weights(0, str(models.folders[0]))
        service = RolloutService(
            [own, lent], weights=weights, router=LeastInFlight(), config=config, recorder=recorder, lent=1
        )
        running = asyncio.create_task(service.run())
        session = service.session(request_of().attempt, recorder.desktops.tracks[0])
        busy = service.workers[0]
        for version in (1, 2):
            service.publish(Weights(version, str(models.folders[version])))
            await service.settled(version)
            assert not engine.running
            await service.join(service.lent[0])
            service.router.begin(busy)  # so that requests go to the other engine
            assert (await session.generate(request_of())).version == version
            engine.server.faults.hang = True
            asking = asyncio.create_task(session.generate(request_of(1)))
            await until(lambda: bool(engine.server.live))
            service.router.end(busy)
            await service.leave(service.lent[0])
            assert not engine.running
            assert (await asking).version == version  # of the other engine
        assert engine.starts == [None, models.folders[1], models.folders[2]]
        assert recorder.counts["fault/request_restarted"] == 2
        running.cancel()
