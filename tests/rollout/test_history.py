"""How many screenshots and which replies a prompt holds."""

from hypothesis import given
from hypothesis import strategies as st

from dartsim.rollout.history import first_reply, num_images


@given(turn=st.integers(0, 200), most=st.integers(1, 9), data=st.data())
def test_there_are_never_more_than_were_seen_or_allowed_nor_fewer_than_stay(turn, most, data):
    after_cut = data.draw(st.none() | st.integers(1, most))
    shown = num_images(turn, max_images=most, after_cut=after_cut)
    assert 1 <= shown <= min(most, turn + 1)
    assert shown >= min(turn + 1, most if after_cut is None else after_cut)
    if turn and shown > num_images(turn - 1, max_images=most, after_cut=after_cut):
        assert shown == num_images(turn - 1, max_images=most, after_cut=after_cut) + 1, "one is new"


@given(turn=st.integers(0, 60), images=st.integers(1, 6), texts=st.integers(0, 12), data=st.data())
def test_replies_are_dropped_when_screenshots_are(turn, images, texts, data):
    rule = {"max_images": images, "after_cut": data.draw(st.none() | st.integers(1, images))}
    first, following = (first_reply(at, max_texts=texts, **rule) for at in (turn, turn + 1))
    assert 0 <= first <= following
    assert turn - min(first, turn) <= texts
    grows = num_images(turn + 1, **rule) > num_images(turn, **rule)
    if rule["after_cut"] is None:
        assert turn - first == min(turn, texts)
    elif grows:
        assert first == following, "the prompt and its reply begin the next prompt"
    if texts >= images - 1:
        assert first <= turn + 1 - num_images(turn, **rule), "a shown screenshot has its reply"
