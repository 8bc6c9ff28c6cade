"""What a GPU does with the parts of a run: learner, memory, speed, an engine and its change of weights.

    python -m experiments.gpu --record          on the first GPU; with DARTSIM_VLLM_PYTHON, an engine too
    python -m experiments.gpu --quick           small models only
    python -m experiments.gpu --device cpu      the same code where there is no GPU; its figures mean nothing

Without a CUDA device it says so and ends with status 2.

- *parity*: one step of one rank on the GPU, in float32 and in bfloat16, against float32 on the processor;
- *speed*: bfloat16 with checkpointing, a model of about 2 G weights and 1080p screenshots; MFU counts 6 operations a
  weight and token, computing again not counted; memory beside the estimate of ``--dry-run``;
- *engine*: vLLM beside it on the same GPU, weights by files, without NCCL.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from dartsim.core.install import install_command
from experiments.gpu_work import engine, parity, speed
from experiments.study import Experiment, Figures, Options

Device = Literal["cpu", "cuda"]


def measure(options: Options, *, device: Device) -> Figures:
    """Measure everything on a device."""
    small = options.quick or device == "cpu"
    precisions = ("float32", "bfloat16")
    found = {
        "device": device,
        "device_name": device_name(device),
        "parity": parity(device, precisions),
        "learner": speed(device, small=small, updates=2 if options.quick else 5),
        "engine": engine(device, loads=3 if options.quick else 10, small=small),
        "config": {"small": small, "precisions": list(precisions)},
    }
    return found


def device_name(device: Device) -> str:
    """Return what is computed on."""
    if device == "cpu":
        return "processor"
    import torch

    return str(torch.cuda.get_device_name())


def refuse_without(device: str) -> None:
    """End with status 2 and a message if the device, or torch, is not there."""
    problem = None
    try:
        import torch
    except ModuleNotFoundError:
        problem = f"torch is not installed: {install_command('train')}"
    else:
        if device == "cuda" and not torch.cuda.is_available():
            built = "is built for processors only" if torch.version.cuda is None else "sees none"
            problem = f"no CUDA device: torch {torch.__version__} {built}. Nothing was measured or recorded"
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(2)


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
            f"engine: {served['tokens_per_second']:,.0f} tokens/s, weights changed in {served['sync_seconds']:.2f} s, "
            f"{served['lost_requests']} requests lost"
        )
    return "\n\n".join(lines) + "\n"


STUDY = Experiment(
    name="gpu", about=str(__doc__), measure=partial(measure, device="cuda"), seeds=1, tables={"gpu": summary}
)


def main(argv: Sequence[str] | None = None) -> Figures:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    own, rest = parser.parse_known_args(argv)
    if own.device == "cpu" and "--record" in rest:
        raise SystemExit("--record keeps figures of a GPU; leave --device cpu out")
    if not {"-h", "--help"} & set(rest):
        refuse_without(own.device)
    return replace(STUDY, measure=partial(measure, device=own.device)).run(rest)


if __name__ == "__main__":
    main()
