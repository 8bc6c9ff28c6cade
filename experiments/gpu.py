"""What a GPU does with the parts of a run: learner, memory, speed, an engine and its weight sync.

    python -m experiments.gpu --record          on the first GPU; with DARTSIM_VLLM_PYTHON, an engine too
    python -m experiments.gpu --quick           small models only
    python -m experiments.gpu --device cpu      the same code where there is no GPU; its figures mean nothing

Without a CUDA device it exits with status 2. Everything goes through the components of a run: ``FsdpLearner`` with one
rank, ``VllmWorker`` over a ``LocalEngine``.

- *parity*: one step of one rank on the GPU, in float32 and in bfloat16, against float32 on the processor;
- *speed*: bfloat16 with checkpointing, a model of about 2 G weights and 1080p screenshots; MFU counts 6 operations a
  weight and token, computing again not counted; memory beside the estimate of ``dartsim check``;
- *engine*: vLLM beside it on the same GPU, weights by files, without NCCL.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dartsim.config.sections.vllm import VllmConfig
from dartsim.core.errors import ConfigError
from dartsim.core.install import VLLM_PYTHON, install_command
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import (
    Attempt,
    Batch,
    Ending,
    Group,
    Observation,
    Reply,
    Request,
    Task,
    Trajectory,
    Turn,
    Weights,
)
from dartsim.lab.memory import GIB, learner_memory
from dartsim.lab.model_shapes import ModelShape, read_shape
from experiments.study import Experiment, Figures, Options

if TYPE_CHECKING:
    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.vlm import Vlm, VlmConfig

Device = Literal["cpu", "cuda"]
PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "H800": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12}
"""Dense bfloat16 operations a second, by a part of the GPU's name; source: data sheets."""


def measure(options: Options) -> Figures:
    """Measure everything on a device."""
    device: Device = options.own.device
    _require(device, record=options.record)
    small = options.quick or device == "cpu"
    precisions = ("float32", "bfloat16")
    return {
        "device": device,
        "device_name": "processor" if device == "cpu" else gpu_name(),
        "parity": parity(device, precisions),
        "learner": speed(device, small=small, updates=2 if options.quick else 5),
        "engine": engine(device, loads=3 if options.quick else 10, small=small),
        "config": {"small": small, "precisions": list(precisions)},
    }


def _require(device: Device, *, record: bool) -> None:
    """Refuse to run without torch or the device, and to record figures of a processor."""
    if device == "cpu":
        if record:
            raise ConfigError("--record keeps figures of a GPU; leave --device cpu out")
        return
    try:
        import torch
    except ModuleNotFoundError:
        raise ConfigError(f"torch is not installed: {install_command('train')}") from None
    if not torch.cuda.is_available():
        built = "is built for processors only" if torch.version.cuda is None else "sees none"
        raise ConfigError(f"no CUDA device: torch {torch.__version__} {built}. Nothing was measured or recorded")


def gpu_name() -> str:
    """Return the name of the GPU."""
    import torch

    return str(torch.cuda.get_device_name())


def shown_model(device: Device, *, small: bool) -> VlmConfig:
    """Return the model that is measured: about 2 G weights on a GPU, the tiny one where it must be quick."""
    from dartsim.real.vlm import Decoding, VlmConfig

    tiny = VlmConfig(decoding=Decoding(grammar="free", max_new_tokens=32), output_scale=1.0)
    if small or device == "cpu":
        return tiny
    return replace(
        tiny,
        hidden_size=2048,
        intermediate_size=8192,
        num_layers=24,
        num_heads=16,
        num_kv_heads=4,
        vision_hidden_size=1280,
        vision_intermediate_size=3420,
        vision_layers=16,
        vision_heads=16,
        initializer_range=0.02,
        max_pixels=16_384 * 28 * 28,
    )


