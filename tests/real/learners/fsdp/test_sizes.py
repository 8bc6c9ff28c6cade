"""What the estimate says of a 7B model, against files and memory that are really written and held; minutes, so soak."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("httpx")


from dartsim.config import load  # noqa: E402
from dartsim.core.png import Screenshot  # noqa: E402
from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn  # noqa: E402
from dartsim.lab.memory import CUTTING_BYTES, PNG_SHARE, PROMPT_TOKEN_BYTES, learner_memory  # noqa: E402
from dartsim.lab.model_shapes import QWEN2_5_VL_7B, read_shape  # noqa: E402
from dartsim.real.containers.official import SCREEN  # noqa: E402
from dartsim.real.learners.fsdp.files import PATCHES, write_turns  # noqa: E402
from dartsim.real.learners.fsdp.learner import FsdpLearner  # noqa: E402
from dartsim.real.learners.turn_data import read_turns  # noqa: E402
from dartsim.real.stand_ins.model import replies, write_stand_in  # noqa: E402
from dartsim.real.stand_ins.screens import Screens  # noqa: E402
from dartsim.real.vlm import build  # noqa: E402
from dartsim.real.vlm.export import export  # noqa: E402
from dartsim.real.vlm.plan import vlm_config  # noqa: E402

pytestmark = pytest.mark.soak


LAYERS = 2
ATTEMPTS, TURNS = 8, 30
RANKS = 2


@contextmanager
def told(record_property, name: str, size: int | None = None) -> Iterator[None]:
    """Record the seconds of a block, and the GB per second of a size."""
    begun = time.perf_counter()
    yield
    seconds = time.perf_counter() - begun
    record_property(name, seconds)
    print(f"{name}: {seconds:.1f} s" + (f", {size / 1e9 / seconds:.2f} GB/s" if size else ""))


def memory(pid: int, field: str) -> int:
    """Return bytes of a process: ``VmRSS`` now, or ``VmHWM``, the highest since it was last reset."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def tree_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_layers_of_a_7b_model_take_the_memory_that_is_estimated(make_vlm, config, batches, tmp_path, record_property):
    """Two ranks load and train two decoder layers of a 7B model's shapes, with few words and a small vision tower."""
    text = QWEN2_5_VL_7B.text
    shapes = {
        "hidden_size": text.hidden,
        "intermediate_size": text.intermediate,
        "num_layers": LAYERS,
        "num_heads": text.heads,
        "num_kv_heads": text.kv_heads,
        "dtype": "bfloat16",
    }
    trainer = config.replace(
        fsdp={"ranks": RANKS, "device": "cpu", "precision": "bfloat16", "checkpointing": True},
        optimizer={"max_tokens": 10_000},
    )

    def measured(fields: dict[str, Any], name: str) -> dict[str, list[int]]:
        """Return the memory of each rank: its peak while it loads, and in the second step, of several moments."""
        vlm = make_vlm(**fields)
        learner = FsdpLearner(vlm, export(vlm, tmp_path / name), tmp_path / f"{name}-ranks", trainer, seed=5)
        vlm.model.to_empty(device="meta")  # the driver needs only its prompts
        try:
            with told(record_property, f"{name}: load"):
                learner.group.start()
            load = [memory(pid, "VmHWM") for pid in learner.group.pids]
            with told(record_property, f"{name}: first step"):
                learner.train(batches[0])
            held = [memory(pid, "VmRSS") for pid in learner.group.pids]
            for pid in learner.group.pids:
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here
            with told(record_property, f"{name}: second step"):
                assert learner.train(batches[1]).metrics["learner/grad_norm"] > 0.0
            return {"load": load, "held": held, "step": [memory(pid, "VmHWM") for pid in learner.group.pids]}
        finally:
            sizes[name] = {part: tree_bytes(tmp_path / f"{name}-ranks" / part) for part in ("checkpoints", "weights")}
            learner.close()

    sizes: dict[str, dict[str, int]] = {}
    libraries = measured({"dtype": "bfloat16"}, "tiny")
    found = measured(shapes, "layers")
    shape = read_shape(tmp_path / "layers")
    assert shape.text.layer_parameters == text.layer_parameters
    data = read_turns(batches[1], make_vlm(), trainer.objective.advantage)
    said = learner_memory(
        shape,
        ranks=RANKS,
        tokens=sum(len(example.prompt.tokens) + len(example.tokens) for example in data.examples) // RANKS,
        images=sum(len(example.prompt.pictures) for example in data.examples) // RANKS,
        replies=1,  # of one token each: the logits are nothing
        screen=(56, 56),
        dtype="bfloat16",
        reference=False,
    )
    state = said.parameters + said.gradients + said.optimizer
    exported = 2 * shape.parameters
    expected = {
        "load": [said.host] * RANKS,
        "held": [state] * RANKS,  # gradients stay until the next step
        "step": [state + said.gathered + said.activations + exported, state + said.gathered + said.activations],
    }
    # Of two versions the first was written with a checkpoint: masters of the weights and both moments, in float32.
    assert sizes["layers"]["checkpoints"] == pytest.approx(3 * 4 * shape.parameters, rel=0.01)
    assert sizes["layers"]["weights"] == pytest.approx(2 * exported, rel=0.01)
    errors = []
    for moment, predictions in expected.items():
        for rank, predicted in enumerate(predictions):
            taken = found[moment][rank] - libraries[moment][rank]
            errors.append(predicted / taken - 1.0)
            record_property(f"{moment}, rank {rank}", taken)
            print(f"{moment:4} rank {rank}: predicted {predicted / 1e9:.2f} GB, measured {taken / 1e9:.2f}", end=", ")
            print(f"error {errors[-1]:+.0%}")
    assert all(-0.15 < error < 0.5 for error in errors), "the reserves of the estimate are 5 % and 2 GiB a GPU"


