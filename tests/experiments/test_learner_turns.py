"""Turns in one sequence, measured in small: cases train what they say; tables and picture show the figures."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from experiments import learner_speed
from experiments.study import markdown

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("psutil")

from dartsim.real.vlm import build  # noqa: E402
from experiments import learner_turns_work as work  # noqa: E402
from experiments.learner_speed_work import PeerTurns  # noqa: E402

SMALL = work.TurnsCase(3, 5, 2, 400, 0.8)


def figures() -> dict[str, Any]:
    """Return figures of all cases: one sequence per turn takes twice the time of packed turns, the others thrice."""
    rows = [
        {
            **asdict(case),
            "turns_trained": sum(case.kept),
            "ranks": ranks,
            "variant": variant,
            "turns_per_second": {"packed": 60.0, "per turn": 30.0}.get(variant, 20.0),
            "peak_mib": None if (ranks, variant) == (2, "sliding") else 10.0,
        }
        for case in work.CASES
        for ranks in (1, 2)
        for variant in (*work.OURS, *work.PEERS)
    ]
    ratio = {"against": "sliding", "tokens": 7.4, "operations": 6.0, "cpu_seconds": 5.0, "error": 0.2}
    return {"multi_turn": rows, "operation_ratios": [{**asdict(case), **ratio} for case in work.CASES]}


def test_random_batches_can_be_trained_in_every_way():
    vlm = build(SMALL.config())
    batch = SMALL.batch(vlm)
    assert batch.num_turns == len(SMALL.kept) == 10
    assert sum(SMALL.kept) == 8
    peers = PeerTurns.of(vlm, batch, SMALL.kept)
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


def test_tables_and_picture_show_the_figures():
    pytest.importorskip("matplotlib")
    shown = figures()
    text = markdown(learner_speed.multi_turn_table(shown))
    assert "| one sequence per turn | 5 / 14 | tiny, 1 | 512 | 100% | 2.00 | 2.2 | 1.00 |" in text
    assert "| DART's sliding window | 10 / 30 | wider, 2 | 1,024 | 100% | 3.00 | 5.0 | – |" in text
    assert "| sliding | 5 / 14 | tiny | 512 | 7.40 | 6.00 | 5.00 | +20 |" in markdown(
        learner_speed.operations_table(shown)
    )
    row = next(row for row in learner_speed.packed_rows(shown) if row["peer_name"] == "sliding window")
    assert row["what"].startswith("turns trained/s, 5 images, 14 turns, 100% selected, tiny model")
    assert (row["ours"], row["peer"], row["ratio"]) == (60.0, 20.0, 3.0)
    single = {"what": "tokens sampled/s, batch 1", "ours": 5.4, "peer_name": "transformers model.generate"}
    both = {"rows": [single, *learner_speed.packed_rows(shown)]}
    assert learner_speed.summary(both) == "Per CPU second: 5 tokens sampled (batch 1).\n"
    assert "target" in learner_speed.multi_turn_picture(shown)