def drawn_batch(vlm: Vlm, *, update: int, groups: int, turns: int, screen: tuple[int, int], tokens: int) -> Batch:
    """Return a batch of random screens and replies, with two attempts per group, one of them successful."""
    rng = np.random.default_rng(update)
    allowed = np.flatnonzero(vlm.grammar.allowed & ~vlm.grammar.ends)
    number = iter(range(10_000 * update, 10_000 * (update + 1)))

    def trajectory(task: Task, group: int, index: int) -> Trajectory:
        attempt = Attempt(next(number), task, group, index, index, turns, update - 1)
        said = []
        for _ in range(turns):
            # Coarse blocks: screenshots are not noise.
            small = rng.integers(0, 256, (screen[1] // 8 + 1, screen[0] // 8 + 1, 3), dtype=np.uint8)
            shot = np.kron(small, np.ones((8, 8, 1), dtype=np.uint8))[: screen[1], : screen[0]]
            words = rng.choice(allowed, tokens).astype(np.int64)
            logprobs = np.full(tokens, -float(np.log(len(allowed))), dtype=np.float32)
            reply = Reply("text", update - 1, update - 1, 0, 0, tokens, words, logprobs)
            said.append(Turn(Observation(shot, "press"), reply))
        return Trajectory(attempt, tuple(said), Ending.DONE, float(index), None, 0.0, 1.0)

    made = []
    for group in range(groups):
        task = Task(f"{update}-{group}", "press")
        made.append(Group(group, task, (trajectory(task, group, 0), trajectory(task, group, 1)), 0.0))
    return Batch(update, update - 1, tuple(made))


@contextmanager
def learner(model_config: VlmConfig, device: Device, precision: Any, *, checkpointing: bool = False) -> Iterator[Any]:
    """Start a learner of one rank on a device; yield it, its model and the model's folder."""
    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.learners.gradient_steps import TINY
    from dartsim.real.vlm import build
    from dartsim.real.vlm.export import export

    with TemporaryDirectory(prefix="gpu-") as folder:
        vlm = build(model_config)
        model = export(vlm, Path(folder) / "model")
        config = TINY.replace(
            optimizer={"learning_rate": 1e-4, "max_tokens": 16_384},
            fsdp={"ranks": 1, "device": device, "precision": precision, "checkpointing": checkpointing},
        )
        made: FsdpLearner = FsdpLearner(vlm, model, Path(folder) / "learner", config)
        try:
            yield made, vlm, model
        finally:
            made.close()


def parity(device: Device, precisions: Sequence[str]) -> dict[str, dict[str, float]]:
    """Take one step on a device in each precision, and the same one alone in float32 on the processor; compare.

    Returns:
        For each precision: relative differences of loss and of the gradient's norm, and how alike the changes of all
        weights are (cosine).
    """
    from dartsim.real.learners.gradient_steps import TINY
    from dartsim.real.learners.torch_learner import TorchLearner
    from dartsim.real.vlm import build

    config = shown_model(device, small=True)
    alone = TorchLearner(build(config), TINY.replace(optimizer={"learning_rate": 1e-4}))
    before = {name: tensor.double() for name, tensor in build(config).snapshot().items()}
    batch = drawn_batch(alone.vlm, update=1, groups=2, turns=2, screen=(112, 112), tokens=8)
    wanted = alone.train(batch)
    moved = _changes(before, wanted.weights.source)
    found = {}
    for precision in precisions:
        with learner(config, device, precision) as (other, vlm, _):
            got = other.train(batch)
            change = _changes(before, _tensors(vlm, Path(got.weights.source)))
        cosine = float(change @ moved / (change.norm() * moved.norm()))
        found[precision] = {
            "loss_difference": abs(got.metrics["learner/loss"] - wanted.metrics["learner/loss"]),
            "grad_norm_ratio": got.metrics["learner/grad_norm"] / wanted.metrics["learner/grad_norm"],
            "step_cosine": cosine,
        }
    return found


def _changes(before: Any, after: Any) -> Any:
    import torch

    return torch.cat([(after[name].double() - tensor).flatten() for name, tensor in before.items()])


def _tensors(vlm: Vlm, folder: Path) -> dict[str, Any]:
    """Return a folder's weights by the names of the model."""
    from safetensors.torch import load_file

    from dartsim.real.vlm.export import stored_name

    found = load_file(folder / "model.safetensors")
    return {name: found[stored_name(name, found.keys())] for name, _ in vlm.model.named_parameters()}


def speed(device: Device, *, small: bool, updates: int) -> dict[str, Any]:
    """Train a model in bfloat16 with checkpointing; return its speed, MFU, memory and the estimated memory."""
    screen, turns, tokens = ((112, 112), 2, 8) if small or device == "cpu" else ((1920, 1080), 3, 104)
    config = shown_model(device, small=small)
    with learner(config, device, "bfloat16", checkpointing=True) as (made, vlm, model):
        shape = read_shape(model)
        seconds, metrics = [], {}
        batches = [
            drawn_batch(vlm, update=update, groups=2, turns=turns, screen=screen, tokens=tokens)
            for update in range(1, updates + 2)
        ]
        for batch in batches:
            began = time.perf_counter()
            metrics = made.train(batch).metrics
            seconds.append(time.perf_counter() - began)
        text, patches = computed(vlm, batches[-1], shape)
    step = median(seconds[1:])  # the first one compiles and allocates
    useful = 6.0 * (shape.text.layers * shape.text.layer_parameters) * text + 6.0 * shape.vision.parameters * patches
    peak = peak_flops(device)
    estimate = learner_memory(
        shape,
        ranks=1,
        tokens=16_384,
        images=max(1, 16_384 // shape.image_tokens(*screen)),
        replies=8,
        screen=screen,
        reference=False,
    )
    return {
        "parameters": shape.parameters,
        "seconds_per_update": round(step, 3),
        "tokens_per_second": round(text / step, 1),
        "mfu": None if peak is None else round(useful / step / peak, 4),
        "peak_gib": metrics.get("learner/peak_gib"),
        "estimated_gib": round(estimate.total / GIB, 2),
    }


def computed(vlm: Vlm, batch: Batch, shape: ModelShape) -> tuple[int, int]:
    """Return the tokens and the patches that a batch has, each turn counted by itself."""
    text = patches = 0
    for trajectory in (one for group in batch.groups for one in group.trajectories):
        for number, turn in enumerate(trajectory.turns):
            prompt = vlm.prompts.build(turn.observation, trajectory.turns[:number])
            text += len(prompt.tokens) + turn.reply.response_tokens
            patches += sum(len(picture.patches) for picture in prompt.pictures)
    return text, patches


def peak_flops(device: Device) -> float | None:
    """Return the GPU's dense bfloat16 peak, if it is known."""
    if device == "cpu":
        return None
    name = gpu_name()
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


def engine(device: Device, *, loads: int, small: bool) -> dict[str, Any] | None:
    """Serve the model with vLLM and change its weights while it serves, by files; None without vLLM.

    Returns:
        Seconds until it serves, tokens a second of 32 requests at once, and seconds of a change in mode ``keep``.
    """
    if not os.environ.get(VLLM_PYTHON):
        return None
    return asyncio.run(_engine(device, loads, small))


async def _engine(device: Device, loads: int, small: bool) -> dict[str, Any]:
    from dartsim.real.engines.launcher import LocalEngine
    from dartsim.real.engines.options import EngineOptions
    from dartsim.real.engines.request_codec import RequestCodec
    from dartsim.real.engines.worker import VllmWorker
    from dartsim.real.vlm import build
    from dartsim.real.vlm.export import export

    loop = asyncio.get_running_loop()
    config = shown_model(device, small=small)
    with TemporaryDirectory(prefix="gpu-engine-") as folder:
        vlms = [build(config, seed=seed) for seed in (0, 1)]
        folders = [export(vlm, Path(folder) / f"version-{number}") for number, vlm in enumerate(vlms)]
        options = EngineOptions(
            vllm=VllmConfig(
                python=os.environ[VLLM_PYTHON],
                device=device,
                dtype="bfloat16" if device == "cuda" else "float32",
                gpu_memory_share=0.4,
                max_model_len=4_096 if device == "cuda" else 512,
                max_num_seqs=32,
                start_seconds=1_800.0,
            ),
            model=str(folders[0]),
            max_images=1,
            devices=(0,) if device == "cuda" else (),
        )
        worker = VllmWorker(
            0,
            LocalEngine(options, Path(folder) / "logs"),
            RequestCodec(vlms[0]),
            weights=Weights(0, str(folders[0])),
        )
        began = loop.time()
        async with worker:
            start_seconds = loop.time() - began
            asking = [asyncio.create_task(_turns(worker, number, 4)) for number in range(32)]
            began = loop.time()
            tokens = sum(await asyncio.gather(*asking))
            speed_seconds = loop.time() - began
            asking = [asyncio.create_task(_turns(worker, number, 4)) for number in range(8)]
            times = []
            for version in range(1, loads + 1):
                began = loop.time()
                await worker.load(Weights(version, str(folders[version % 2])), SyncMode.KEEP)
                times.append(loop.time() - began)
            answered = await asyncio.gather(*asking)
    return {
        "start_seconds": round(start_seconds, 2),
        "tokens_per_second": round(tokens / speed_seconds, 1),
        "sync_seconds": round(median(times), 3),
        "lost_requests": sum(not one for one in answered),
    }


async def _turns(worker: Any, number: int, count: int) -> int:
    """Ask turn after turn; return the tokens of all replies."""
    tokens = 0
    for turn in range(count):
        screen = np.full((112, 112, 3), 16 * number % 256, dtype=np.uint8)
        attempt = Attempt(number, Task(str(number), "press"), 0, 0, 100 * number + turn, 1, 0)
        reply = await worker.generate(Request(attempt, 0, Observation(screen, "press"), []))
        tokens += reply.response_tokens
    return tokens


def summary(figures: Figures) -> str:
    """What was measured, in sentences."""
    lines = [f"On {figures['device_name']}."]
    for precision, row in figures["parity"].items():
        lines.append(
            f"one step in {precision} against float32 on the processor: loss {row['loss_difference']:.1e} apart, "
            f"gradient {row['grad_norm_ratio']:.4f} as long, steps alike to {row['step_cosine']:.4f} (cosine)"
        )
    learner = figures["learner"]
    mfu = "peak unknown" if learner["mfu"] is None else f"MFU {learner['mfu']:.1%}"
    memory = "not on a GPU" if learner["peak_gib"] is None else f"{learner['peak_gib']:.1f} GiB"
    lines.append(
        f"learner of {learner['parameters'] / 1e9:.2f} G weights: {learner['tokens_per_second']:,.0f} tokens/s, {mfu}, "
        f"memory {memory} (estimated: {learner['estimated_gib']:.1f})"
    )
    if (served := figures["engine"]) is None:
        lines.append("no engine was measured: it takes DARTSIM_VLLM_PYTHON")
    else:
        lines.append(
            f"engine: {served['tokens_per_second']:,.0f} tokens/s, weights synced in {served['sync_seconds']:.2f} s, "
            f"{served['lost_requests']} requests lost"
        )
    return "\n\n".join(lines) + "\n"


STUDY = Experiment(
    name="gpu",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"gpu": summary},
    add_arguments=lambda parser: parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda"),
)

if __name__ == "__main__":
    STUDY.run()