def test_turns_of_an_update_take_the_memory_and_disk_that_are_estimated(tmp_path, record_property):
    """What the driver holds and writes for the ranks, with five screenshots of 1920 x 1080 in a prompt."""
    preset = load(preset_name="osworld-8gpu")
    config = preset.replace(policy={"model": str(write_stand_in(preset, tmp_path / "model"))})
    vlm = build(vlm_config(config))
    screens, written = Screens(), replies(vlm, config)[-1]
    tokens, logprobs = np.asarray(written), np.full(len(written), -0.5, np.float32)
    reply = Reply(vlm.vocabulary.decode(written), 0, 0, 0, 1_000, len(written), tokens, logprobs)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here
    before = memory(os.getpid(), "VmRSS")

    def attempt(number: int) -> Trajectory:
        task, shots = Task("task", "do it"), (screens.png(number * TURNS + turn) for turn in range(TURNS))
        turns = tuple(Turn(Observation(Screenshot(png), "do it"), reply) for png in shots)
        return Trajectory(
            Attempt(number, task, 0, number, number, TURNS, 0), turns, Ending.DONE, float(number % 2), None, 0.0, 1.0
        )

    played = tuple(attempt(number) for number in range(ATTEMPTS))
    batch = Batch(1, 0, (Group(0, played[0].attempt.task, played, 0.0),))
    data = read_turns(batch, vlm, config.trainer.objective.advantage)
    write_turns(data, tmp_path / "turns")
    taken = memory(os.getpid(), "VmHWM") - before
    size = (tmp_path / "turns" / PATCHES).stat().st_size
    of_png, pixels = len(screens.png(0)), 3 * SCREEN[0] * SCREEN[1]
    prompts = sum(len(example.prompt.tokens) for example in data.examples)
    said = len(data.examples) * of_png + 2 * prompts * PROMPT_TOKEN_BYTES
    assert of_png < PNG_SHARE * pixels
    patches = QWEN2_5_VL_7B.image_patches(*SCREEN) * 3 * 14**2 * ATTEMPTS * TURNS
    for name, predicted, measured in (("memory", said, taken), ("disk", patches, size)):
        record_property(name, measured)
        print(f"{name}: predicted {predicted / 1e6:.0f} MB, measured {measured / 1e6:.0f}", end=", ")
        print(f"error {predicted / measured - 1.0:+.0%}")
    assert 0.9 * said < taken < said + CUTTING_BYTES
    assert patches == pytest.approx(size, rel=0.05)
