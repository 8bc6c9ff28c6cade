"""The simulated learner: how long an update takes, and when it fails."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import InvariantViolated
from dartsim.core.types import UpdateResult, Weights
from dartsim.sim.learner import SimLearner, UpdateParts, UpdateTokens, VersionCounter
from dartsim.sim.prompts import PromptModel
from dartsim.testing.ports import check_learner, sample_batch, sample_trajectory

BATCH = sample_batch([sample_trajectory(0, num_turns=3), sample_trajectory(1, num_turns=7)], update=4)
PROMPTS = PromptModel(system_tokens=300, image_tokens=2_000, reply_tokens=100, turn_tokens=5)
FIRST, SECOND, REPLY = 2_300, 4_405, 100
TURNS = UpdateTokens(PROMPTS, packed=False)
TOKENS = TURNS.of(BATCH)


def learner(inner=None):
    return SimLearner(inner or VersionCounter(), TURNS, fixed_seconds=240.0, kilotoken_seconds=0.5)


def now():
    return asyncio.get_running_loop().time()


async def test_an_update_takes_a_fixed_time_and_a_time_for_its_tokens():
    result = await learner().update(BATCH)
    assert now() == 240.0 + 0.5 * TOKENS / 1000.0
    assert result.weights == Weights(4)
    assert result.metrics == {"update_seconds": now(), "computed_tokens": TOKENS}


async def test_what_is_learned_is_learned_when_the_time_has_passed():
    class Inner:
        async def update(self, batch):
            self.asked = (now(), batch)
            return UpdateResult(Weights(batch.update, "weights"), {"loss": 0.5})

    inner = Inner()
    result = await learner(inner).update(BATCH)
    assert inner.asked == (240.0 + 0.5 * TOKENS / 1000.0, BATCH)
    assert (result.weights, result.metrics["loss"]) == (Weights(4, "weights"), 0.5)


def test_first_prompts_of_a_group_are_computed_once_where_they_are_sequences_of_their_own():
    def tokens(lengths, packed):
        return UpdateTokens(PROMPTS, packed=packed).of_group(lengths)

    assert tokens([1], packed=False) == FIRST + REPLY
    assert tokens([1, 1, 1], packed=False) == tokens([1, 1, 1], packed=True) == FIRST + 3 * REPLY
    assert tokens([2, 2], packed=False) == FIRST + 2 * SECOND + 4 * REPLY
    assert tokens([2, 2], packed=True) == 2 * (SECOND + REPLY), "the first prompt begins both sequences"
    assert tokens([], packed=True) == 0


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 6), st.integers(1, 6), st.integers(0, 9))
def test_packed_sequences_have_every_turn_once_and_never_more_tokens(lengths, most, cut, texts):
    model = PromptModel(max_images=most, images_after_cut=min(cut, most), max_texts=texts)
    for length in lengths:
        packed, alone = (model.training_sequences(length, packed=packed) for packed in (True, False))
        assert sum(each.turns for each in packed) == len(alone) == length
        assert {each.tokens for each in packed} <= {each.tokens for each in alone}
    apart = UpdateTokens(model, packed=False)
    assert UpdateTokens(model, packed=True).of_group(lengths) <= sum(apart.of_group([length]) for length in lengths)


async def test_the_simulated_learner_conforms():
    await check_learner(learner())
    await check_learner(VersionCounter())


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "returned None"),
        (UpdateResult(Weights(2)), "update 1 made version 2"),
        (UpdateResult(Weights(1), {"loss": "high"}), "the metric loss is 'high'"),
    ],
)
async def test_a_learner_that_answers_something_else_does_not_conform(result, message):
    class Wrong:
        async def update(self, batch):
            return result

    with pytest.raises(InvariantViolated, match=message):
        await check_learner(Wrong())


LENGTHS = st.lists(st.integers(1, 4_000), min_size=1, max_size=24)


def parts(ranks, **changes):
    costs = {"step_seconds": 2.0, "micro_seconds": 0.5, "token_seconds": 1e-3, "pair_seconds": 1e-7}
    return UpdateParts(ranks=ranks, **costs | changes)


def test_ranks_share_sequences_and_wait_for_the_slowest():
    alone = {"step_seconds": 0.0, "micro_seconds": 0.0, "pair_seconds": 0.0}
    assert parts(2, **alone).seconds([3_000, 2_000, 1_000]) == 3.0
    assert parts(2, **alone).seconds([3_000, 1_000]) == 3.0, "the other rank idles"
    assert parts(2, **alone, minibatches=2).seconds([3_000, 1_000, 1_000, 1_000]) == 4.0
    computing = 3.0 + 0.15
    assert parts(1, max_tokens=2_000).seconds([1_000] * 3) == pytest.approx(2.0 + computing, abs=0.001)
    slow = parts(1, max_tokens=2_000, micro_seconds=4.0)
    assert slow.seconds([1_000] * 3) == pytest.approx(2.0 + 2 * 4.0), "weights are gathered while it computes"


def test_updates_are_balanced_and_their_steps_only_if_parts_are():
    alone = {"step_seconds": 0.0, "micro_seconds": 0.0, "pair_seconds": 0.0, "minibatches": 2}
    lengths = [3_000, 1_000, 1_000, 3_000]
    assert parts(2, **alone).seconds(lengths) == 6.0, "each rank has 4,000 tokens, and the other one 3,000 of a step"
    assert parts(1, **alone).seconds(lengths) == 8.0
    assert parts(2, gpus=4, **alone).seconds(lengths * 2) == 8.0, "each GPU's part has 4,000, and is a step"


@given(LENGTHS, st.integers(1, 4), st.integers(1, 4))
def test_a_copied_sequence_takes_what_its_copies_take(lengths, ranks, copies):
    every = [length for length in lengths for _ in range(copies)]
    assert parts(ranks, copies=copies).seconds(lengths) == parts(ranks).seconds(every)


def test_a_pipeline_is_idle_while_it_fills_and_the_less_the_more_micro_batches():
    alone = {"step_seconds": 0.0, "micro_seconds": 0.0, "pair_seconds": 0.0, "stages": 4}
    assert parts(1, **alone, max_tokens=1_000).seconds([1_000] * 3) == pytest.approx(3.0 * (1.0 + 3.0 / 3.0))
    assert parts(1, **alone, max_tokens=1_000).seconds([1_000] * 6) == pytest.approx(6.0 * (1.0 + 3.0 / 6.0))


@given(LENGTHS, st.integers(1, 8), st.integers(1, 4))
def test_more_parts_take_no_less_time_and_one_rank_no_less_than_many(lengths, ranks, minibatches):
    many, one = parts(ranks, minibatches=minibatches), parts(1, minibatches=minibatches)
    assert many.seconds(lengths) <= one.seconds(lengths) + 1e-9
    assert one.seconds(lengths) >= parts(1).seconds(lengths) - 1e-9


async def test_an_update_by_parts_counts_the_real_lengths():
    whole = parts(1, max_tokens=10**9)
    timed = SimLearner(VersionCounter(), TURNS, fixed_seconds=7.0, kilotoken_seconds=1e9, parts=whole)
    replies = [[turn.reply for turn in each.turns] for each in BATCH.groups[0].trajectories]
    lengths = [first.prompt_tokens + sum(r.response_tokens for r in (first, *more)) for first, *more in replies]
    await timed.update(BATCH)
    assert now() == pytest.approx(7.0 + whole.seconds(lengths))
