"""Screenshots as patches: resized as Qwen's image processors do it, kept in bytes, cut without a loop.

The normalization is left to the model's device, so that a picture stays at three bytes a pixel.
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
        """Return the rules of a configuration, or those that its checkpoint folder was trained with."""
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
        found = json.loads(path.read_text(encoding="utf-8"))
        size = found.get("size", {})
        return cls(
            patch_size=found["patch_size"],
            merge_size=found["merge_size"],
            min_pixels=found.get("min_pixels") or size.get("shortest_edge") or config.min_pixels,
            max_pixels=found.get("max_pixels") or size.get("longest_edge") or config.max_pixels,
            mean=tuple(found["image_mean"]),
            std=tuple(found["image_std"]),
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
        """Return the height and width that a screenshot is resized to.

        Multiples of a merged patch, the aspect kept as well as possible, between the two numbers of pixels.
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
    """Cuts screenshots, and remembers the newest of them: a history shows the same ones turn after turn.

    Args:
        rules: How they are cut.
        max_bytes: Bytes of screenshots remembered.
    """

    def __init__(self, rules: ImageRules, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.rules = rules
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[Any, ...], Picture] = OrderedDict()

    def __call__(self, screenshot: Any) -> Picture:
        """Return the patches of a screenshot."""
        key = (screenshot.shape, screenshot.tobytes())
        picture = self._known.get(key)
        if picture is not None:
            self._known.move_to_end(key)
            return picture
        picture = self._known[key] = self.rules.cut(screenshot)
        self._bytes += 3 * len(key[1])
        while self._bytes > self._max_bytes and len(self._known) > 1:
            (_, dropped), _ = self._known.popitem(last=False)
            self._bytes -= 3 * len(dropped)
        return picture
