"""Model folders, the stand-in, and the server that the contract is checked on: stand-ins always, vLLM where it is."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from dartsim.core.types import Attempt, Observation, Reply, Request, Task, Turn

VARIABLE = "DARTSIM_VLLM_PYTHON"
RULE = "press the red button"


@pytest.fixture(scope="session")
def standin():
    from dartsim.real.stand_ins import engine

    return engine


@dataclass
class Models:
    """Three models of one shape, by seed, each with its folder."""

    vlms: list[Any]
    folders: list[Path]


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Models:
    pytest.importorskip("torch").set_num_threads(1)
    from dartsim.real.vlm import Decoding, build, tiny
    from dartsim.real.vlm.export import export

    root = tmp_path_factory.mktemp("models")
    config = replace(tiny(max_images=3, max_texts=3), decoding=Decoding(max_new_tokens=24), output_scale=1.0)
    vlms = [build(config, seed=seed) for seed in range(3)]
    return Models(vlms, [export(vlm, root / f"model-{seed}") for seed, vlm in enumerate(vlms)])


def _request(number: int = 0, *, turn: int = 0, seed: int | None = None, screen: int = 0) -> Request:
    rng = np.random.default_rng(screen)
    shots = [rng.integers(0, 256, (112, 112, 3), dtype=np.uint8) for _ in range(turn + 1)]
    history = [Turn(Observation(shot, RULE), Reply("click 1 2", 0, 0, 0, 0, 1)) for shot in shots[:-1]]
    attempt = Attempt(number, Task("t", RULE), 0, 0, number if seed is None else seed, 9, 0)
    return Request(attempt, turn, Observation(shots[-1], RULE), history)


@pytest.fixture
def request_of():
    """Make a request: ``request_of(number, turn=…, seed=…, screen=…)``; equal screens are equal prompts."""
    return _request


@dataclass
class Server:
    """A server for the contract.

    ``real`` says that it is vLLM; ``refuses`` that it refuses requests while it is paused in two of the modes.
    """

    url: str
    real: bool
    refuses: bool


@pytest.fixture(scope="session")
def vllm_python() -> str:
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"no vLLM: {VARIABLE} names no interpreter that has it (tox run -e vllm)")
    return python


@pytest.fixture(scope="session")
def vllm_url(vllm_python, models, tmp_path_factory) -> Iterator[str]:
    """One real engine for the whole session: it takes half a minute to start."""
    from dartsim.config.sections.vllm import VllmConfig
    from dartsim.real.engines.launcher import LocalEngine
    from dartsim.real.engines.options import EngineOptions

    options = EngineOptions(vllm=VllmConfig(python=vllm_python), model=str(models.folders[0]))
    engine = LocalEngine(options, tmp_path_factory.mktemp("vllm"))
    with start_blocking_portal() as portal:
        try:
            portal.call(engine.start)
            yield engine.url
        finally:
            portal.call(engine.stop)


@pytest.fixture(params=["standin-0.32", "vllm"])
def server(request, standin, models) -> Iterator[Server]:
    """A server that holds the first model, unnamed."""
    kind, _, release = request.param.partition("-")
    if kind == "vllm":
        url = request.getfixturevalue("vllm_url")
        asyncio.run(_reset(url, models.folders[0]))
        yield Server(url, real=True, refuses=False)
        return
    with start_blocking_portal() as portal:
        server = standin.StandInEngine(models.folders[0], release=release)
        portal.call(server.__aenter__)
        yield Server(server.url, real=False, refuses=release == "0.33")
        portal.call(server.__aexit__)


async def _reset(url: str, folder: Path):
    """Bring the shared engine back to the first model."""
    from dartsim.real.engines.client import EngineClient

    async with EngineClient(url) as client:
        await client.pause("abort")
        await client.rpc("reload_weights", weights_path=str(folder))
        await client.label(0)
        await client.reset_caches()
        await client.resume()
