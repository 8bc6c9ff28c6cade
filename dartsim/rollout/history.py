"""How many screenshots of an attempt its next prompt shows: the one rule that prompts and their model share."""

from __future__ import annotations


def num_images(turn: int, *, most: int, after_cut: int | None = None) -> int:
    """Return how many screenshots the prompt of a turn holds, the present one included.

    Args:
        turn: From 0.
        most: Most of them (DART: 5).
        after_cut: None: the oldest goes at every turn beyond ``most`` (DART), which changes the prompt from its first
            image on, so that a prefix cache has nothing of it. Otherwise they grow to ``most``, and then all but the
            ``after_cut`` newest go at once: the prefix stays the same for ``most - after_cut`` turns.

    Raises:
        ValueError: If ``after_cut`` is not in 1 .. ``most``.
    """
    if after_cut is not None and not 1 <= after_cut <= most:
        raise ValueError(f"images after a cut must be in [1, {most}], got {after_cut}")
    if turn < most:
        return turn + 1
    if after_cut is None:
        return most
    return after_cut + (turn - most) % (most - after_cut + 1)
