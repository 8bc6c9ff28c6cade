"""The configured vLLM engines, each behind a worker, for the length of a run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Version, Weights
from dartsim.curation import TurnSelection
from dartsim.envs.actions.ui_tars import UiTars
from dartsim.real.engines.options import (
    ADAPTER,
    WorkerSettings,
    engine_options,
    refuse_other_numbers,
    serves_adapters,
    weights_dtype,
)
from dartsim.real.ray_cluster.backend import placed, ray_engines

try:
    from dartsim.real.engines.launcher import AttachedEngine, Engine, LocalEngine
    from dartsim.real.engines.ledger import WeightsLedger
    from dartsim.real.engines.request_codec import RequestCodec
    from dartsim.real.engines.weights import Spool
    from dartsim.real.engines.worker import VllmWorker, running
    from dartsim.real.scratch import scratch_folder
    from dartsim.real.vlm import Vlm
    from dartsim.real.vlm.export import export
    from dartsim.real.vlm.lora import adapter_of, blank_adapter, save_adapter
except ModuleNotFoundError as missing:
    raise ConfigError(f"vLLM workers need {missing.name}: {install_command('train', 'real')}") from None

logger = logging.getLogger(__name__)

CONCURRENT_STARTS = 4
"""Engines that start at the same time; the others wait."""
ENTROPY_TOKENS = 20
"""Likeliest tokens requested for high-entropy selection; exact for grammars with up to this many choices."""


@asynccontextmanager
async def vllm_workers(
    config: Config, vlm: Vlm, *, version: Version, on_step: Callable[[str, int, int], None] | None = None
) -> AsyncIterator[list[VllmWorker]]:
    """Start the configured engines, or attach to them, with the model's weights; stop ours at the end.

    Raises:
        ConfigError: If no interpreter with vLLM is named, or the number of addresses is not that of workers.
        WorkerFault: If an engine does not come up or has other weights than it was given.
    """
    # Engines on other machines read from the learner's folder, which is on a shared disk.
    shared = config.trainer.fsdp.folder if config.backend.learner == "fsdp" else None
    if placed(config, "workers"):
        shared = config.ray.folder or shared
    with scratch_folder("engines", shared) as folder:
        dtype = weights_dtype(config)
        adapters = serves_adapters(config)
        model = export(vlm, folder / "model", dtype=dtype, merge=not adapters)
        adapter = None
        if adapters:  # one that changes nothing, if the learner's processes alone have LoRA
            first = adapter_of(vlm.model) or blank_adapter(vlm.model, config.trainer.lora.rank or 0)
            adapter = save_adapter(first, folder / "adapter", dtype=dtype)
        weights = Weights(version, model)
        codec = RequestCodec(vlm, top_logprobs=_top_logprobs(config), model=ADAPTER if adapters else None)
        ledger, spool = WeightsLedger(), Spool(folder / "versions", like=model, dtype=dtype, adapters=adapters)
        settings = WorkerSettings(
            request_seconds=config.vllm.request_seconds,
            readable=UiTars(config.desktop.width, config.desktop.height).readable,
            tries=config.policy.malformed_tries if config.policy.grammar == "ui_tars" else 1,
        )
        async with AsyncExitStack() as stack:
            if placed(config, "workers"):
                options = engine_options(config, model, adapter)
                refuse_other_numbers(config, len(options))
                engines = await stack.enter_async_context(ray_engines(config, options, folder))
            else:
                engines = _engines(config, model, adapter, folder)
            workers = [
                VllmWorker(
                    index,
                    engine,
                    codec,
                    # The weights of an attached engine are unknown until they are loaded.
                    weights=Weights(version) if isinstance(engine, AttachedEngine) else weights,
                    ledger=ledger,
                    spool=spool,
                    settings=settings,
                )
                for index, engine in enumerate(engines)
            ]
            num_up = 0

            def report() -> None:
                if on_step is not None:
                    on_step("engines", num_up, len(workers))

            async def start(worker: VllmWorker) -> None:
                nonlocal num_up
                await worker.start()
                if isinstance(worker.engine, AttachedEngine):
                    await worker.load(weights, SyncMode.DRAIN)
                if worker.index >= config.rollout.num_workers:
                    await worker.release()  # it can start; its GPU is the trainer's until it is lent
                num_up += 1
                report()

            report()
            await stack.enter_async_context(running(workers, at_once=CONCURRENT_STARTS, start=start))
            yield workers


def _engines(config: Config, model: Path, adapter: Path | None, folder: Path) -> list[Engine]:
    vllm = config.vllm
    engines: list[Engine]
    if vllm.addresses:
        engines = [AttachedEngine(url, start_seconds=vllm.start_seconds) for url in vllm.addresses]
    else:
        engines = [
            LocalEngine(options, folder, name=f"engine-{number}", progress=_log_start(number))
            for number, options in enumerate(engine_options(config, model, adapter))
        ]
    refuse_other_numbers(config, len(engines))
    return engines


def _top_logprobs(config: Config) -> int:
    selection: TurnSelection = config.curation.selection.build()
    return ENTROPY_TOKENS if selection.needs_entropies else 0


def _log_start(number: int) -> Callable[[float, str], None]:
    return lambda seconds, line: logger.info("engine %d, %.0f s: %s", number, seconds, line)
