"""What a prefix cache could find at most, and what took away the rest: by hand."""

import pytest

from dartsim.core.types import Attempt, Ending, Observation, Reply, Task, Trajectory, Turn
from dartsim.sim.prompts import PromptModel
from experiments.prefix_hits import FIGURES, PrefixHits

PROMPTS = PromptModel(
    system_tokens=32, image_tokens=64, reply_tokens=27, turn_tokens=5, max_images=2, images_after_cut=1, window="block"
)
"""Prompts of 96, 192, 160 and 256 tokens, of which a warm cache has 0, 112, 32 and 176."""


def attempt(*turns):
    """Each turn is (worker, oldest version, version, tokens found in the cache)."""
    replies = [
        Reply("WAIT", version, oldest, worker, PROMPTS.cold[number].tokens, 27, cached_tokens=cached)
        for number, (worker, oldest, version, cached) in enumerate(turns)
    ]
    made = Attempt(0, Task("t", ""), 0, 0, seed=0, turn_limit=9, version=0)
    turns = tuple(Turn(Observation(None, ""), reply) for reply in replies)
    return Trajectory(made, turns, Ending.DONE, 1.0, None, 0.0, 1.0)


@pytest.mark.parametrize(
    ("last", "reply", "lost"),
    [
        ((0, 0, 0), (0, 0, 0, 112), [0, 0, 0]),
        ((0, 0, 0), (1, 0, 0, 0), [112, 0, 0]),
        ((0, 0, 0), (1, 1, 1, 0), [112, 0, 0]),
        ((0, 0, 0), (0, 1, 1, 0), [0, 112, 0]),
        ((0, 0, 1), (0, 1, 1, 0), [0, 112, 0]),
        ((0, 0, 0), (0, 0, 1, 112), [0, 0, 0]),
        ((0, 0, 0), (0, 0, 0, 0), [0, 0, 112]),
        ((0, 0, 0), (0, 0, 0, None), [0, 0, 0]),
    ],
    ids=["found", "moved", "moved, and new", "new weights", "new under it", "kept", "forgotten", "not said"],
)
def test_what_was_not_found_has_one_cause(last, reply, lost):
    hits = PrefixHits(PROMPTS)
    hits.attempt_ended(attempt((*last, 0), reply))
    tokens = [112, *lost]
    assert hits.figures() == {name: number / (96 + 192) for name, number in zip(FIGURES, tokens, strict=True)}


def test_attempts_add_up_and_nothing_has_no_share():
    hits = PrefixHits(PROMPTS)
    assert set(hits.figures().values()) == {None}
    hits.attempt_ended(attempt())
    hits.attempt_ended(attempt((0, 0, 0, 0)))
    hits.attempt_ended(attempt((0, 0, 0, 0), (0, 0, 0, 112), (1, 0, 0, 0), (1, 2, 2, 0)))
    total = 96 + 96 + 192 + 160 + 256
    assert hits.figures() == dict(zip(FIGURES, [320 / total, 32 / total, 176 / total, 0.0], strict=True))
