"""What a GPU does with a learner: its step, its speed and its memory.

    python -m experiments.gpu --record          on the first GPU
    python -m experiments.gpu --quick           fewer repeats
    python -m experiments.gpu --device cpu      the same code where there is no GPU; its figures mean nothing

Without a CUDA device it exits with status 2. Everything goes through the components of a run: ``FsdpLearner`` with one
rank or the ``GradientSteps`` of that rank. Engines on a GPU: ``experiments.real_loop --set vllm.device=cuda``.

- *parity*: one step of one rank on the GPU, in float32 and in bfloat16, against float32 on the processor;
- *learner*: layers of a 7B model in bfloat16 with checkpointing, attempts of 14 turns, up to five screenshots at 1080p:
  several turns in one sequence beside one turn a sequence, a plain loop of transformers, and TRL; memory beside the
  estimate of ``dartsim check``; the attention kernels that ran.
"""

from __future__ import annotations

import gc
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.core.types import (
    Attempt,
    Batch,
    Ending,
    Group,
    Observation,
    Reply,
    Task,
    Trajectory,
    Turn,
    Turns,
)
from dartsim.lab.memory import GIB, learner_memory
from dartsim.lab.model_shapes import ModelShape, read_shape
from experiments.operations import forward_operations
from experiments.study import Experiment, Figures, Options, markdown, recorded_line, rows_of

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
    return figures_of(device, quick=options.quick, say=options.console.print)


