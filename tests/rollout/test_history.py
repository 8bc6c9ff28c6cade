"""How many screenshots a prompt holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.rollout.history import num_images


@given(turn=st.integers(0, 200), most=st.integers(1, 9), data=st.data())
def test_there_are_never_more_than_were_seen_or_allowed_nor_fewer_than_stay(turn, most, data):
    after_cut = data.draw(st.none() | st.integers(1, most))
    shown = num_images(turn, max_images=most, after_cut=after_cut)
    assert 1 <= shown <= min(most, turn + 1)
    assert shown >= min(turn + 1, most if after_cut is None else after_cut)
    if turn and shown > num_images(turn - 1, max_images=most, after_cut=after_cut):
        assert shown == num_images(turn - 1, max_images=most, after_cut=after_cut) + 1, "one is new"


def test_to_cut_to_the_most_is_to_slide():
    for turn in range(9):
        assert num_images(turn, max_images=3, after_cut=3) == num_images(turn, max_images=3)


@pytest.mark.parametrize("after_cut", [0, 6])
def test_a_cut_leaves_something_and_takes_something(after_cut):
    with pytest.raises(ValueError, match=r"in \[1, 5\]"):
        num_images(9, max_images=5, after_cut=after_cut)
