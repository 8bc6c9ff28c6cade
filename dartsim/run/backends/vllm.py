"""vLLM servers, started here, by Ray, or outside of the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from typing_extensions import override

from dartsim.core.install import VLLM_PYTHON
from dartsim.core.ports import PolicyWorker
from dartsim.core.registry import register
from dartsim.run.backends import BackendContext, EngineBackend

if TYPE_CHECKING:
    from dartsim.config import Config

PORT = "PORT"
"""Placeholder for a free port, chosen at the start."""
MODEL = "MODEL"
"""Placeholder for the folder to which the model is exported at the start."""
ADAPTER = "ADAPTER"
"""Placeholder for the folder of the first adapter, with LoRA."""
PYTHON = "VLLM_PYTHON"
"""Placeholder for the interpreter with vLLM if none is configured."""


@register("engine", "vllm")
class VllmEngines(EngineBackend):
    """vLLM servers, one for each worker."""

    packages = ("httpx",)
    can_release = True

    @override
    def problems(self, config: Config) -> Iterator[str]:
        vllm = config.vllm
        if config.ray.address is not None and vllm.gpus:
            yield (
                f"vllm.gpus = {vllm.gpus} names GPUs of this machine. With Ray, leave it out, and set "
                "ray.engine_options.num_gpus to the number that each engine takes."
            )
        if config.rollout.lending.engines and (vllm.addresses or config.ray.address is not None):
            yield (
                f"rollout.lending.engines = {config.rollout.lending.engines} needs engines that this run starts and "
                "stops on its trainer's GPUs. Leave out vllm.addresses and ray.address, or set it to 0."
            )

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        from dartsim.real.engines.options import engine_options, refuse_other_numbers, serves_adapters

        number = config.rollout.num_engines
        addresses = config.vllm.addresses
        python = config.vllm.python or os.environ.get(VLLM_PYTHON) or PYTHON
        named = config.replace(vllm={"python": python})
        if addresses:
            refuse_other_numbers(config, len(addresses))
            return {
                "what": f"{number} vLLM servers that run already are attached to",
                "addresses": list(addresses),
                "start_there": _attached_plan(named),
            }
        options = engine_options(named, Path(MODEL), Path(ADAPTER) if serves_adapters(config) else None)
        refuse_other_numbers(config, len(options))
        processes = []
        for index, engine in enumerate(options):
            command = engine.command(0)
            command[command.index("--port") + 1] = PORT
            processes.append(
                {
                    "name": f"engine-{index}",
                    "listens": f"on {engine.host}, a free port",
                    "command": command,
                    "environment": engine.variables(),
                }
            )
        return {"what": f"{number} vLLM servers, started again when they end", "processes": processes}

    @override
    async def open(self, context: BackendContext) -> Sequence[PolicyWorker]:
        from dartsim.real.engines.backend import vllm_workers

        served = context.model
        version = served.weights.version
        workers = vllm_workers(context.prepared.config, served.vlm, version=version, on_step=context.on_step)
        return await context.stack.enter_async_context(workers)


def _attached_plan(config: Config) -> list[dict[str, Any]]:
    """Return the servers that must be started elsewhere before the run attaches to them."""
    from dartsim.real.engines.options import engine_options, engine_places

    alone = config.replace(vllm={"addresses": [], "gpus": []})
    shared = engine_options(alone, Path(config.policy.model or MODEL))[0]
    plans = []
    for number, (host, gpus) in enumerate(engine_places(config)):
        port = urlsplit(config.vllm.addresses[number]).port or 80
        options = replace(shared, devices=tuple(gpus) if config.vllm.device == "cuda" else ())
        plans.append(
            {
                "name": f"engine-{number}",
                "listens": f"on the loopback of {host}, port {port}; reached through an ssh tunnel",
                "command": options.command(port),
                "environment": options.variables(),
            }
        )
    return plans
