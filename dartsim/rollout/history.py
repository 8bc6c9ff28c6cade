"""Which screenshots and replies a prompt contains: rules shared by real prompts and their timing model."""

from __future__ import annotations


def num_images(turn: int, *, max_images: int, after_cut: int | None = None) -> int:
    """Return how many screenshots the prompt of a turn contains, the current one included.

    Args:
        turn: Counted from 0.
        max_images: Maximum number of screenshots (DART: 5).
        after_cut: None: the oldest is dropped at every turn beyond ``max_images`` (DART), which changes the prompt from
            its first image on and makes a prefix cache useless. Otherwise screenshots grow to ``max_images``, and then
            all but the ``after_cut`` newest are dropped at once, so the prefix stays the same for
            ``max_images - after_cut`` turns.

    Raises:
        ValueError: If ``after_cut`` is not in 1 .. ``max_images``.
    """
    if after_cut is not None and not 1 <= after_cut <= max_images:
        raise ValueError(f"images after a cut must be in [1, {max_images}], got {after_cut}")
    if turn < max_images:
        return turn + 1
    if after_cut is None:
        return max_images
    return after_cut + (turn - max_images) % (max_images - after_cut + 1)


def first_reply(turn: int, *, max_images: int, max_texts: int, after_cut: int | None = None) -> int:
    """Return the first turn whose reply the prompt of a turn contains; ``turn`` or more means none.

    Args:
        turn: Counted from 0.
        max_images: See ``num_images``.
        max_texts: Maximum number of replies in a prompt.
        after_cut: See ``num_images``. None: the oldest reply is dropped at every turn beyond ``max_texts``. Otherwise
            replies are dropped together with screenshots, leaving room for the replies until the next cut. So until
            then, every prompt with its reply is a prefix of the next one.
    """
    if after_cut is None:
        return max(0, turn - max_texts)
    until_cut = max_images - num_images(turn, max_images=max_images, after_cut=after_cut)
    return max(0, turn + until_cut - max_texts)
