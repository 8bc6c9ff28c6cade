"""How a vLLM process is started, and the time limits of its worker, as data; needs no extra."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from dartsim.config import Config
from dartsim.config.schema import VllmConfig
from dartsim.core.errors import ConfigError
from dartsim.core.install import VLLM_PYTHON
from dartsim.real.machine import is_loopback

ADAPTER = "adapter"
"""Name of the adapter in requests."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Maximum ranks of an adapter that vLLM supports (0.32)."""
HERE = "this machine"
TUNNELLED = "the engines' machine"
"""Host of engines that are reached through a tunnel, by a loopback address."""

CPU_SITE = Path(__file__).parent / "cpu_site"
"""On the path of engines on CPU: lets them import torchvision."""

SERVER = ("-m", "vllm.entrypoints.openai.api_server")
"""Not ``vllm serve``, which fails in the CPU distribution because that has another name."""

OWN_FLAGS = frozenset(
    {
        *("--model", "--host", "--port", "--served-model-name", "--logprobs-mode", "--limit-mm-per-prompt"),
        "--mm-processor-kwargs",  # screenshots would have another size than the coordinates of replies
        *("--enable-lora", "--lora-modules", "--max-loras", "--max-lora-rank"),
    }
)
"""Arguments that the worker's protocol relies on."""

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
        warm_up: Answer one request at the start; the first one of an engine takes seconds.
        readable: Whether an action can be read; a reply whose action cannot be is sampled again.
        tries: How often a reply is sampled before it is taken as it is.
    """

    request_seconds: float = 300.0
    patience_seconds: float = 2.0
    pause_seconds: float = 60.0
    retry_seconds: float = 0.25
    warm_up: bool = True
    readable: Callable[[str], bool] | None = None
    tries: int = 1


def _flag_name(argument: str) -> str:
    """Return an argument's name as vLLM reads it: ``--mm_processor_kwargs.max_pixels=9`` sets a key of the first."""
    return argument.partition("=")[0].partition(".")[0].replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """One engine.

    Attributes:
        vllm: Settings of the configuration; ``python`` is the interpreter of the environment that has vLLM.
        model: Checkpoint folder that it starts with.
        max_images: Most screenshots of a prompt.
        adapter: Folder of the adapter that it starts with; later ones replace it. None: the model has none.
        lora_rank: Its rank.
        devices: GPUs it may use, by number; none: all.
        host: Address it listens on, and that clients use.
        exposed: ``host`` may be another than the loopback: the network is trusted, because nothing else guards the
            routes that change weights.
        entry: What the interpreter runs.
        environment: More environment variables, which win over all others.
        stop_seconds: Time between asking it to end and killing it (DART's released code: 10).
    """

    vllm: VllmConfig
    model: str
    max_images: int = 5
    adapter: str | None = None
    lora_rank: int = 0
    devices: tuple[int, ...] = ()
    host: str = "127.0.0.1"
    exposed: bool = False
    entry: tuple[str, ...] = SERVER
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    stop_seconds: float = 10.0

    def __post_init__(self) -> None:
        size = self.vllm.tensor_parallel
        if taken := [flag for flag in self.vllm.flags if _flag_name(flag) in OWN_FLAGS]:
            raise ConfigError(f"vllm.flags holds {', '.join(taken)}, which other settings decide; leave it out")
        if self.vllm.device == "cuda" and self.devices and len(self.devices) != size:
            raise ConfigError(
                f"an engine on GPUs {self.devices} wants tensor_parallel = {len(self.devices)}, got {size}"
            )
        if not self.exposed and not is_loopback(self.host):
            # vLLM's own key guards a part of its routes, and not those that pause and change weights.
            raise ConfigError(
                f"an engine on {self.host} could be reached from elsewhere, and the routes that change its weights "
                "take no token; let it listen on 127.0.0.1 and reach it through an ssh tunnel"
            )

    def command(self, port: int, model: str | None = None) -> list[str]:
        """Return the command line of an engine at a port, started from ``model`` if that is another folder."""
        vllm = self.vllm
        assert vllm.python is not None, "engine_options finds it"
        command = [vllm.python, *self.entry, "--model", model or self.model, "--served-model-name", "policy"]
        if self.adapter is not None:
            rank = next(size for size in LORA_RANKS if size >= self.lora_rank)
            command += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(rank)]
            command += ["--lora-modules", json.dumps({"name": ADAPTER, "path": self.adapter})]
        command += ["--host", self.host, "--port", str(port)]
        command += ["--max-model-len", str(vllm.max_model_len), "--max-num-seqs", str(vllm.max_num_seqs)]
        command += ["--dtype", vllm.dtype, "--logprobs-mode", "processed_logprobs"]
        command += ["--enable-prefix-caching"]
        if vllm.kv_cache_dtype != "auto":
            command += ["--kv-cache-dtype", vllm.kv_cache_dtype]
        if vllm.quantization != "none":
            command += ["--quantization", vllm.quantization]
        # One line per request would be hundreds of megabytes a day and hide important lines.
        command += ["--enable-scale-out", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
        command += ["--limit-mm-per-prompt", json.dumps({"image": self.max_images, "video": 0})]
        if vllm.device == "cpu":
            # Only whole blocks of a prefix are found again; vLLM would take 128, longer than a small model's prompt.
            command += ["--block-size", "32"]
            # A prompt computed in two steps, for a request with a seed, kills vLLM's CPU build: "CPU Generator does
            # not use offset" (0.32). Whole prompts only, then, and room for the longest one.
            command += ["--enforce-eager", "--no-enable-chunked-prefill"]
            command += ["--max-num-batched-tokens", str(max(vllm.max_model_len, 4_096))]
            command += ["--distributed-executor-backend", "uni"]
        else:
            command += ["--gpu-memory-utilization", str(vllm.gpu_memory_share)]
            command += ["--tensor-parallel-size", str(vllm.tensor_parallel)]
        return [*command, *vllm.flags]

    def variables(self) -> dict[str, str]:
        """Return what is added to the environment."""
        variables = dict(BASE_ENVIRONMENT)
        if self.vllm.device == "cpu":
            variables |= {
                "OMP_NUM_THREADS": "1",  # more slow shared cores down
                "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                # Keeps the model in the engine's own process (``uni``). In one of its own (``mp``) the two spin on
                # memory they share for a second after each message: on two cores, most of the time (0.32).
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "PYTHONPATH": str(CPU_SITE),
            }
        elif self.devices:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, self.devices))
        return variables | dict(self.environment)


