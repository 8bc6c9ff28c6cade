"""How a vLLM process is started and how patient its worker is, as data; a dry run shows it without any extra."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from dartsim.config import Config
from dartsim.config.schema import VllmConfig
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.errors import ConfigError
from dartsim.real.machine import is_loopback

HERE = "this machine"
TUNNELLED = "the engines' machine"
"""Where an engine is that is reached through a tunnel, so by the loopback."""

SERVER = ("-m", "vllm.entrypoints.openai.api_server")
"""Not ``vllm serve``: the CPU distribution has another name, and the command cannot find itself."""

BASE_ENVIRONMENT: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # the routes that pause and change weights
    "VLLM_LOGGING_LEVEL": "INFO",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Time limits and retries of a worker.

    Attributes:
        request_seconds: A request without an answer by then is aborted in the engine and fails. It includes the
            time that it waits in the engine, also while weights change.
        patience_seconds: A request waits this long for an engine that is down or restarting, and then fails, so that
            another engine is asked. A pool of one engine wants more than its start takes.
        pause_seconds: A request waits this long in total for an engine that refuses new ones while it is paused
            (vLLM 0.33 in modes ``abort`` and ``wait``; in 0.32 they wait in the engine).
        retry_seconds: Between two tries at a paused engine, and between starts of one that does not come up; the
            latter doubles, up to 16-fold.
        recompute: After a weight sync in mode ``KEEP``, requests under way compute their prompts again. Without it
            they go on with keys and values of the older weights, as in most systems: their log-probabilities are
            those they were sampled with, and no single model has them.
        confirm: Compare checksums after every load. It reads all weights in the engine: about a second a gigabyte.
        warm_up: Answer one request at the start; the first one of an engine takes seconds.
        readable: Whether an action can be read; a reply whose action cannot be is sampled again.
        tries: How often a reply is sampled before it is taken as it is.
    """

    request_seconds: float = 300.0
    patience_seconds: float = 2.0
    pause_seconds: float = 60.0
    retry_seconds: float = 0.25
    recompute: bool = False
    confirm: bool = True
    warm_up: bool = True
    readable: Callable[[str], bool] | None = None
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """One engine.

    Attributes:
        python: Interpreter of the environment that has vLLM.
        model: Checkpoint folder that it starts with.
        device: ``cpu`` adds the environment that vLLM's CPU build wants.
        devices: GPUs it may use, by number; none: all.
        tensor_parallel: GPUs one engine is spread over.
        dtype: Type of the weights; use the learner's for equal log-probabilities.
        max_model_len: Longest prompt and reply together, tokens.
        max_num_seqs: Most requests computed at once; more wait in the engine.
        max_images: Most screenshots of a prompt.
        gpu_memory_utilization: Share of a GPU's memory that it takes.
        kv_cache_gib: Cache of keys and values of a CPU engine.
        block_size: Tokens of a block of the prefix cache: only whole blocks are found again. None takes vLLM's own,
            but 32 on CPU, where it would take 128, longer than a small model's prompt.
        threads: OpenMP threads of a CPU engine. More than one costs far more than it brings on shared cores.
        transfer: Backend of the weight-transfer routes: ``file`` (ours), another registered one, or None.
        grammar: Multi-token grammars are used: tokens must be known before the next step is prepared.
        host: Address it listens on, and that clients use.
        exposed: ``host`` may be another than the loopback: the network is trusted, because nothing else guards the
            routes that change weights.
        port: 0 takes a free one.
        entry: What the interpreter runs.
        flags: More arguments of the command line.
        environment: More environment variables, which win over all others.
        start_seconds: Time until it must be healthy: a 7B model takes minutes from a cold disk.
        stop_seconds: Time between asking it to end and killing it (DART's released code: 10).
    """

    python: str
    model: str
    device: Literal["cpu", "cuda"] = "cpu"
    devices: tuple[int, ...] = ()
    tensor_parallel: int = 1
    dtype: str = "float32"
    max_model_len: int = 2_048
    max_num_seqs: int = 16
    max_images: int = 5
    gpu_memory_utilization: float = 0.9
    kv_cache_gib: int = 1
    block_size: int | None = None
    threads: int = 1
    transfer: str | None = "file"
    grammar: bool = True
    host: str = "127.0.0.1"
    exposed: bool = False
    port: int = 0
    entry: tuple[str, ...] = SERVER
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    start_seconds: float = 600.0
    stop_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.device == "cuda" and self.devices and len(self.devices) != self.tensor_parallel:
            raise ConfigError(
                f"an engine on GPUs {self.devices} wants tensor_parallel = {len(self.devices)}, "
                f"got {self.tensor_parallel}"
            )
        if not self.exposed and not is_loopback(self.host):
            # vLLM's own key guards a part of its routes, and not those that pause and change weights.
            raise ConfigError(
                f"an engine on {self.host} could be reached from elsewhere, and the routes that change its weights "
                "take no token; let it listen on 127.0.0.1 and reach it through an ssh tunnel"
            )

    def command(self, port: int, model: str | None = None) -> list[str]:
        """Return the command line of an engine at a port, started from ``model`` if that is another folder."""
        command = [self.python, *self.entry, "--model", model or self.model, "--served-model-name", "policy"]
        command += ["--host", self.host, "--port", str(port)]
        command += ["--max-model-len", str(self.max_model_len), "--max-num-seqs", str(self.max_num_seqs)]
        command += ["--dtype", self.dtype, "--logprobs-mode", "processed_logprobs"]
        # One line a request would be hundreds of megabytes a day and hide what matters.
        command += ["--enable-scale-out", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
        command += ["--limit-mm-per-prompt", json.dumps({"image": self.max_images, "video": 0})]
        block_size = self.block_size or (32 if self.device == "cpu" else None)
        if block_size is not None:
            command += ["--block-size", str(block_size)]
        if self.device == "cpu":
            # A prompt computed in two steps, for a request with a seed, kills vLLM's CPU build: "CPU Generator does
            # not use offset" (0.32). Whole prompts only, then, and room for the longest one.
            command += ["--enforce-eager", "--no-enable-chunked-prefill"]
            command += ["--max-num-batched-tokens", str(max(self.max_model_len, 4_096))]
            command += ["--distributed-executor-backend", "uni"]
        else:
            command += ["--gpu-memory-utilization", str(self.gpu_memory_utilization)]
            command += ["--tensor-parallel-size", str(self.tensor_parallel)]
        if self.grammar:
            command += ["--no-async-scheduling"]
        if self.transfer is not None:
            command += ["--weight-transfer-config", json.dumps({"backend": self.transfer})]
        return [*command, *self.flags]

    def variables(self, site: Path | None = None) -> dict[str, str]:
        """Return what is added to the environment; ``site`` is the folder of ``write_site``."""
        variables = dict(BASE_ENVIRONMENT)
        if self.device == "cpu":
            variables |= {
                "OMP_NUM_THREADS": str(self.threads),
                "VLLM_CPU_KVCACHE_SPACE": str(self.kv_cache_gib),
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                # Keeps the model in the engine's own process (``uni``). In one of its own (``mp``) the two spin on
                # memory they share for a second after each message: on two cores, most of the time (0.32).
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            }
        elif self.devices:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, self.devices))
        if site is not None:
            variables["PYTHONPATH"] = str(site)
        return variables | dict(self.environment)


