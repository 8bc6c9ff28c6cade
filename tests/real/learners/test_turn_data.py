"""Selection where workers gave no entropies: it is shown the learner's own, and those of workers where there are."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.config.sections.trainer import ADVANTAGE  # noqa: E402
from dartsim.core.types import Batch  # noqa: E402
from dartsim.real.learners.gradient_steps import TINY, GradientSteps  # noqa: E402
from dartsim.real.learners.torch_learner import TorchLearner  # noqa: E402
from dartsim.real.learners.turn_data import lacks_entropies, read_turns, with_selection  # noqa: E402
from dartsim.real.vlm import VlmPolicy  # noqa: E402
from dartsim.real.vlm.images import Pictures  # noqa: E402
from dartsim.real.vlm.packing import PackedRow, split  # noqa: E402


def blind(batch: Batch, indices: set[int]) -> Batch:
    """Return a batch whose rewards differ, and in which some attempts of each group have no entropies."""

    def changed(t):
        turns = t.turns
        if t.attempt.index in indices:
            turns = tuple(turn._replace(reply=turn.reply._replace(entropies=None)) for turn in turns)
        return replace(t, turns=turns, reward=float(t.attempt.index % 2))

    groups = [replace(g, trajectories=tuple(map(changed, g.trajectories))) for g in batch.groups]
    return replace(batch, groups=tuple(groups))


def test_the_learners_entropies_stand_in_for_missing_ones(make_vlm, play_batch):
    vlm = make_vlm()
    batch = play_batch(VlmPolicy(make_vlm()))
    part = blind(batch, {1, 2})
    assert lacks_entropies(part)
    assert not lacks_entropies(blind(batch, set()))
    shown: list[Batch] = []

    def select(given: Batch) -> list[bool]:
        shown.append(given)
        return [n % 2 == 0 for n in range(given.num_turns)]

    learner = TorchLearner(vlm, TINY, select=select)
    assert learner.train(part).metrics["objective/masked_share"] == 0.5
    (given,) = shown
    pairs = zip(given.trajectories, batch.trajectories, strict=True)
    for mine, theirs in pairs:
        own, known = mine.turns[0].reply.entropies, theirs.turns[0].reply.entropies
        np.testing.assert_allclose(own, known, atol=1e-4)  # equal weights: the worker would have said the same
        assert (own is known) == (mine.attempt.index not in {1, 2})


def test_turns_that_cannot_be_written_keep_their_place_in_the_selection(make_vlm, play_batch):
    vlm = make_vlm()
    batch = blind(play_batch(VlmPolicy(make_vlm())), {0, 1, 2, 3})

    def foreign(t):
        if t.attempt.index:
            return t
        reply = t.turns[0].reply._replace(tokens=None, logprobs=None, action="pyautogui.click(1, 2)")
        return replace(t, turns=(t.turns[0]._replace(reply=reply),))

    groups = tuple(replace(g, trajectories=tuple(map(foreign, g.trajectories))) for g in batch.groups)
    batch = replace(batch, groups=groups)
    data = read_turns(batch, vlm, ADVANTAGE())
    assert data.unwritable == 4
    assert data.number.tolist() == [n for n in range(16) if n % 4]
    _, entropy_BT = GradientSteps(vlm, TINY, seed=0).score(data)
    selected = with_selection(
        data, batch, lambda given: [n % 4 == 1 for n in range(given.num_turns)], entropy_BT
    ).selected
    assert selected is not None
    assert selected.tolist() == [n % 4 == 1 for n in data.number.tolist()]


def test_tokens_that_are_not_in_the_vocabulary_spoil_one_turn(make_vlm, play_batch):
    vlm = make_vlm()
    batch = play_batch(VlmPolicy(make_vlm()))
    group = batch.groups[0]
    first, size = group.trajectories[0], len(vlm.grammar.allowed)
    for wrong in (size, 2**31 - 1, -1):
        reply = first.turns[0].reply
        turn = first.turns[0]._replace(reply=reply._replace(tokens=np.full(len(reply.tokens), wrong)))
        spoiled = replace(first, turns=(turn, *first.turns[1:]))
        groups = (replace(group, trajectories=(spoiled, *group.trajectories[1:])), *batch.groups[1:])
        data = read_turns(replace(batch, groups=groups), vlm, ADVANTAGE())
        assert (data.unwritable, len(data.examples)) == (1, batch.num_turns - 1)


def test_rows_are_split_evenly_over_ranks_and_stay_in_order():
    rows = [PackedRow(n, [n], length) for n, length in enumerate((9, 1, 8, 2, 7, 3))]
    for limit, ranks, lengths in (
        (100, 1, [[9, 1, 8, 2, 7, 3]]),
        (100, 2, [[9, 1, 8], [2, 7, 3]]),
        (12, 1, [[9, 1], [8, 2], [7, 3]]),
        (12, 2, [[9], [1, 8], [2, 7], [3]]),
        (5, 1, [[9], [1], [8], [2], [7], [3]]),
    ):
        assert [[row.length for row in part] for part in split(rows, max_tokens=limit, ranks=ranks)] == lengths
    assert [len(part) for part in split(rows[:1], max_tokens=5, ranks=3)] == [1]


def test_a_screenshot_of_several_prompts_is_held_once(make_vlm, play_batch):
    """However few pictures are cached: five of 1080p in each prompt would be 60 MB a turn."""
    vlm = make_vlm()
    batch = play_batch(VlmPolicy(make_vlm()))
    turns = tuple(group.trajectories[0].turns[0] for group in batch.groups)
    groups = [replace(g, trajectories=tuple(replace(t, turns=turns) for t in g.trajectories)) for g in batch.groups]
    vlm.prompts.pictures = Pictures(vlm.rules, max_bytes=1)
    data = read_turns(replace(batch, groups=tuple(groups)), vlm, ADVANTAGE())
    shown = [picture for example in data.examples for picture in example.prompt.pictures]
    assert len(shown) == 16 * (1 + 2 + 2 + 2)
    assert len({id(picture) for picture in shown}) == len({picture.key for picture in shown}) == len(turns)
