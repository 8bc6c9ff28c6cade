"""Screenshots as patches: resized as by Qwen's image processors, kept as bytes.

The model's device normalizes them, so that a picture stays at three bytes a pixel.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from dartsim.real.vlm.config import VlmConfig


class Picture(NamedTuple):
    """A screenshot as a vision transformer reads it.

    ``patches`` is uint8 [rows * columns, 3 * patch * patch], in blocks of patches that are merged; ``grid`` is
    (rows, columns) in patches. ``key`` is equal for equal pictures.
    """

    patches: np.ndarray[Any, np.dtype[np.uint8]]
    grid: tuple[int, int]
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRules:
    """How screenshots become patches; see ``VlmConfig`` for the fields."""

    patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, config: VlmConfig) -> ImageRules:
        """Return the rules of a configuration, or those of its checkpoint folder."""
        if config.folder is None:
            return cls(
                patch_size=config.patch_size,
                merge_size=config.merge_size,
                min_pixels=config.min_pixels,
                max_pixels=config.max_pixels,
                mean=config.image_mean,
                std=config.image_std,
            )
        path = Path(config.folder) / "preprocessor_config.json"
        raw = json.loads(path.read_text(encoding="utf-8"))
        size = raw.get("size", {})
        return cls(
            patch_size=raw["patch_size"],
            merge_size=raw["merge_size"],
            min_pixels=raw.get("min_pixels") or size.get("shortest_edge") or config.min_pixels,
            max_pixels=raw.get("max_pixels") or size.get("longest_edge") or config.max_pixels,
            mean=tuple(raw["image_mean"]),
            std=tuple(raw["image_std"]),
        )

    def as_json(self) -> dict[str, Any]:
        """Return what transformers' image processors read from ``preprocessor_config.json``."""
        return {
            "image_processor_type": "Qwen2VLImageProcessor",
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": 2,
            "size": {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels},
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }

    def shape(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width that a screenshot is resized to: multiples of a merged patch, near its aspect.

        Source: Qwen2-VL's ``smart_resize``.
        """
        unit = self.patch_size * self.merge_size
        high, wide = round(height / unit) * unit, round(width / unit) * unit
        if high * wide > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            high = max(unit, math.floor(height / shrink / unit) * unit)
            wide = max(unit, math.floor(width / shrink / unit) * unit)
        elif high * wide < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            high, wide = math.ceil(height * grow / unit) * unit, math.ceil(width * grow / unit) * unit
        return high, wide

    def cut(self, screenshot: Any) -> Picture:
        """Return the patches of a screenshot, uint8 [height, width, 3]."""
        image = np.ascontiguousarray(screenshot, dtype=np.uint8)
        if image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f"a screenshot is uint8 [height, width, 3], got shape {image.shape}")
        high, wide = self.shape(*image.shape[:2])
        if (high, wide) != image.shape[:2]:
            resized = Image.fromarray(image).resize((wide, high), Image.Resampling.BICUBIC)
            image = np.asarray(resized, dtype=np.uint8)
        p, m = self.patch_size, self.merge_size
        rows, columns = high // p, wide // p
        blocks = image.reshape(rows // m, m, p, columns // m, m, p, 3)
        patches = blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3 * p * p)
        return Picture(patches, (rows, columns), patches.tobytes())


class Pictures:
    """Cuts screenshots, with a cache of at most ``max_bytes``: a history shows the same ones turn after turn."""

    def __init__(self, rules: ImageRules, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.rules = rules
        self._max_bytes = max_bytes
        self.cached_bytes = 0
        self._cache: OrderedDict[tuple[Any, ...], Picture] = OrderedDict()

    def __call__(self, screenshot: Any) -> Picture:
        key = (screenshot.shape, screenshot.tobytes())
        picture = self._cache.get(key)
        if picture is not None:
            self._cache.move_to_end(key)
            return picture
        picture = self._cache[key] = self.rules.cut(screenshot)
        self.cached_bytes += 3 * len(key[1])
        while self.cached_bytes > self._max_bytes and len(self._cache) > 1:
            (_, dropped), _ = self._cache.popitem(last=False)
            self.cached_bytes -= 3 * len(dropped)
        return picture
