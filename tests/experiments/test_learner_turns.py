"""Turns in one sequence, measured in small: cases train what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("psutil")

from dartsim.real.vlm import build  # noqa: E402
from experiments import learner_speed_work as work  # noqa: E402

SMALL = work.TurnsCase(3, 5, 2, 400, 0.8)


def test_random_batches_can_be_trained_in_every_way():
    vlm = build(SMALL.config())
    batch = SMALL.batch(vlm)
    assert batch.num_turns == len(SMALL.kept) == 10
    assert sum(SMALL.kept) == 8
    peers = work.PeerTurns.of(vlm, batch, SMALL.kept)
    parts = peers.parts(SMALL.max_tokens)
    assert sum(len(part.replies) for part in parts) == len(peers.replies) == 8
    assert all(
        len(part.replies) == 1
        or len(part.replies) * max(len(p.tokens) + len(r) for p, r in zip(part.prompts, part.replies, strict=True))
        <= SMALL.max_tokens
        for part in parts
    )
    tokens = {variant: work.update_of(SMALL, variant)().metrics["learner/computed_tokens"] for variant in work.OURS}
    assert tokens["packed"] < tokens["per turn"] < tokens["sliding"]
    work.update_of(SMALL, "transformers")()


def test_counted_operations_grow_with_the_tokens_and_screens():
    counted = {variant: work.operations(SMALL, variant) for variant in work.OURS}
    assert 1.0 < counted["per turn"] / counted["packed"] < counted["sliding"] / counted["packed"]
    longer = work.operations(replace(SMALL, turns=10), "per turn")
    assert 1.5 < longer / counted["per turn"] < 3.0
