"""Engines as processes, with the stand-in in vLLM's place; and once with vLLM where it is."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from dartsim.config.sections.vllm import VllmConfig
from dartsim.core.errors import ConfigError, WorkerRestarted
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Weights
from dartsim.real.engines.errors import EngineStartFailed
from dartsim.real.engines.launcher import LocalEngine
from dartsim.real.engines.options import EngineOptions, WorkerSettings, one_engine_a_gpu
from dartsim.real.engines.request_codec import RequestCodec
from dartsim.real.engines.supervisor import EngineHealth
from dartsim.real.engines.worker import VllmWorker
from dartsim.real.stand_ins.serving import ENGINE, PATH

pytestmark = pytest.mark.anyio

SETTINGS = WorkerSettings(patience_seconds=30.0, retry_seconds=0.05, warm_up=False)


def options_of(models, *, start_seconds: float = 600.0, flags: tuple[str, ...] = (), **more) -> EngineOptions:
    vllm = VllmConfig(python=sys.executable, start_seconds=start_seconds, flags=list(flags))
    return EngineOptions(vllm=vllm, model=str(models.folders[0]), entry=ENGINE, environment=PATH, **more)


def worker_of(engine: LocalEngine, models, settings: WorkerSettings = SETTINGS) -> VllmWorker:
    return VllmWorker(
        0,
        engine,
        RequestCodec(models.vlms[0]),
        weights=Weights(0, str(models.folders[0])),
        settings=settings,
    )


async def until(condition: Callable[[], bool]):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


async def test_an_engine_is_started_killed_and_back_with_the_weights_it_had(models, request_of, tmp_path):
    engine = LocalEngine(options_of(models), tmp_path)
    async with worker_of(engine, models) as worker:
        await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
        before = await worker.generate(request_of())
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: worker.state is not EngineHealth.UP)
        after = await worker.generate(request_of())
        assert (after.version, after.tokens.tolist()) == (1, before.tokens.tolist())
        assert engine.starts == 2
        assert worker.counts["deaths"] == 1
    assert not engine.running
    assert (tmp_path / "engine.log").read_text().count("loading the model") == 2


async def test_a_restart_serves_the_new_weights_and_kills_live_requests(models, request_of, tmp_path):
    engine = LocalEngine(options_of(models), tmp_path)
    async with worker_of(engine, models) as worker:
        live = [asyncio.create_task(worker.generate(request_of(number))) for number in range(3)]
        await asyncio.sleep(0)
        await worker.load(Weights(1, str(models.folders[1])), SyncMode.RESTART)
        for ended in await asyncio.gather(*live, return_exceptions=True):
            assert isinstance(ended, WorkerRestarted)
        assert (await worker.generate(request_of())).version == 1
        assert engine.starts == 2
        # A single file is no folder to start from: the process starts with its own, and then loads the file.
        file = models.folders[2] / "model.safetensors"
        await worker.load(Weights(2, str(file)), SyncMode.RESTART)
        assert (await worker.generate(request_of())).version == 2
        assert worker.counts["restarts"] == 2
        assert worker.counts["deaths"] == 0


async def test_a_start_that_fails_says_why(models, tmp_path):
    engine = LocalEngine(options_of(models, flags=("--fail-start",)), tmp_path)
    with pytest.raises(EngineStartFailed, match=r"status 3 (.|\n)*ValueError"):
        await engine.start()
    slow = options_of(models, flags=("--start-seconds", "60"), start_seconds=0.3, stop_seconds=1.0)
    engine = LocalEngine(slow, tmp_path, name="slow")
    with pytest.raises(EngineStartFailed, match=r"0\.3 s"):
        await engine.start()
    assert not engine.running
    nowhere = EngineOptions(vllm=VllmConfig(python="/nowhere/python"), model="model")
    with pytest.raises(EngineStartFailed, match="cannot be run"):
        await LocalEngine(nowhere, tmp_path).start()


def test_an_engine_ends_with_whoever_started_it(models, tmp_path):
    program = f"""
import asyncio, sys
from pathlib import Path
from dartsim.config.sections.vllm import VllmConfig
from dartsim.real.engines.launcher import LocalEngine
from dartsim.real.engines.options import EngineOptions
async def main():
    vllm = VllmConfig(python=sys.executable)
    options = EngineOptions(vllm=vllm, model={str(models.folders[0])!r}, entry={ENGINE!r}, environment={PATH!r})
    engine = LocalEngine(options, Path({str(tmp_path)!r}))
    await engine.start()
    print(engine.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    engine = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while _lives(engine):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_options_are_a_command_and_an_environment():
    options = EngineOptions(vllm=VllmConfig(python="py", device="cuda", dtype="bfloat16"), model="m")
    first, second = one_engine_a_gpu(options, [0, 1])
    assert first.variables()["CUDA_VISIBLE_DEVICES"] == "0"
    assert second.variables()["CUDA_VISIBLE_DEVICES"] == "1"
    assert not {"--kv-cache-dtype", "--quantization"} & set(first.command(8000))
    flags = {"kv_cache_dtype": "fp8", "quantization": "fp8", "flags": ["--max-log-len", "1"]}
    command = EngineOptions(vllm=options.vllm.replace(**flags), model="m").command(1)
    assert command[command.index("--kv-cache-dtype") + 1] == command[command.index("--quantization") + 1] == "fp8"
    assert command[-2:] == ["--max-log-len", "1"]
    with pytest.raises(ConfigError, match=r"vllm\.flags.*--model=other"):
        EngineOptions(vllm=VllmConfig(python="py", flags=["--model=other"]), model="m")
    for flag in ("--mm-processor-kwargs", "--mm_processor_kwargs.max_pixels=9"):
        with pytest.raises(ConfigError, match=r"mm.processor.kwargs"):
            EngineOptions(vllm=VllmConfig(python="py", flags=[flag]), model="m")
    with pytest.raises(ConfigError, match="3 GPUs"):
        one_engine_a_gpu(EngineOptions(vllm=VllmConfig(python="py", tensor_parallel=2), model="m"), [0, 1, 2])


async def test_vllm_is_back_with_its_weights_after_it_was_killed_and_after_a_restart(
    vllm_python, models, request_of, tmp_path
):
    from dartsim.real.vlm.sampling import score_reply

    engine = LocalEngine(EngineOptions(vllm=VllmConfig(python=vllm_python), model=str(models.folders[0])), tmp_path)
    settings = WorkerSettings(patience_seconds=300.0, retry_seconds=0.05)
    async with worker_of(engine, models, settings) as worker:

        async def agrees(version: int) -> bool:
            vlm, request = models.vlms[version], request_of(turn=1)
            reply = await worker.generate(request)
            scored = score_reply(vlm, vlm.prompts.build(request.observation, request.history), reply.tokens)
            return reply.version == version and np.abs(scored.logprobs - reply.logprobs).max() < 1e-4

        await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
        assert await agrees(1)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: worker.state is not EngineHealth.UP)
        assert await agrees(1)
        assert worker.counts["deaths"] == 1
        await worker.load(Weights(2, str(models.folders[2])), SyncMode.RESTART)
        assert await agrees(2)
