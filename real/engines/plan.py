"""How each vLLM engine of a configuration would be started; needs no extra, so that a dry run can tell it anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.config import Config
from dartsim.config.schema import VllmConfig
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.real.engines.options import EngineOptions


def engine_options(config: Config, model: Path) -> list[EngineOptions]:
    """Return how each local engine is started.

    Raises:
        ConfigError: If no interpreter with vLLM is named.
    """
    from dartsim.real.engines.options import (  # `real` brings numpy, `dartsim doctor` asks us
        EngineOptions,
        one_engine_a_gpu,
    )

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
        transfer=backend_of(vllm),
        start_seconds=vllm.start_seconds,
    )
    if vllm.gpus:
        return one_engine_a_gpu(options, vllm.gpus)
    return [options] * config.rollout.num_workers


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


def backend_of(vllm: VllmConfig) -> str | None:
    """Return the backend of the weight-transfer routes; None reloads from a folder."""
    return None if vllm.transfer == "folder" else vllm.transfer
