"""Screenshots as patches: resized like in Qwen's image processors in engines, stored as bytes.

The model's device normalizes them, so that a picture stays at three bytes a pixel.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from dartsim.core.image_size import ResizeRules, processor_settings, resize_rules
from dartsim.core.png import key_of
from dartsim.real.vlm.config import VlmConfig

Patches = np.ndarray[Any, np.dtype[np.uint8]]
"""uint8 [rows * columns, 3 * patch * patch], in blocks of patches that are merged."""


class Picture:
    """A screenshot as a vision transformer reads it, cut into patches when they are wanted.

    An engine cuts for itself: prompts for it need only the number of patches, which follows from the size.
    """

    def __init__(self, grid: tuple[int, int], key: bytes, cut: Callable[[], Patches], screenshot: Any = None) -> None:
        self.grid = grid
        self.key = key
        self.screenshot = screenshot
        self._cut = cut

    @cached_property
    def patches(self) -> Patches:
        """Its patches, which are cached."""
        return self.cut()

    def cut(self) -> Patches:
        """Return its patches without caching them."""
        return self._cut()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRules(ResizeRules):
    """How screenshots become patches; see ``VlmConfig`` for the fields."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, config: VlmConfig) -> ImageRules:
        """Return the rules of a configuration, or those of its checkpoint folder.

        Raises:
            ConfigError: If the folder's are missing, or contradict its model.
        """
        if config.folder is None:
            sizes: Any = config
            mean, std = config.image_mean, config.image_std
        else:
            folder = Path(config.folder)
            sizes, settings = resize_rules(folder), processor_settings(folder)
            mean = tuple(settings.get("image_mean") or config.image_mean)
            std = tuple(settings.get("image_std") or config.image_std)
        return cls(**{each.name: getattr(sizes, each.name) for each in fields(ResizeRules)}, mean=mean, std=std)

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
        """Return the height and width that a screenshot is resized to."""
        wide, high = self.resized(width, height)
        return high, wide

    def picture(self, screenshot: Any, key: bytes | None = None) -> Picture:
        """Return a screenshot, an array or a file of uint8 [height, width, 3], as a picture; ``key`` is its key.

        Raises:
            ValueError: If it has another shape.
        """
        shape = screenshot.shape
        if len(shape) != 3 or shape[2] != 3:
            raise ValueError(f"a screenshot is uint8 [height, width, 3], got shape {shape}")
        high, wide = self.shape(*shape[:2])
        grid = high // self.patch_size, wide // self.patch_size
        return Picture(grid, key or key_of(screenshot), partial(self._cut, screenshot, high, wide), screenshot)

    def num_bytes(self, picture: Picture) -> int:
        return picture.grid[0] * picture.grid[1] * 3 * self.patch_size**2

    def _cut(self, screenshot: Any, high: int, wide: int) -> Patches:
        image = np.ascontiguousarray(screenshot, dtype=np.uint8)
        if (high, wide) != image.shape[:2]:
            # The kernel of torchvision, with which engines resize; Pillow's result differs by up to 2 of 255.
            pixels = torch.tensor(image).permute(2, 0, 1)[None]
            resized = interpolate(pixels, size=(high, wide), mode="bicubic", antialias=True)
            image = resized[0].permute(1, 2, 0).contiguous().numpy()
        p, m = self.patch_size, self.merge_size
        rows, columns = high // p, wide // p
        blocks = image.reshape(rows // m, m, p, columns // m, m, p, 3)
        return blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3 * p * p)


class Pictures:
    """Screenshots as pictures. Equal ones share one while their patches, if cut, are at most ``max_bytes`` in all.

    May be called from several threads.
    """

    def __init__(self, rules: ImageRules, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.rules = rules
        self._max_bytes = max_bytes
        self.cached_bytes = 0
        self._cache: OrderedDict[bytes, Picture] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, screenshot: Any) -> Picture:
        key = key_of(screenshot)
        with self._lock:
            picture = self._cache.get(key)
            if picture is not None:
                self._cache.move_to_end(key)
                return picture
            picture = self._cache[key] = self.rules.picture(screenshot, key)
            self.cached_bytes += self.rules.num_bytes(picture)
            while self.cached_bytes > self._max_bytes and len(self._cache) > 1:
                _, dropped = self._cache.popitem(last=False)
                self.cached_bytes -= self.rules.num_bytes(dropped)
        return picture