def figures_of(device: Device, *, quick: bool, say: Callable[[str], Any] = print) -> Figures:
    """Return what is measured on a device that is there."""
    small = device == "cpu"
    precisions = ("float32", "bfloat16")
    return {
        "device": device,
        "device_name": "processor" if device == "cpu" else gpu_name(),
        "parity": parity(device, precisions),
        "learner": speed(device, small=small, quick=quick, say=say),
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


def tiny_model() -> VlmConfig:
    """Return the model whose steps are compared."""
    from dartsim.real.vlm import Decoding, VlmConfig

    return VlmConfig(decoding=Decoding(grammar="free", max_new_tokens=32), output_scale=1.0)


def quarter_of_7b() -> VlmConfig:
    """Return a model with a quarter of the layers of Qwen2.5-VL-7B, in text and vision, and a small vocabulary.

    Source of the sizes: the published config.json; one of eight vision layers attends over the whole picture.
    """
    from dartsim.real.vlm import PromptStyle

    return replace(
        tiny_model(),
        hidden_size=3584,
        intermediate_size=18_944,
        num_layers=7,
        num_heads=28,
        num_kv_heads=4,
        vision_hidden_size=1280,
        vision_intermediate_size=3420,
        vision_layers=8,
        vision_heads=16,
        initializer_range=0.02,
        max_pixels=16_384 * 28 * 28,
        prompts=PromptStyle(max_images=5, images_after_cut=2),
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
        return Trajectory(attempt, Turns(said), Ending.DONE, float(index), None, 0.0, 1.0)

    made = []
    for group in range(groups):
        task = Task(f"{update}-{group}", "press")
        made.append(Group(group, task, (trajectory(task, group, 0), trajectory(task, group, 1)), 0.0))
    return Batch(update, update - 1, tuple(made))


@contextmanager
def learner(model_config: VlmConfig, device: Device, precision: Any) -> Iterator[Any]:
    """Start a learner of one rank on a device; yield it and its model."""
    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.learners.gradient_steps import TINY
    from dartsim.real.vlm import build
    from dartsim.real.vlm.export import export

    with TemporaryDirectory(prefix="gpu-") as folder:
        vlm = build(model_config)
        model = export(vlm, Path(folder) / "model")
        config = TINY.replace(
            optimizer={"learning_rate": 1e-4, "max_tokens": 16_384},
            fsdp={"ranks": 1, "device": device, "precision": precision},
        )
        made: FsdpLearner = FsdpLearner(vlm, model, Path(folder) / "learner", config)
        try:
            yield made, vlm
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

    config = tiny_model()
    alone = TorchLearner(build(config), TINY.replace(optimizer={"learning_rate": 1e-4}))
    before = {name: tensor.double() for name, tensor in build(config).snapshot().items()}
    batch = drawn_batch(alone.vlm, update=1, groups=2, turns=2, screen=(112, 112), tokens=8)
    wanted = alone.train(batch)
    moved = _changes(before, wanted.weights.source)
    found = {}
    for precision in precisions:
        with learner(config, device, precision) as (other, vlm):
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


MAX_TOKENS = 16_384
"""Tokens of a micro-batch: one prompt with five screenshots at 1080p."""
KERNELS = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_cudnn_attention": "cuDNN",
    "aten::_scaled_dot_product_efficient_attention": "memory-efficient",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash on the processor",
    "aten::_scaled_dot_product_attention_math": "math",
}
"""What torch calls for an attention; ``math`` writes the whole matrix of scores."""


def speed(device: Device, *, small: bool, quick: bool, say: Callable[[str], Any] = print) -> dict[str, Any]:
    """Train in bfloat16 with checkpointing on attempts of 14 turns; each variant gets the same batch.

    Args:
        device: Where.
        small: The tiny model on small screens.
        quick: Time one update of an own variant instead of two, and of the others only TRL's first.
        say: Told the figures of each variant.

    Returns:
        Sizes; for each variant seconds an update (median), turns and computed tokens a second, MFU from its own
        operations (computing again not counted), and the peak of the GPU's memory; and for packed turns the memory
        that ``dartsim check`` estimates and the attention kernels by number of calls.
    """
    import torch.distributed as dist
    from torch.distributed import HashStore  # type: ignore[attr-defined]

    from experiments.learner_speed_work import plain_update, trl_update

    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    config = tiny_model() if small else quarter_of_7b()
    screen, turns, tokens = ((112, 112), 6, 8) if small else ((1920, 1080), 14, 104)
    vlm = _built(config, device)
    batch = drawn_batch(vlm, update=1, groups=1, turns=turns, screen=screen, tokens=tokens)
    with TemporaryDirectory(prefix="gpu-") as folder:
        vlm.model.config.save_pretrained(folder)
        (Path(folder) / "preprocessor_config.json").write_text(json.dumps(vlm.rules.as_json()), encoding="utf-8")
        shape = read_shape(Path(folder))
    del vlm
    found: dict[str, Any] = {"parameters": shape.parameters, "turns": batch.num_turns, "variants": {}}
    updates = 1 if quick else 2
    row, more = own_updates(config, batch, shape, device, "trajectories", updates, profiled=True)
    found |= more
    found["variants"]["packed"] = row
    say(f"packed: {row} {more}")
    _release()
    found["variants"]["per turn"], _ = own_updates(config, batch, shape, device, "turns", updates, profiled=False)
    say(f"per turn: {found['variants']['per turn']}")
    dist.destroy_process_group()  # TRL would take part in it
    for variant, make in {"trl": trl_update, **({} if quick else {"transformers": plain_update})}.items():
        _release()
        found["variants"][variant] = row = _peer_updates(make, config, batch, device, warm=not quick)
        say(f"{variant}: {row}")
    return found


def _built(config: VlmConfig, device: Device) -> Vlm:
    """Return a model that was made on the device: random weights take a minute elsewhere."""
    import torch

    from dartsim.real.vlm import build

    with torch.device(device):
        return build(config)


def own_updates(
    config: VlmConfig,
    batch: Batch,
    shape: ModelShape,
    device: Device,
    packing: Any,
    updates: int,
    *,
    profiled: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the row of an own variant, its estimated memory and, if it is ``profiled``, its attention kernels."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    from dartsim.real.learners.fsdp.sharding import shard
    from dartsim.real.learners.gradient_steps import TINY, GradientSteps
    from dartsim.real.learners.ranks import Ranks
    from dartsim.real.learners.turn_data import read_turns
    from dartsim.real.vlm.packing import pack, rows_of, split

    trainer = TINY.replace(
        optimizer={"learning_rate": 1e-4, "max_tokens": MAX_TOKENS, "pack": packing},
        fsdp={"device": device, "precision": "bfloat16", "checkpointing": True},
    )
    vlm = _built(config, device)
    vlm.trunk.checkpointing = True
    data = read_turns(batch, vlm, trainer.objective.advantage)
    micro_batches = split(rows_of(data.examples, pack=packing), max_tokens=MAX_TOKENS)
    # All screens have one size.
    pictures = [pack(vlm, rows, data.examples).inputs.pictures[0][1].shape[:2] for rows in micro_batches]
    height, width, _ = batch.groups[0].trajectories[0].turns[0].observation.screenshot.shape
    estimate = learner_memory(
        shape,
        ranks=1,
        tokens=max(sum(row.length for row in rows) for rows in micro_batches),
        images=max(number for number, _ in pictures),
        replies=max(sum(len(row.members) for row in rows) for rows in micro_batches),
        screen=(width, height),
        reference=False,
    )
    forward = forward_operations(
        shape,
        [row.length for rows in micro_batches for row in rows],
        pictures=sum(number for number, _ in pictures),
        patches=pictures[0][1],
        reply_tokens=sum(len(example.tokens) for example in data.examples),
    )
    scorer = shard(vlm, init_device_mesh(device, (1,)), trainer.fsdp)
    steps = GradientSteps(vlm, trainer, seed=0, ranks=Ranks(torch.device(device)), scorers=(scorer, None))
    numbers = itertools.count(1)

    def update() -> dict[str, float]:
        return steps.fit(data, next(numbers))

    seconds, peak = _timed(update, updates, device)
    known = peak_flops(device)
    row = {
        **_row(batch, seconds, peak),
        "tokens_per_second": round(sum(row.length for rows in micro_batches for row in rows) / seconds, 1),
        "mfu": None if known is None else round(3 * forward.total / seconds / known, 4),
    }
    kernels = attention_kernels(update) if profiled else {}
    return row, {"estimated_gib": round(estimate.total / GIB, 2), "kernels": kernels}


def _peer_updates(make: Any, config: VlmConfig, batch: Batch, device: Device, *, warm: bool) -> dict[str, Any]:
    """Return the row of a variant that calls the class of transformers."""
    import torch

    vlm = _built(config, device)
    model: Any = vlm.model
    with torch.autocast(device, torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the name of the next call changes between versions of transformers
        model.train()  # only then does it compute activations again
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        update = make(vlm, batch, max_tokens=MAX_TOKENS)
        return _row(batch, *_timed(update, 1, device, warm=warm))


def _row(batch: Batch, seconds: float, peak: float | None) -> dict[str, Any]:
    turns = round(batch.num_turns / seconds, 2)
    return {"seconds_per_update": round(seconds, 3), "turns_per_second": turns, "peak_gib": peak}


def _timed(update: Callable[[], Any], updates: int, device: Device, *, warm: bool = True) -> tuple[float, float | None]:
    """Return the median seconds of updates, and the peak of the GPU's memory.

    ``warm`` leaves out the first one, which compiles and allocates.
    """
    import torch

    seconds = []
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(updates + warm):
        began = time.perf_counter()
        update()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    peak = round(torch.cuda.max_memory_allocated() / GIB, 2) if device == "cuda" else None
    return median(seconds[warm:]), peak


def attention_kernels(update: Callable[[], Any]) -> dict[str, int]:
    """Return how often an update calls each of torch's attentions."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        update()
    return {KERNELS[event.key]: event.count for event in profiled.key_averages() if event.key in KERNELS}


def _release() -> None:
    """Free what a variant leaves in cycles, and the GPU's memory."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def peak_flops(device: Device) -> float | None:
    """Return the GPU's dense bfloat16 peak, if it is known."""
    if device == "cpu":
        return None
    name = gpu_name()
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


LABELS = {
    "packed": "several turns in one sequence (ours)",
    "per turn": "one turn a sequence (ours)",
    "transformers": "a plain loop of transformers",
    "trl": "TRL",
}


def summary(figures: Figures) -> str:
    """What was measured: sentences, and a row of each variant."""
    learner = figures["learner"]
    steps = "; ".join(
        f"in {precision}, losses are {row['loss_difference']:.1e} apart, "
        f"and the cosine of the steps is {row['step_cosine']:.3f}"
        for precision, row in figures["parity"].items()
    )
    columns = {
        "": "{label}",
        "turns/s": "{turns_per_second:.2f}",
        "s an update": "{seconds_per_update:.1f}",
        "MFU, %": "{mfu:.0p}",
        "peak, GiB": "{peak_gib:.1f}",
    }
    entries = [{"label": LABELS[name], "mfu": None, **row} for name, row in learner["variants"].items()]
    kernels = ", ".join(f"{name} ({count} calls)" for name, count in learner["kernels"].items())
    return (
        f"On one {figures['device_name']}. One step against float32 on the processor: {steps}. Then a quarter of the "
        f"layers of a 7B model ({learner['parameters'] / 1e9:.2f} G weights, bfloat16, checkpointing), two attempts of "
        f"{learner['turns'] // 2} turns, up to five screenshots at 1080p:\n\n{markdown(rows_of(columns, entries))}\n"
        f"The last two call transformers' class with torch's attention, without flash-attn. Ours in packed turns: "
        f"{kernels}; `dartsim check` estimates {learner['estimated_gib']:.1f} GiB for them.\n"
    )


STUDY = Experiment(
    name="gpu",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"gpu": lambda figures: f"{summary(figures)}\n{recorded_line(figures)}"},
    add_arguments=lambda parser: parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda"),
)

if __name__ == "__main__":
    STUDY.run()
