"""Lets the only published torchvision, a CUDA build, be imported with a CPU build of torch.

This folder is on the path of engines on CPU. vLLM imports torchvision for image transforms, which are plain torch code.
Its compiled operators do not load on CPU, and the import then fails because it registers shapes for them, unless their
schemas are declared first. If the compiled operators load, nothing is declared.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(name)
            if spec is not None and spec.origin is not None:
                _declare(Path(spec.origin).parent)
        return None


def _declare(package: Path) -> None:
    """Declare the operators unless the compiled ones load."""
    import torch

    for file in package.glob("_C*.so"):
        try:
            torch.ops.load_library(str(file))  # type: ignore[no-untyped-call]
        except OSError:
            continue
        return
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]
    _DECLARED.append(library)  # an operator lives as long as its library


_DECLARED: list[object] = []

sys.meta_path.insert(0, _BeforeTorchvision())
