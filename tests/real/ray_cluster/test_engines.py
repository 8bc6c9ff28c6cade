"""Servers in actors: conformance of the worker over one, its end with its actor, its new address."""

import asyncio
import sys
from dataclasses import replace
from functools import partial

import pytest

from dartsim.core.errors import WorkerFault
from dartsim.core.types import Observation, Weights
from dartsim.testing import ports as checks

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model and its folder."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("httpx", reason="needs the extra `real`")
    torch.set_num_threads(1)
    from dartsim.real.vlm import Decoding, build, tiny
    from dartsim.real.vlm.export import export

    vlm = build(replace(tiny(max_texts=4), decoding=Decoding(max_new_tokens=24)))
    return vlm, export(vlm, tmp_path_factory.mktemp("engine") / "model")


@pytest.fixture
def engine(place, model, tmp_path):
    from dartsim.config.sections.vllm import VllmConfig
    from dartsim.real.engines.options import EngineOptions
    from dartsim.real.ray_cluster.engines import EngineHost, RayEngine
    from dartsim.real.stand_ins.serving import ENGINE, PATH

    def make(folder=model[1], **want):
        vllm = VllmConfig(python=sys.executable, start_seconds=60.0)
        options = EngineOptions(vllm=vllm, model=str(folder), entry=ENGINE, environment=PATH)
        host = partial(EngineHost, options, str(tmp_path / "logs"), "engine-0", "loopback")
        return RayEngine(place("engine-0", host, **want), start_seconds=60.0)

    return make


async def test_a_server_starts_where_its_actor_sits_and_ends_with_it(engine, end):
    made = engine()
    await made.start()
    first = made.url
    assert first.startswith("http://127.0.0.1:")
    assert made.running
    ended = asyncio.ensure_future(made.ended())
    await end(made.part)
    async with asyncio.timeout(60.0):
        assert await ended == -9
        assert not made.running
        await made.stop()
        while not made.running:
            try:
                await made.start()
            except WorkerFault:
                await asyncio.sleep(0.2)
    assert made.running
    assert made.url != first
    await made.stop()


async def test_a_worker_over_it_keeps_what_the_port_promises(engine, model):
    import numpy as np

    from dartsim.real.engines.request_codec import RequestCodec
    from dartsim.real.engines.worker import VllmWorker

    vlm, folder = model

    worker = VllmWorker(0, engine(), RequestCodec(vlm), weights=Weights(0, folder))
    async with worker:
        shown = Observation(np.zeros((112, 112, 3), np.uint8), checks.TASK.instruction)
        await checks.check_policy_worker(worker, shown, source=folder)


def test_a_model_that_is_not_on_the_node_is_named(engine):
    from dartsim.real.engines.errors import EngineStartFailed

    with pytest.raises(EngineStartFailed, match=r"/no/such/model.*ray\.folder"):
        asyncio.run(engine(folder="/no/such/model").start())
