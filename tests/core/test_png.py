"""PNG files: what is written is read back, by anyone, and nothing else passes for one."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from dartsim.core.png import decode_png, encode_png


def picture(seed=0, height=5, width=7):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_a_picture_survives_its_file(pixels):
    assert np.array_equal(decode_png(encode_png(pixels)), pixels)


def test_other_readers_see_the_same_picture(tmp_path):
    (tmp_path / "a.png").write_bytes(encode_png(picture()))
    with Image.open(tmp_path / "a.png") as found:
        assert np.array_equal(np.asarray(found), picture())


@given(st.data())
def test_a_file_with_any_byte_changed_or_missing_is_none(data):
    good = encode_png(picture())
    at = data.draw(st.integers(0, len(good) - 1))
    if data.draw(st.booleans()):
        bad = good[:at]
    else:
        bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    with pytest.raises(ValueError, match=r"found|ends|chunk"):
        decode_png(bad)


def test_a_small_file_cannot_ask_for_much_memory():
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 2**20, 2**20, 8, 2, 0, 0, 0)
    bomb = encode_png(picture())[:8] + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(ValueError, match="pixels, wanted 1 to"):
        decode_png(bomb)
