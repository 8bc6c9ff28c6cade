"""Colors: named ones, which instructions use, and those of the desktop itself."""

from __future__ import annotations

Color = tuple[int, int, int]

NAMED: dict[str, Color] = {
    "red": (220, 50, 50),
    "green": (50, 165, 70),
    "blue": (50, 95, 220),
    "yellow": (240, 205, 50),
    "orange": (245, 140, 30),
    "purple": (140, 65, 175),
    "cyan": (60, 195, 215),
    "pink": (245, 140, 185),
    "brown": (130, 85, 45),
    "black": (35, 35, 35),
    "white": (252, 252, 252),
    "gray": (150, 150, 150),
}

INK = (25, 25, 30)
PAPER = (255, 255, 255)
FACE = (225, 226, 230)
WINDOW = (242, 242, 245)
EDGE = (105, 108, 118)
ACCENT = (45, 105, 205)
SELECTION = (170, 200, 250)
TITLE = (70, 84, 110)
TITLE_BEHIND = (130, 138, 152)
CLOSE = (200, 75, 75)


def color_of(name: str) -> Color:
    """Return a color by its name.

    Raises:
        ValueError: If no color has this name.
    """
    if name not in NAMED:
        raise ValueError(f"found the color {name!r}, wanted one of {', '.join(NAMED)}")
    return NAMED[name]


def ink_on(color: Color) -> Color:
    """Return the color, dark or light, of readable text on a background."""
    red, green, blue = color
    return INK if 299 * red + 587 * green + 114 * blue > 140_000 else PAPER
