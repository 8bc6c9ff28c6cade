from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.real.vlm.config import VlmConfig  # noqa: E402
from dartsim.real.vlm.images import ImageRules, Pictures  # noqa: E402


def rules(**fields: Any) -> ImageRules:
    return ImageRules.of(VlmConfig(**fields))


@pytest.mark.parametrize("size", [(112, 112), (84, 140), (100, 90), (20, 24), (300, 400)])
def test_patches_are_those_of_the_library(size: tuple[int, int]) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    mine = rules(max_pixels=200 * 200)
    shot = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    theirs = Qwen2VLImageProcessorPil(
        patch_size=14,
        merge_size=2,
        size={"shortest_edge": mine.min_pixels, "longest_edge": mine.max_pixels},
        image_mean=list(mine.mean),
        image_std=list(mine.std),
    )(shot, return_tensors="np")
    picture = mine.cut(shot)
    assert tuple(theirs["image_grid_thw"][0]) == (1, *picture.grid)
    wanted = theirs["pixel_values"].reshape(-1, 3, 2, 14 * 14)
    assert np.array_equal(wanted[:, :, 0], wanted[:, :, 1])
    mean, std = np.array(mine.mean)[:, None], np.array(mine.std)[:, None]
    got = (picture.patches.reshape(-1, 3, 14 * 14) / 255.0 - mean) / std
    assert np.allclose(got, wanted[:, :, 0], atol=1e-5)


def test_equal_screens_are_cut_once() -> None:
    pictures = Pictures(rules())
    shot = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    assert pictures(shot) is pictures(shot.copy())


def test_what_is_remembered_is_bounded() -> None:
    pictures = Pictures(rules(), max_bytes=5 * 3 * 56 * 56 * 3)
    shots = np.random.default_rng(0).integers(0, 256, (20, 56, 56, 3), dtype=np.uint8)
    first = pictures(shots[0])
    for shot in shots:
        pictures(shot)
    assert 0 < pictures.cached_bytes <= 5 * 3 * 56 * 56 * 3
    assert pictures(shots[0]) is not first


def test_a_screen_must_have_three_channels() -> None:
    with pytest.raises(ValueError, match="got shape"):
        rules().cut(np.zeros((56, 56), np.uint8))


def test_rules_of_a_folder_are_its_own(tmp_path: Any) -> None:
    mine = rules(patch_size=16)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(mine.as_json()))
    assert ImageRules.of(VlmConfig(folder=str(tmp_path))) == mine


@pytest.mark.bench
def test_a_small_screen_takes_less_than_a_millisecond() -> None:
    import time

    mine = rules()
    shots = np.random.default_rng(0).integers(0, 256, (200, 112, 112, 3), dtype=np.uint8)
    start = time.process_time()
    for shot in shots:
        mine.cut(shot)
    assert (time.process_time() - start) / len(shots) < 1e-3
