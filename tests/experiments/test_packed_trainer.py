"""The prediction of what several turns in one sequence gain: what its variants are, and what it draws."""

import pytest

from experiments.packed_trainer import DART, FASTER, FIGURES, GPUS, SPLITS, VARIANTS, operations_ratio, packed, table

KILOTOKEN = 0.086
"""Of DART's eight GPUs, fitted."""


def test_dart_pays_what_was_fitted_and_others_for_their_operations():
    dart, *others = [variant.cluster(1.0, 0).config for variant in (*VARIANTS, *SPLITS, FASTER)]
    assert operations_ratio(dart) == 1.0
    assert dart.cluster.learner.kilotoken_seconds == KILOTOKEN
    for config in others:
        learner = config.cluster.learner
        assert learner.gpus + config.rollout.num_workers == GPUS
        wanted = KILOTOKEN * 8 / learner.gpus * operations_ratio(config)
        assert learner.kilotoken_seconds == pytest.approx(wanted)
        assert operations_ratio(config) == pytest.approx(1.0, abs=0.05), "sequences are about as long"


def test_the_variants_are_drawn_beside_what_was_published():
    pytest.importorskip("matplotlib")
    one = {name: {"mean": 50.0, "half_width": 2.0} for name in FIGURES}
    found = {each.name: {**one, "engines": each.engines, "fixed_share": 0.4} for each in (*VARIANTS, *SPLITS, FASTER)}
    figures = {"variants": found, "published_turns_per_minute": 43.6}
    assert "<svg" in packed(figures)
    head, rows = table(figures)
    assert [row[0] for row in rows] == list(found)
    assert dict(zip(head, rows[0], strict=True))["over DART's 43.6"] == "1.15x"
    assert VARIANTS[0].preset == DART
