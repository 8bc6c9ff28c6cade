"""``ResizeRules``: the size at which a model sees a screenshot, read from the files of its checkpoint.

Prompts, engines, memory estimates and the coordinates of actions all take the size from here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError

MAX_ASPECT = 200


def smart_resize(width: int, height: int, *, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Return (width, height) of the resized picture: 1920 × 1080 becomes 1932 × 1092 where ``factor`` is 28.

    Sides are rounded to multiples of ``factor``; if the area is then out of bounds, both sides are scaled by
    the same ratio and rounded inwards.

    Raises:
        ValueError: If one side is more than 200 times the other.
    Source: ``smart_resize`` of Qwen2-VL's image processor, in transformers.
    """
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ValueError(f"wanted an aspect ratio of at most {MAX_ASPECT}, found {width} × {height}")
    across, down = round(width / factor) * factor, round(height / factor) * factor
    if across * down > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        across = max(factor, math.floor(width / shrink / factor) * factor)
        down = max(factor, math.floor(height / shrink / factor) * factor)
    elif across * down < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        across = math.ceil(width * grow / factor) * factor
        down = math.ceil(height * grow / factor) * factor
    return across, down


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRules:
    """How a model's image processor resizes; the defaults are those of Qwen's class.

    Attributes:
        patch_size: Side of a patch, pixels.
        merge_size: Side of the square of patches that become one token.
        min_pixels: Smaller screenshots are enlarged.
        max_pixels: Larger screenshots are shrunk.
    """

    patch_size: int = 14
    merge_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 1280 * 28 * 28

    @property
    def factor(self) -> int:
        """Sides of a resized picture are multiples of this many pixels."""
        return self.patch_size * self.merge_size

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Return the (width, height) that the model sees; errors as ``smart_resize``."""
        return smart_resize(width, height, factor=self.factor, min_pixels=self.min_pixels, max_pixels=self.max_pixels)

    def num_tokens(self, width: int, height: int) -> int:
        """Return the image tokens of a screenshot."""
        across, down = self.resized(width, height)
        return (across // self.factor) * (down // self.factor)


PUBLISHED = {
    "qwen2_5_vl": ResizeRules(max_pixels=16_384 * 28 * 28),
    "qwen3_vl": ResizeRules(patch_size=16, min_pixels=256 * 256, max_pixels=4_096 * 4_096),
}
"""The rules in the checkpoints of Qwen2.5-VL, UI-TARS-1.5 and Qwen3-VL on the Hugging Face hub."""


def checkpoint_family(folder: Path) -> str | None:
    """Return the ``model_type`` of a checkpoint; None if the folder has no readable ``config.json``."""
    kind = (_json(folder / "config.json") or {}).get("model_type")
    return kind if isinstance(kind, str) else None


def has_processor(folder: Path) -> bool:
    """Return whether a checkpoint has the settings of an image processor."""
    return _processor(folder) is not None


def processor_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a checkpoint's image processor, as transformers finds them.

    Since transformers 5 they are in ``processor_config.json``, which takes precedence; before, in
    ``preprocessor_config.json``.

    Raises:
        ConfigError: If there are none, or they belong to another class of processor.
    """
    settings = _processor(folder)
    if settings is None:
        raise ConfigError(
            f"{str(folder)!r} does not say how screenshots are resized: it has neither a preprocessor_config.json nor "
            "a processor_config.json with an image_processor; copy it from the checkpoint"
        )
    kind, resizes = settings.get("image_processor_type", "Qwen"), settings.get("do_resize", True)
    if not str(kind).startswith("Qwen") or resizes is not True:
        raise ConfigError(
            f"the image processor of {str(folder)!r} is a {kind} with do_resize = {resizes}; wanted one of Qwen's that "
            "resizes"
        )
    return settings


def resize_rules(folder: Path) -> ResizeRules:
    """Return the rules of a checkpoint folder.

    Raises:
        ConfigError: As ``processor_settings``, or if the rules are incomplete or do not fit the model.
    """
    settings, default = processor_settings(folder), ResizeRules()
    size = settings.get("size")
    if size is None:
        size = {"shortest_edge": default.min_pixels, "longest_edge": default.max_pixels}
    if not isinstance(size, dict):
        size = {}
    sides = {
        "patch_size": settings.get("patch_size", default.patch_size),
        "merge_size": settings.get("merge_size", default.merge_size),
        # Both forms may be present; transformers prefers the older one. Inside `size`, it was Qwen2-VL's first.
        "min_pixels": _first(settings.get("min_pixels"), size.get("shortest_edge"), size.get("min_pixels")),
        "max_pixels": _first(settings.get("max_pixels"), size.get("longest_edge"), size.get("max_pixels")),
    }
    for name, value in sides.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"the image processor of {str(folder)!r} has {name} = {value!r}, wanted a number of pixels"
            )
    vision = (_json(folder / "config.json") or {}).get("vision_config") or {}
    for name, of_model in (("patch_size", "patch_size"), ("merge_size", "spatial_merge_size")):
        if vision.get(of_model, sides[name]) != sides[name]:
            raise ConfigError(
                f"{str(folder)!r} contradicts itself: its image processor has {name} = {sides[name]}, its config.json "
                f"{of_model} = {vision[of_model]}"
            )
    return ResizeRules(**sides)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _processor(folder: Path) -> dict[str, Any] | None:
    nested = (_json(folder / "processor_config.json") or {}).get("image_processor")
    return nested if isinstance(nested, dict) else _json(folder / "preprocessor_config.json")


def _json(file: Path) -> dict[str, Any] | None:
    """Return the object in a file; None without the file.

    Raises:
        ConfigError: If it holds something else.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{str(file)!r} holds a {type(content).__name__}, wanted an object")
    return content
