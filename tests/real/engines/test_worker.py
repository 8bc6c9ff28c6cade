"""The worker against a stand-in that goes wrong."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

pytest.importorskip("aiohttp")
from aiohttp import web

from dartsim.core.errors import WorkerFault
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Weights
from dartsim.real.engines.errors import (
    EngineBadReply,
    EngineLost,
    EnginePaused,
    EngineRefused,
    EngineStartFailed,
    WeightsRefused,
    WeightsTorn,
    WeightsUnconfirmed,
)
from dartsim.real.engines.launcher import AttachedEngine
from dartsim.real.engines.options import WorkerSettings
from dartsim.real.engines.request_codec import RequestCodec
from dartsim.real.engines.supervisor import EngineHealth
from dartsim.real.engines.weights import Spool
from dartsim.real.engines.worker import VllmWorker

pytestmark = pytest.mark.anyio

QUICK = WorkerSettings(request_seconds=5.0, patience_seconds=0.05, pause_seconds=0.2, retry_seconds=0.02, warm_up=False)


def worker_at(server, models, **more) -> VllmWorker:
    weights = more.pop("weights", Weights(0, str(models.folders[0])))
    settings = more.pop("settings", QUICK)
    return VllmWorker(
        0, AttachedEngine(server.url), RequestCodec(models.vlms[0]), weights=weights, settings=settings, **more
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def until(condition: Callable[[], bool]):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(standin, models, **more) -> AsyncIterator[tuple[Any, VllmWorker]]:
    """Serve with a fresh stand-in."""
    async with standin.StandInEngine(models.folders[0]) as server, worker_at(server, models, **more) as worker:
        yield server, worker


async def test_faults_have_causes(standin, models, request_of):
    async with serving(standin, models) as (server, worker):
        server.faults.status = 500
        with pytest.raises(EngineBadReply, match="500") as caught:
            await worker.generate(request_of())
        assert caught.value.status == 500
        server.faults.status = 503
        with pytest.raises(EnginePaused, match=r"0\.2"):
            await worker.generate(request_of())
        server.faults.status = 0
        server.faults.drop = 2
        with pytest.raises(EngineLost):
            await worker.generate(request_of())
        assert (await worker.generate(request_of())).version == 0
        assert worker.counts["fault/engine_bad_reply"] == 1
        assert worker.counts["fault/engine_paused"] == 1
        assert worker.counts["fault/engine_lost"] == 1


async def test_a_connection_that_breaks_once_is_no_fault(standin, models, request_of):
    async with serving(standin, models) as (server, worker):
        server.faults.drop = 1
        assert (await worker.generate(request_of())).version == 0
        assert not [name for name in worker.counts if name.startswith("fault/")]


async def test_an_engine_that_is_not_there_is_said_so(models, request_of):
    engine = AttachedEngine("http://127.0.0.1:9", start_seconds=0.1)
    worker = VllmWorker(0, engine, RequestCodec(models.vlms[0]), weights=Weights(0), settings=QUICK)
    with pytest.raises(EngineStartFailed, match=r"http://127\.0\.0\.1:9"):
        await worker.start()
    with pytest.raises(WorkerFault, match="is down"):
        await worker.generate(request_of())


async def test_a_server_that_is_no_engine_is_said_so(standin, models):
    class Page(standin.StandInEngine):
        def app(self) -> web.Application:
            async def page(request) -> web.Response:
                return web.Response(text="<html>It works</html>")

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", page)
            return app

    async with Page(models.folders[0]) as server:
        with pytest.raises(EngineStartFailed, match="no vLLM server"):
            await worker_at(server, models).start()


async def test_a_torn_folder_is_seen_before_the_engine_is_touched(standin, models, request_of, tmp_path):
    file = tmp_path / "model.safetensors"
    raw = (models.folders[1] / "model.safetensors").read_bytes()
    file.write_bytes(raw[:-10])

    async with serving(standin, models) as (server, worker):
        with pytest.raises(WeightsTorn, match="its header says"):
            await worker.load(Weights(1, str(tmp_path)), SyncMode.KEEP)
        assert ("POST", "/pause") not in server.seen
        assert worker.state is EngineHealth.UNLOADED
        with pytest.raises(WorkerFault, match="unloaded"):
            await worker.generate(request_of())
        file.write_bytes(raw)
        await worker.load(Weights(1, str(tmp_path)), SyncMode.KEEP)
        assert (await worker.generate(request_of())).version == 1
        assert worker.counts["fault/weights_torn"] == 1


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("held", [0, 1])
@pytest.mark.parametrize("fault", ["none", "silent_loads", "partial_loads", "wrong_loads"])
async def test_the_first_load_into_an_engine_of_somebody_else_is_confirmed_or_refused(
    standin, models, request_of, fault, held, fused
):
    """It holds the very weights or those of the last run, and does nothing, half of it, or reads another folder."""

    async with standin.StandInEngine(models.folders[held]) as server:
        server.version, server.fused = "0", fused
        server.faults.elsewhere = models.folders[2]
        async with worker_at(server, models, weights=Weights(0)) as worker:
            first = Weights(0, str(models.folders[0]))
            if fault != "none":
                setattr(server.faults, fault, 1)
                with pytest.raises(WeightsUnconfirmed):
                    await worker.load(first, SyncMode.DRAIN)
                assert worker.state is EngineHealth.UNLOADED
                assert server.paused is not None
            await worker.load(first, SyncMode.DRAIN)
            assert (await worker.generate(request_of())).version == 0
            assert server.tensors == standin.read_tensors(models.folders[0])


@pytest.mark.parametrize("fault", ["silent_loads", "partial_loads", "wrong_loads"])
async def test_a_later_load_of_fused_parameters_is_confirmed_or_refused(standin, models, request_of, fault):
    async with standin.StandInEngine(models.folders[0]) as server:
        server.fused, server.faults.elsewhere = True, models.folders[2]
        async with worker_at(server, models) as worker:
            await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
            setattr(server.faults, fault, 1)
            with pytest.raises(WeightsUnconfirmed):
                await worker.load(Weights(2, str(models.folders[0])), SyncMode.KEEP)
            await worker.load(Weights(2, str(models.folders[0])), SyncMode.KEEP)
            await worker.load(Weights(3, str(models.folders[0])), SyncMode.KEEP)  # nothing has to change
            assert (await worker.generate(request_of())).version == 3


async def test_an_attached_engine_that_holds_other_weights_than_it_was_said_to_is_refused(standin, models):
    async with standin.StandInEngine(models.folders[1]) as server:
        with pytest.raises(WeightsUnconfirmed, match="are not in the engine"):
            await worker_at(server, models).start()


async def test_an_engine_that_was_started_anew_within_a_moment_gets_its_weights_again(standin, models, request_of):
    """No connection was refused meanwhile: only the name of its weights shows it."""

    async with serving(standin, models) as (server, worker):
        await worker.load(Weights(1, str(models.folders[1])), SyncMode.DRAIN)
        for name in ("default", "7"):
            server.version, server.tensors = name, standin.read_tensors(models.folders[0])
            with pytest.raises(EngineBadReply):
                await worker.generate(request_of())
            await until(lambda: worker.state is EngineHealth.UP and server.version == "1")
            assert (await worker.generate(request_of())).version == 1
            assert server.tensors == standin.read_tensors(models.folders[1])


async def test_a_refused_load_keeps_live_requests_frozen_until_a_good_one(standin, models, request_of):
    async with serving(standin, models) as (server, worker):
        server.token_seconds = 0.02
        server.faults.refuse_loads = 1
        asking = asyncio.create_task(worker.generate(request_of(5)))
        await until(lambda: bool(server.live))
        with pytest.raises(WeightsRefused, match="a fault by switch"):
            await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
        await asyncio.sleep(0.1)
        assert not asking.done()
        await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
        assert (await asking).version == 1


async def test_requests_are_salted_by_the_version_that_answers_them(standin, models, request_of):
    async with serving(standin, models) as (server, worker):
        await worker.generate(request_of())
        await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
        await worker.generate(request_of())
        assert [body["cache_salt"] for body in server.bodies] == ["0", "1"]


async def test_weights_in_memory_are_written_once_for_all_workers(standin, models, request_of, tmp_path):
    spool = Spool(tmp_path, like=models.folders[0], keep=2)
    async with (
        standin.StandInEngine(models.folders[0]) as one,
        standin.StandInEngine(models.folders[0]) as two,
        worker_at(one, models, spool=spool) as first,
        worker_at(two, models, spool=spool) as second,
    ):
        for version in (1, 2, 3):
            weights = Weights(version, models.vlms[version % 3].snapshot())
            await asyncio.gather(first.load(weights, SyncMode.KEEP), second.load(weights, SyncMode.KEEP))
        assert (await first.generate(request_of())).version == 3
        assert (tmp_path / "version-000003" / "config.json").is_file()
        with pytest.raises(WeightsRefused, match="came as NoneType"):
            await first.load(Weights(4), SyncMode.KEEP)
    assert names(tmp_path) == ["version-000002", "version-000003"]


async def test_a_pool_changes_weights_one_engine_at_a_time_and_loses_no_request(
    standin, models, request_of, monkeypatch
):
    from dartsim.config.sections.rollout import RolloutConfig, SyncConfig
    from dartsim.observe import DesktopState, Recorder
    from dartsim.observe.figures import figures
    from dartsim.rollout import RolloutService, sync
    from dartsim.rollout.routers.session_affine import SessionAffine

    monkeypatch.setattr(sync, "RETRY_SECONDS", 0.05)

    async with (
        standin.StandInEngine(models.folders[0], token_seconds=0.002) as one,
        standin.StandInEngine(models.folders[0], token_seconds=0.002, release="0.33") as two,
        worker_at(one, models) as first,
        worker_at(two, models) as second,
    ):
        recorder = Recorder(asyncio.get_running_loop().time, num_envs=8, num_engines=2)
        config = RolloutConfig(sync=SyncConfig(mode="keep", workers_at_a_time=1))
        service = RolloutService(
            [first, second], weights=Weights(0), router=SessionAffine(), config=config, recorder=recorder
        )
        running = asyncio.create_task(service.run())

        async def attempt(number: int) -> list[int]:
            track = recorder.desktops.tracks[number]
            track.enter(DesktopState.GENERATING)
            session = service.session(request_of(number).attempt, track)
            return [(await session.generate(request_of(number, turn=turn))).version for turn in range(6)]

        attempts = [asyncio.create_task(attempt(number)) for number in range(8)]
        one.faults.refuse_loads = 1
        for version in (1, 2, 3):
            service.publish(Weights(version, str(models.folders[version % 3])))
            await service.settled(version)
        versions = await asyncio.gather(*attempts)
        running.cancel()
        await asyncio.wait([running])
        assert len(versions) == 8
        assert not [name for name in recorder.counts if name.startswith("fault/request")]
        assert recorder.counts["fault/load"] == 1
        assert (first.version, second.version) == (3, 3)
        counts = first.counts + second.counts
        assert recorder.hot.looked_up_tokens == counts["prompt_tokens"]
        assert recorder.hot.cached_tokens == counts["cached_tokens"] > 0
        share = figures(recorder.snapshots[0], recorder.snapshot())["prefix_hit_share"]
        assert share == counts["cached_tokens"] / counts["prompt_tokens"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_attached_engine_that_was_away_serves_again_with_the_worker_s_weights(
    standin, models, request_of, restarted
):
    server = await standin.StandInEngine(models.folders[0]).__aenter__()
    async with asyncio.timeout(30), worker_at(server, models) as worker:
        await worker.load(Weights(1, str(models.folders[1])), SyncMode.DRAIN)
        await server.__aexit__()
        with pytest.raises(EngineRefused) as caught:
            await worker.generate(request_of())
        assert worker.state is EngineHealth.DOWN
        back = caught.value.back
        assert back is not None
        if restarted:  # by whoever runs it, with the weights that it starts with
            server = standin.StandInEngine(models.folders[0], port=server.port)
        await server.__aenter__()
        server.seen.clear()
        await back()
        assert (await worker.generate(request_of())).version == 1
        assert server.tensors == standin.read_tensors(models.folders[1])
        loads = [path for _, path in server.seen if path == "/collective_rpc"]
        assert len(loads) == restarted, "weights that it still has are not sent again"
        assert worker.counts["deaths"] == 1
        await server.__aexit__()


async def test_an_engine_that_dropped_an_image_is_sent_all_of_them_again(standin, models, request_of):
    def sent(body) -> list[bool]:
        return [part["url"] is not None for part in body["content_parts"]]

    async with serving(standin, models) as (server, worker):
        first = await worker.generate(request_of(1, turn=1, screen=5))
        later = await worker.generate(request_of(1, turn=2, screen=5))
        assert [sent(body) for body in server.bodies] == [[True, True], [False, False, True]]
        server.faults.forgetful = 2
        await worker.generate(request_of(2, screen=6))  # takes the place of the oldest ones
        again = await worker.generate(request_of(1, turn=2, screen=5))
        assert [sent(body) for body in server.bodies[3:]] == [[False] * 3, [True] * 3]
        assert list(again.tokens) == list(later.tokens) != list(first.tokens)
        assert not [name for name in worker.counts if name.startswith("fault/")]
        server.faults.status = 400  # a refusal for another reason is told, after one more try
        with pytest.raises(EngineBadReply):
            await worker.generate(request_of(1, turn=2, screen=5))