def one_engine_a_gpu(options: EngineOptions, devices: Sequence[int]) -> list[EngineOptions]:
    """Return the options of an engine on each of these GPUs, or on each group of ``tensor_parallel`` of them."""
    size = options.tensor_parallel
    if len(devices) % size:
        raise ConfigError(f"{len(devices)} GPUs cannot be dealt to engines of {size}")
    groups = [tuple(devices[start : start + size]) for start in range(0, len(devices), size)]
    return [replace(options, device="cuda", devices=group) for group in groups]


def engine_options(config: Config, model: Path) -> list[EngineOptions]:
    """Return how each engine of a configuration is started.

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
        transfer=transfer_backend(vllm),
        start_seconds=vllm.start_seconds,
    )
    if vllm.gpus:
        return one_engine_a_gpu(options, vllm.gpus)
    return [options] * config.rollout.num_workers


def refuse_other_numbers(config: Config, engines: int) -> None:
    """Check that there are as many engines as workers.

    Raises:
        ConfigError: If not.
    """
    wanted = config.rollout.num_workers
    if engines != wanted:
        raise ConfigError(
            f"rollout.num_workers = {wanted}, but vllm.addresses and vllm.gpus make {engines} engines; make them equal"
        )


def transfer_backend(vllm: VllmConfig) -> str | None:
    """Return the backend of the weight-transfer routes; None reloads from a folder."""
    return None if vllm.transfer == "folder" else vllm.transfer


def weights_dtype(config: Config) -> str | None:
    """Return torch's name of the type of weights in engines; None without engines, or if vLLM chooses it.

    Weights are written in this type: then the tensors of a folder are found byte by byte in the engines that loaded it.
    """
    names = {"half": "float16", "float": "float32", "float16": "float16", "float32": "float32", "bfloat16": "bfloat16"}
    return names.get(config.vllm.dtype) if config.backend.workers == "vllm" else None


def engine_places(config: Config) -> list[tuple[str, Sequence[int]]]:
    """Return the host and the GPUs of each engine; those that are attached to are taken in order on each host."""
    vllm, size = config.vllm, config.vllm.tensor_parallel
    if vllm.addresses:
        seen: Counter[str] = Counter()
        places: list[tuple[str, Sequence[int]]] = []
        for address in vllm.addresses:
            host = urlsplit(address).hostname or address
            host = TUNNELLED if host in ("127.0.0.1", "localhost", "::1") else host
            places.append((host, range(seen[host], seen[host] + size)))
            seen[host] += size
        return places
    gpus = vllm.gpus or list(range(size * config.rollout.num_workers))
    return [(HERE, gpus[start : start + size]) for start in range(0, len(gpus), size)]
