"""What the estimate says of a 7B model, against a checkpoint that is really written and loaded; minutes, so soak."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402

from dartsim.lab.model_shapes import QWEN2_5_VL_7B  # noqa: E402
from dartsim.real.engines.ledger import WeightsLedger, read_folder  # noqa: E402
from dartsim.real.engines.plugin import digest  # noqa: E402
from dartsim.real.vlm.export import export_weights  # noqa: E402
from dartsim.real.vlm.model import CLASSES  # noqa: E402

pytestmark = pytest.mark.soak

LAYERS = 2


@contextmanager
def told(record_property: Any, name: str, size: int | None = None) -> Iterator[None]:
    """Record the seconds of a block, and the GB per second of a size."""
    begun = time.perf_counter()
    yield
    seconds = time.perf_counter() - begun
    record_property(name, seconds)
    print(f"{name}: {seconds:.1f} s" + (f", {size / 1e9 / seconds:.2f} GB/s" if size else ""))


def seven_b(layers: int) -> dict[str, Any]:
    """Return the tensors of a 7B model with so many layers, by name and in bfloat16, without values."""
    text, vision = QWEN2_5_VL_7B.text, QWEN2_5_VL_7B.vision
    config_class, model_class = CLASSES["qwen2_5_vl"]
    config = config_class(
        text_config={
            "vocab_size": text.vocabulary,
            "hidden_size": text.hidden,
            "intermediate_size": text.intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
        },
        vision_config={
            "depth": vision.depth,
            "hidden_size": vision.hidden,
            "intermediate_size": vision.intermediate,
            "num_heads": 16,
            "out_hidden_size": vision.out,
            "patch_size": vision.patch,
        },
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        model = model_class(config)
    return dict(model.named_parameters())


def test_a_checkpoint_of_gigabytes_is_written_hashed_loaded_and_confirmed(tmp_path: Path, record_property: Any) -> None:
    shape = replace(QWEN2_5_VL_7B, text=replace(QWEN2_5_VL_7B.text, layers=LAYERS))
    size = 2 * shape.parameters
    assert size >= 4e9
    weights = {}
    for number, (name, like) in enumerate(seven_b(LAYERS).items()):
        weights[name] = torch.full(like.shape, 1.0 + number / 64, dtype=torch.bfloat16)
    folder = tmp_path / "version-000001"
    with told(record_property, "write", size):
        export_weights(weights, folder, dtype="bfloat16")
    weights.clear()
    file = folder / "model.safetensors"
    assert 0 <= file.stat().st_size - size < 1e6  # the estimate, and a header
    with told(record_property, "hash", size):
        assert len(digest(file)) == 64
    ledger = WeightsLedger()
    with told(record_property, "inspect"):
        facts = ledger.inspect(folder)
    with told(record_property, "load", size):
        engine = {name: tensor.clone() for name, tensor in load_file(file).items()}
    assert sum(tensor.nbytes for tensor in engine.values()) == size
    engine.clear()
    with told(record_property, "confirm"):
        ledger.confirm(1, facts, facts.digests)
    assert facts.shapes.keys() == seven_b(LAYERS).keys()
    assert len(facts.digests) > 0.9 * len(facts.shapes)  # all but the large matrices
    assert read_folder(folder) is facts
