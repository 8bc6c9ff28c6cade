from __future__ import annotations

import io
import struct

import pytest

from dartsim.real.desktop.server.frame import encode_png, read_layout


def header(**changed: int) -> bytes:
    numbers = [160, 7, 2, 24, 320, 240, 0, 0, 32, 0, 32, 32, 1280, 4, 0, 0, 0, 8, 256, 256, 320, 240, 0, 0, 0]
    for place, value in changed.items():
        numbers[int(place.removeprefix("at"))] = value
    return struct.pack(">25I", *numbers)


def test_the_layout_is_read_from_the_header() -> None:
    layout = read_layout(header())
    assert (layout.width, layout.height) == (320, 240)
    assert layout.offset == 160 + 12 * 256
    assert layout.num_bytes == 1280 * 240


@pytest.mark.parametrize("changed", [{"at1": 6}, {"at7": 1}, {"at11": 16}])
def test_another_kind_of_framebuffer_is_refused(changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="wanted 7, 0, 32"):
        read_layout(header(**changed))


def test_half_a_header_is_refused() -> None:
    with pytest.raises(ValueError, match="has 50 bytes"):
        read_layout(header()[:50])


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (320, 240)])
def test_a_png_holds_the_pixels(size: tuple[int, int]) -> None:
    image_module = pytest.importorskip("PIL.Image")
    pixels = bytes(number * 7 % 256 for number in range(3 * size[0] * size[1]))
    image = image_module.frombytes("RGB", size, pixels)
    with image_module.open(io.BytesIO(encode_png(image))) as back:
        back.load()
        assert back.mode == "RGB"
        assert back.size == size
        assert back.tobytes() == pixels