def one_engine_a_gpu(options: EngineOptions, devices: Sequence[int]) -> list[EngineOptions]:
    """Return the options of one engine for each GPU, or for each group of ``tensor_parallel`` GPUs."""
    size = options.vllm.tensor_parallel
    if len(devices) % size:
        raise ConfigError(f"{len(devices)} GPUs cannot be dealt to engines of {size}")
    groups = [tuple(devices[start : start + size]) for start in range(0, len(devices), size)]
    vllm = options.vllm.replace(device="cuda")
    return [replace(options, vllm=vllm, devices=group) for group in groups]


def serves_adapters(config: Config) -> bool:
    """Return whether engines get LoRA as adapters: those that the run starts.

    For others they are merged into the weights, which loses what their type rounds away.
    """
    return config.trainer.lora.rank is not None and not config.vllm.addresses


def engine_options(config: Config, model: Path, adapter: Path | None = None) -> list[EngineOptions]:
    """Return the options of each engine of a configuration.

    Args:
        config: The configuration.
        model: Folder of the model.
        adapter: Folder of the first adapter, if ``serves_adapters``.

    Raises:
        ConfigError: If no interpreter with vLLM is named.
    """
    vllm = config.vllm
    python = vllm.python or os.environ.get(VLLM_PYTHON)
    if python is None:
        raise ConfigError(
            f'backend.workers = "vllm" needs the interpreter of an environment with vLLM: set vllm.python or '
            f"{VLLM_PYTHON}, or vllm.addresses to attach to engines that run"
        )
    options = EngineOptions(vllm=vllm.replace(python=python), model=str(model), max_images=config.policy.max_images)
    if adapter is not None:
        options = replace(options, adapter=str(adapter), lora_rank=config.trainer.lora.rank or 0)
    if vllm.gpus:
        return one_engine_a_gpu(options, vllm.gpus)
    return [options] * config.rollout.num_engines


def refuse_other_numbers(config: Config, engines: int) -> None:
    """Check that there are as many engines as configured.

    Raises:
        ConfigError: If not.
    """
    rollout = config.rollout
    if engines != rollout.num_engines:
        lent = f" + rollout.lending.engines = {rollout.lending.engines}" if rollout.lending.engines else ""
        raise ConfigError(
            f"rollout.num_workers = {rollout.num_workers}{lent}, but vllm.addresses and vllm.gpus make {engines} "
            "engines; make them equal"
        )


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
            if is_loopback(host):  # another address of it, such as 127.0.0.2, is a tunnel to another machine
                host = TUNNELLED if host in ("127.0.0.1", "localhost", "::1") else f"{TUNNELLED} behind {host}"
            places.append((host, range(seen[host], seen[host] + size)))
            seen[host] += size
        return places
    gpus = vllm.gpus or list(range(size * config.rollout.num_engines))
    return [(HERE, gpus[start : start + size]) for start in range(0, len(gpus), size)]
