"""vLLM engines as a configuration describes them, each behind a worker, for the length of a run."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dartsim.config import Config
from dartsim.config.schema import VllmConfig
from dartsim.errors import ConfigError
from dartsim.ports import SyncMode
from dartsim.run.models import Models
from dartsim.run.ray import placed, ray_engines
from dartsim.types import Weights

if TYPE_CHECKING:
    from dartsim.run.learning import Learning

try:
    from real.inference.asking import Asker
    from real.inference.launcher import AttachedEngine, Engine, LocalEngine
    from real.inference.ledger import Ledger
    from real.inference.options import EngineOptions, one_engine_a_gpu
    from real.inference.settings import WorkerSettings
    from real.inference.weights import Spool, transfer_for
    from real.inference.worker import VllmWorker
    from real.vlm.export import export
except ModuleNotFoundError as missing:
    raise ConfigError(f"vLLM workers need {missing.name}: pip install torch 'dartsim[train,real]'") from None

logger = logging.getLogger(__name__)

VARIABLE = "DARTSIM_VLLM_PYTHON"
"""Names the interpreter of the environment that has vLLM, where the configuration does not."""

ENTROPY_TOKENS = 20
"""Likeliest tokens that high-entropy selection asks for: exact for actions of up to so many words."""


@asynccontextmanager
async def vllm_workers(found: Models, learning: Learning) -> AsyncIterator[list[VllmWorker]]:
    """Start the configured engines, or attach to them, give them the model's weights, and stop ours at the end.

    Raises:
        ConfigError: If there is no interpreter with vLLM, or more workers than addresses.
        WorkerFault: If an engine does not come up, or does not hold the weights it was given.
    """
    config = found.config
    # Engines on other machines read from the learner's folder, which is on a disk that they see.
    shared = config.trainer.fsdp.folder if config.backend.learner == "fsdp" else None
    if placed(config, "workers"):
        shared = config.ray.folder or shared
    with TemporaryDirectory(prefix="dartsim-engines-", dir=shared) as folder:
        model = export(learning.vlm, Path(folder) / "model")
        weights = Weights(learning.trainer.updates, model)
        asker = Asker(learning.vlm, top_logprobs=_top_logprobs(config))
        ledger, spool = Ledger(), Spool(Path(folder) / "versions", like=model)
        settings = WorkerSettings(request_seconds=config.vllm.request_seconds)
        async with AsyncExitStack() as stack:
            workers = []
            if placed(config, "workers"):
                options = engine_options(config, model)
                refuse_other_numbers(config, len(options))
                engines = await stack.enter_async_context(ray_engines(config, options, Path(folder)))
            else:
                engines = _engines(config, model, Path(folder))
            for index, engine in enumerate(engines):
                attached = isinstance(engine, AttachedEngine)
                worker = VllmWorker(
                    index,
                    engine,
                    asker,
                    # What an attached engine holds is anybody's guess until it was loaded.
                    weights=Weights(weights.version) if attached else weights,
                    transfer=transfer_for(_backend(config.vllm)),
                    ledger=ledger,
                    spool=spool,
                    settings=settings,
                )
                await stack.enter_async_context(worker)
                if attached:
                    await worker.load(weights, SyncMode.DRAIN)
                workers.append(worker)
            yield workers


def engine_options(config: Config, model: Path) -> list[EngineOptions]:
    """Return how each local engine is started.

    Raises:
        ConfigError: If no interpreter with vLLM is named.
    """
    vllm = config.vllm
    python = vllm.python or os.environ.get(VARIABLE)
    if python is None:
        raise ConfigError(
            f'backend.workers = "vllm" needs the interpreter of an environment with vLLM: set vllm.python or '
            f"{VARIABLE}, or vllm.addresses to attach to engines that run"
        )
    options = EngineOptions(
        python=python,
        model=str(model),
        device=vllm.device,
        dtype=vllm.dtype,
        tensor_parallel=vllm.tensor_parallel,
        gpu_memory_utilization=vllm.gpu_memory_share,
        max_model_len=vllm.max_model_len,
        max_num_seqs=vllm.max_num_seqs,
        max_images=config.policy.max_images,
        threads=vllm.threads,
        transfer=_backend(vllm),
        start_seconds=vllm.start_seconds,
    )
    if vllm.gpus:
        return one_engine_a_gpu(options, vllm.gpus)
    return [options] * config.rollout.num_workers


def _engines(config: Config, model: Path, folder: Path) -> list[Engine]:
    vllm = config.vllm
    engines: list[Engine]
    if vllm.addresses:
        engines = [AttachedEngine(url, start_seconds=vllm.start_seconds) for url in vllm.addresses]
    else:
        engines = [
            LocalEngine(options, folder, name=f"engine-{number}", progress=_tell(number))
            for number, options in enumerate(engine_options(config, model))
        ]
    refuse_other_numbers(config, len(engines))
    return engines


def refuse_other_numbers(config: Config, engines: int) -> None:
    """Refuse another number of engines than of workers.

    Raises:
        ConfigError: If they differ.
    """
    wanted = config.rollout.num_workers
    if engines != wanted:
        raise ConfigError(
            f"rollout.num_workers = {wanted}, but vllm.addresses and vllm.gpus make {engines} engines; make them equal"
        )


def _backend(vllm: VllmConfig) -> str | None:
    return None if vllm.transfer == "folder" else vllm.transfer


def _top_logprobs(config: Config) -> int:
    return ENTROPY_TOKENS if config.curation.selection.rule == "high_entropy" else 0


def _tell(number: int) -> Callable[[float, str], None]:
    """Return what logs how an engine's start goes on."""
    return lambda seconds, line: logger.info("engine %d, %.0f s: %s", number, seconds, line)
