import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (  # noqa: E402
    Qwen2VLImageProcessorPil,
    smart_resize,
)

from dartsim.core.errors import ConfigError  # noqa: E402
from dartsim.core.png import Screenshot, encode_png  # noqa: E402
from dartsim.real.vlm.config import VlmConfig  # noqa: E402
from dartsim.real.vlm.images import ImageRules, Pictures  # noqa: E402


def rules(**fields) -> ImageRules:
    return ImageRules.of(VlmConfig(**fields))


def size_of(mine: ImageRules) -> dict[str, int]:
    return {"shortest_edge": mine.min_pixels, "longest_edge": mine.max_pixels}


@pytest.mark.parametrize("size", [(112, 112), (84, 140), (100, 90), (20, 24), (300, 400)])
def test_patches_are_those_of_the_library(size):
    """But for two of 255 where Pillow resizes; engines resize with torchvision, whose kernel ours is."""
    mine = rules(max_pixels=200 * 200)
    shot = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    theirs = Qwen2VLImageProcessorPil(patch_size=14, merge_size=2, size=size_of(mine), do_normalize=False)(
        shot, return_tensors="np", do_rescale=False
    )
    picture = mine.picture(shot)
    assert tuple(theirs["image_grid_thw"][0]) == (1, *picture.grid)
    wanted = theirs["pixel_values"].reshape(-1, 3, 2, 14 * 14)
    assert np.array_equal(wanted[:, :, 0], wanted[:, :, 1])
    apart = np.abs(picture.patches.reshape(-1, 3, 14 * 14) - wanted[:, :, 0].astype(np.int64))
    assert apart.max() <= (0 if mine.shape(*size) == size else 2)


@given(
    height=st.integers(1, 1200),
    width=st.integers(1, 2000),
    patch=st.integers(8, 18),
    fewest=st.integers(1, 2000),
    most=st.integers(2000, 3000),
)
def test_the_number_of_tokens_follows_from_the_size_alone(height, width, patch, fewest, most):
    assume(max(height, width) <= 200 * min(height, width))
    mine = rules(patch_size=patch, min_pixels=fewest * 784, max_pixels=most * 784)
    theirs = smart_resize(height, width, factor=2 * patch, min_pixels=mine.min_pixels, max_pixels=mine.max_pixels)
    assert mine.resized(width, height) == theirs[::-1]
    picture = mine.picture(np.broadcast_to(np.uint8(0), (height, width, 3)))
    assert picture.grid == (theirs[0] // patch, theirs[1] // patch)
    assert "patches" not in vars(picture), "nothing was cut"


def optional(**fields):
    """Draw some of these settings."""
    return st.fixed_dictionaries({}, optional=fields)


pixels = st.integers(1, 20_000_000)
edges = st.fixed_dictionaries({"shortest_edge": pixels, "longest_edge": pixels})
sides = st.integers(1, 32)
settings_of_a_processor = optional(
    image_processor_type=st.just("Qwen2VLImageProcessorFast"),
    min_pixels=pixels | st.none(),
    max_pixels=pixels | st.none(),
    size=edges | st.none(),
    patch_size=sides,
    merge_size=sides,
)


@given(older=settings_of_a_processor, nested=settings_of_a_processor | st.none())
def test_the_files_of_a_checkpoint_are_read_as_by_the_library(older, nested):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "Qwen", **older}))
        whole = {"processor_class": "Qwen2_5_VLProcessor"} | ({} if nested is None else {"image_processor": nested})
        (folder / "processor_config.json").write_text(json.dumps(whole))
        theirs = Qwen2VLImageProcessorPil.from_pretrained(folder)
        mine = ImageRules.of(VlmConfig(folder=name))
    assert size_of(mine) == dict(theirs.size)
    assert (mine.patch_size, mine.merge_size) == (theirs.patch_size, theirs.merge_size)
    assert (mine.mean, mine.std) == (tuple(theirs.image_mean), tuple(theirs.image_std))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"processor_config.json": {"processor_class": "Qwen2_5_VLProcessor"}},
        {"preprocessor_config.json": {"image_processor_type": "LlavaOnevisionImageProcessor"}},
        {"preprocessor_config.json": {"do_resize": False}},
        {"preprocessor_config.json": {"size": {"height": 700, "width": 1400}}},
        {"preprocessor_config.json": {"max_pixels": "many"}},
        {"preprocessor_config.json": {"patch_size": 14}, "config.json": {"vision_config": {"patch_size": 16}}},
        {"preprocessor_config.json": {"merge_size": 2}, "config.json": {"vision_config": {"spatial_merge_size": 1}}},
        {"preprocessor_config.json": []},
    ],
)
def test_rules_that_are_missing_or_contradict_the_model_are_refused(files, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ConfigError):
        ImageRules.of(VlmConfig(folder=str(tmp_path)))


def test_a_file_is_cut_like_its_pixels():
    shot = np.random.default_rng(2).integers(0, 256, (90, 130, 3), dtype=np.uint8)
    file = Screenshot(encode_png(shot))
    assert np.array_equal(rules().picture(file).patches, rules().picture(shot).patches)


@given(st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=60), st.integers(1, 9))
def test_the_cache_is_bounded_and_mixes_no_screenshots(uses, fit):
    """However screenshots come and go, as arrays or as files, each is shown as itself."""
    size = 3 * 28 * 28
    pictures = Pictures(rules(min_pixels=784), max_bytes=fit * size)
    for number, as_file in uses:
        shot = np.full((28, 28, 3), number, np.uint8)
        picture = pictures(Screenshot(encode_png(shot)) if as_file else shot)
        assert picture.patches.min() == picture.patches.max() == number
        assert np.array_equal(picture.screenshot, shot)
        assert size <= pictures.cached_bytes <= fit * size


def test_equal_screens_are_cut_once():
    pictures = Pictures(rules())
    shot = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    assert pictures(shot) is pictures(shot.copy())
