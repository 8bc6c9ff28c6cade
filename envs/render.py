"""An episode as a GIF, with each action drawn on its screen. Needs pillow, which is imported when a file is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dartsim.envs.actions import make_grammar
from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import ActionGrammar, MalformedAction
from dartsim.envs.mock.font import text_mask

if TYPE_CHECKING:
    from PIL.Image import Image

Frame = NDArray[np.uint8]

RING, HALO = (255, 0, 90), (255, 255, 255)
"""Color of marks, and of their edge, which keeps them visible on red."""
CAPTION_INK = (255, 255, 255)
CAPTION_PAPER = (28, 28, 34)
MIN_SHOWN = 224
"""Smaller frames are enlarged by an integer factor to about this many pixels."""
FRAME_SECONDS = 0.8


def draw_action(frame: Frame, action: str, *, grammar: str | ActionGrammar = "pyautogui") -> Image:
    """Return a frame with an action drawn on it and its text below.

    A click is a ring with a dot, a drag a line between two rings, a scroll a ring.
    """
    height, width = frame.shape[:2]
    scale = max(1, MIN_SHOWN // max(height, width))
    shown = _picture(frame.repeat(scale, axis=0).repeat(scale, axis=1))
    reader = make_grammar(grammar, width, height) if isinstance(grammar, str) else grammar
    _mark(shown, _read(reader, action), scale)
    return _picture(np.concatenate([np.asarray(shown), _caption(action, shown.width)]))


def episode_gif(
    frames: Sequence[Frame],
    actions: Sequence[str],
    path: Path | str,
    *,
    grammar: str | ActionGrammar = "pyautogui",
) -> None:
    """Write an episode as an animated GIF.

    Args:
        frames: Screenshots, uint8 [height, width, 3]: one before each action, and perhaps one after the last.
        actions: The action on each.
        path: File to write.
        grammar: Of the actions.

    Raises:
        ValueError: If frames and actions do not fit together.
    """
    after = len(frames) - len(actions)
    if not frames or after not in (0, 1):
        raise ValueError(
            f"wanted a frame before each action and at most one after the last, got {len(frames)} frames and "
            f"{len(actions)} actions"
        )
    pictures = [
        draw_action(frame, action, grammar=grammar)
        for frame, action in zip(frames, [*actions, *[""] * after], strict=True)
    ]
    pictures[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=round(FRAME_SECONDS * 1000),
        loop=0,
    )


def _picture(frame: Frame) -> Image:
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(frame))


def _read(grammar: ActionGrammar, action: str) -> Sequence[act.Action]:
    try:
        return grammar.parse(action)
    except MalformedAction:
        return ()


def _mark(shown: Image, actions: Sequence[act.Action], scale: int) -> None:
    from PIL.ImageDraw import Draw

    pen = Draw(shown)
    radius = max(5, min(shown.size) // 28)
    at: tuple[int, int] | None = None

    def ring(center: tuple[int, int], radius: int) -> None:
        x, y = center
        for edge, width, color in ((2, 5, HALO), (1, 3, RING)):
            reach = radius + edge
            pen.ellipse((x - reach, y - reach, x + reach, y + reach), outline=color, width=width)

    for action in actions:
        match action:
            case act.Move(x, y):
                at = (x * scale, y * scale)
            case act.Click(int() as x, int() as y, _, count):
                at = (x * scale, y * scale)
                ring(at, radius)
                ring(at, 1)
                if count > 1:
                    ring(at, radius + 4)
            case act.Drag(x, y):
                to = (x * scale, y * scale)
                pen.line((at or to, to), fill=RING)
                ring(at or to, radius // 2)
                ring(to, radius)
                at = to
            case act.Scroll() | act.Down() | act.Up() | act.Click() if at is not None:
                ring(at, radius)


def _caption(text: Any, width: int) -> Frame:
    """Return a strip with a text of one line, cut to the width."""
    scale = max(1, width // 480)
    strip = np.empty((12 * scale, width, 3), dtype=np.uint8)
    strip[:] = CAPTION_PAPER
    fits = max(1, (width - 4 * scale) // (6 * scale))
    line = " ".join(str(text).split())
    line = line if len(line) <= fits else line[: max(0, fits - 2)] + ".."
    if line:
        mask = text_mask(line, scale)[:, : width - 4 * scale]
        strip[2 * scale : 10 * scale, 2 * scale : 2 * scale + mask.shape[1]][mask] = CAPTION_INK
    return strip
