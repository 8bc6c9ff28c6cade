"""``PackedRows`` keeps what a deque of tuples would."""

from __future__ import annotations

from collections import deque
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.observe.packed_rows import PackedRows

ROW = st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 255), st.floats(allow_nan=False), st.floats(0.0, 1e9))


@given(st.integers(1, 12), st.lists(ROW, max_size=40), st.integers(0, 40))
def test_it_keeps_the_newest_rows(maxlen, rows, written):
    kept, packed = deque(rows, maxlen=maxlen), PackedRows("iidd", maxlen)
    for number, row in enumerate(rows):
        if number % 2:
            packed.append(row)
        else:
            packed.pack(packed.buffer, packed.place(), *row)
    assert list(packed) == list(kept)
    assert (len(packed), packed.total) == (len(kept), len(rows))
    newer = rows[max(written, len(rows) - maxlen) :]
    assert packed.packed_since(written) == b"".join(pack("iidd", *row) for row in newer)


def test_rows_may_be_added_while_it_is_read():
    packed = PackedRows("q", 4)
    packed.extend([(1,), (2,), (3,)])
    reading = iter(packed)
    packed.extend([(4,), (5,), (6,)])
    assert list(reading) == [(1,), (2,), (3,)]


def test_it_keeps_at_least_one_row():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        PackedRows("q", 0)
