"""Floating-point operations of training, counted from a model's shape: what several turns in one sequence save.

A multiplication and an addition are two operations. Matrix products and attention are counted; norms, activations and
softmax are not. A sequence attends causally: half of its square. Logits are computed for replies only, as by
``dartsim.real.vlm.packing``.

``experiments.learner_speed`` compares the counted ratios with CPU times of small models.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dartsim.lab.model_shapes import ModelShape


class Operations(NamedTuple):
    """Operations of one forward pass, by part of the model; the backward pass takes twice as many.

    ``vision``: the vision tower. ``layers``: matrices of the language model's layers. ``attention``: between its
    tokens. ``head``: logits.
    """

    vision: float
    layers: float
    attention: float
    head: float

    @property
    def total(self) -> float:
        return sum(self)


def forward_operations(
    shape: ModelShape, sequences: Iterable[int], *, pictures: float, patches: int, reply_tokens: float
) -> Operations:
    """Count a forward pass.

    Args:
        shape: The model.
        sequences: Tokens of each sequence.
        pictures: Pictures that are encoded.
        patches: Patches of a picture.
        reply_tokens: Tokens whose logits are computed.
    """
    text, vision = shape.text, shape.vision
    lengths = list(sequences)
    windowed = vision.depth - vision.whole_layers if vision.window else 0
    seen = windowed * min(vision.window**2, patches) + (vision.depth - windowed) * patches
    merged = vision.hidden * vision.merge**2
    block = 4 * vision.hidden**2 + (3 if vision.gated else 2) * vision.hidden * vision.intermediate
    embedding = 3 * vision.patch**2 * vision.hidden
    heads = (1 + vision.deepstack) * (merged**2 + merged * vision.out) / vision.merge**2
    per_patch = 2 * (vision.depth * block + embedding + heads) + 4 * vision.hidden * seen
    width = text.heads * text.head_dim
    return Operations(
        vision=float(pictures * patches * per_patch),
        layers=float(2 * text.layers * text.layer_parameters * sum(lengths)),
        attention=float(2 * text.layers * width * sum(length**2 for length in lengths)),
        head=float(2 * text.hidden * text.vocabulary * reply_tokens),
    )
