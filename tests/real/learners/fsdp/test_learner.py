"""One rank is the single process to the last bit; two differ by rounding; deaths, resumption, export.

Tolerance of two ranks: partial sums of a gradient are added in another order, which moves it by some 1e-7 of its
length. AdamW divides a gradient by its own size (plus 1e-8), so a weight whose gradient is near 0 can move by part of
a step: the largest difference of all weights is held to 1/20 of a step (measured: 1/800 here, 1/80 with screens
of several sizes), their mean difference, which those weights do not decide, to 1/10,000 of one.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402

from dartsim.core.errors import LearnerFault  # noqa: E402
from dartsim.core.types import Batch, Request  # noqa: E402
from dartsim.curation.rules.selection import HighEntropyTurns  # noqa: E402
from dartsim.real.learners.torch_learner import TorchLearner  # noqa: E402
from dartsim.real.vlm import VlmPolicy, build  # noqa: E402
from dartsim.testing import ports as checks  # noqa: E402

pytestmark = pytest.mark.anyio

STEP = 7e-4
TOLERANCE = STEP / 20


def weights(learner) -> dict[str, Any]:
    """Return weights by the names of checkpoints."""
    source = learner.weights().source
    if isinstance(source, Path):
        return dict(load_file(source / "model.safetensors"))
    newer = {"model.language_model.": "model.", "model.visual.": "visual."}
    for new, old in newer.items():
        source = {name.replace(new, old): tensor for name, tensor in source.items()}
    return dict(source)


def apart(one, other, *, mean: bool = False) -> float:
    """Return the largest difference of two learners' weights, or the mean."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    gaps = torch.cat([(first[name] - second[name]).abs().flatten() for name in first])
    return float(gaps.mean() if mean else gaps.max())


def train(learner, batches: list[Batch]) -> list[dict[str, float]]:
    return [dict(learner.train(batch).metrics) for batch in batches]


@pytest.fixture
def single(make_vlm, config) -> Callable[[], TorchLearner]:
    return lambda: TorchLearner(make_vlm(), config, seed=5)


def test_one_rank_is_the_single_process_to_the_last_bit(learner_of, single, batches):
    learner, alone = learner_of(1), single()
    for batch in batches[:2]:
        found, wanted = dict(learner.train(batch).metrics), dict(alone.train(batch).metrics)
        assert found.pop("learner/ranks") == 1.0
        assert found == wanted
    assert apart(learner, alone) == 0.0


def test_two_ranks_differ_from_the_single_process_by_rounding(learner_of, single, batches):
    learner, alone = learner_of(2), single()
    for batch in batches[:2]:
        found, wanted = learner.train(batch).metrics, alone.train(batch).metrics
        assert found["learner/loss"] == pytest.approx(wanted["learner/loss"], rel=1e-5, abs=1e-6)
        assert found["learner/grad_norm"] == pytest.approx(wanted["learner/grad_norm"], rel=1e-5)
        assert found["learner/turns"] == wanted["learner/turns"] == 12.0
        assert found["objective/entropy"] == pytest.approx(wanted["objective/entropy"], rel=1e-5)
        for name in ("importance/mismatch_mean", "importance/mismatch_max"):
            assert found[name] == pytest.approx(wanted[name], rel=1e-5, abs=1e-6)
        assert (
            found["learner/mismatch_tokens"]
            == wanted["learner/mismatch_tokens"]
            == (12.0 if batch.update == 1 else 0.0)
        )
    assert 0.0 < apart(learner, alone) < TOLERANCE
    assert apart(learner, alone, mean=True) < STEP / 10_000


def test_two_ranks_share_out_the_rows_of_long_attempts(learner_of, single, make_vlm, long_batch):
    learner, alone = learner_of(2), single()
    batch = long_batch(make_vlm(), "click 0 0", "click 1 0", "click 1 1")
    found, wanted = learner.train(batch).metrics, alone.train(batch).metrics
    assert found["learner/computed_tokens"] < found["learner/turn_tokens"]
    for name in ("learner/loss", "learner/grad_norm", "learner/turns", "objective/entropy", "importance/mismatch_mean"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-5, abs=1e-6)
    assert apart(learner, alone) < TOLERANCE
    assert apart(learner, alone, mean=True) < STEP / 10_000


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_checkpoint_goes_on_with_another_number_of_ranks(learner_of, batches, tmp_path, before, after):
    straight = learner_of(before)
    train(straight, batches[:2])
    straight.save(tmp_path / "checkpoint")
    resumed = learner_of(after)
    resumed.load(tmp_path / "checkpoint")
    assert resumed.updates == resumed.weights().version == 2
    assert apart(straight, resumed) == 0.0  # nothing is rounded on the way
    train(straight, batches[2:])
    train(resumed, batches[2:])
    assert apart(straight, resumed) < TOLERANCE


def test_a_checkpoint_goes_on_exactly_also_that_of_one_process(learner_of, single, config, batches, tmp_path):
    alone = single()
    train(alone, batches[:2])
    alone.save(tmp_path / "single")
    learner = learner_of(1)
    learner.load(tmp_path / "single")
    train(learner, batches[2:3])
    learner.save(tmp_path / "ranks")
    learner.load(tmp_path / "ranks")
    train(learner, batches[3:])
    train(alone, batches[2:])
    assert apart(learner, alone) == 0.0
    alone.load(tmp_path / "ranks")
    assert alone.updates == 3
    train(alone, batches[3:])
    assert apart(learner, alone) == 0.0
    with pytest.raises(ValueError, match="seed 5, this learner 6"):
        type(learner)(None, tmp_path, tmp_path / "other", config, seed=6).load(tmp_path / "ranks")


@pytest.mark.slow
def test_a_rank_that_dies_costs_its_update_only(learner_of, batches, tmp_path):
    learner = learner_of(2)
    train(learner, batches[:2])
    wanted = weights(learner)
    learner.save(tmp_path / "checkpoint")
    victim = learner.group.pids[1]
    os.kill(victim, signal.SIGSTOP)  # the update hangs in the middle, where it waits for the others
    threading.Timer(0.5, os.kill, (victim, signal.SIGKILL)).start()
    with pytest.raises(LearnerFault, match="rank"):
        learner.train(batches[2])
    assert learner.updates == 2
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in weights(learner).items())

    assert learner.train(batches[2]).weights.version == 3  # started again
    assert victim not in learner.group.pids
    survived = weights(learner)
    learner.load(tmp_path / "checkpoint")
    learner.train(batches[2])
    assert all(torch.equal(tensor, survived[name]) for name, tensor in weights(learner).items())


def test_a_learner_keeps_what_the_port_promises(learner_of, batches):
    asyncio.run(checks.check_learner(learner_of(2), batches[0]))


def test_an_update_that_is_not_finite_changes_nothing(learner_of, batches):
    learner = learner_of(2)
    train(learner, batches[:1])
    wanted, pids = weights(learner), learner.group.pids
    group = batches[1].groups[0]
    bad = replace(group, trajectories=tuple(replace(t, reward=1e300 * t.attempt.index) for t in group.trajectories))
    with pytest.raises(LearnerFault, match="not finite"):
        learner.train(replace(batches[1], groups=(bad,)))
    with pytest.raises(LearnerFault, match="no turn to train on"):
        learner.train(replace(batches[1], groups=()))
    assert learner.updates == 1
    assert learner.group.pids == pids
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in weights(learner).items())
    learner.train(batches[1])


def test_its_weights_are_a_model_folder(learner_of, make_vlm, batches, tmp_path):
    learner = learner_of(1)
    published = learner.train(batches[0]).weights
    learner.save_model(tmp_path / "model")
    config = make_vlm().config
    model = build(replace(config, folder=str(tmp_path / "model")))
    policy = VlmPolicy(make_vlm())
    policy.add(published)
    shown = batches[0].trajectories[0]
    request = Request(shown.attempt, 0, shown.turns[0].observation, [])
    (reply,) = policy.compute([request], 1)
    (same,) = VlmPolicy(model).compute([request], 0)
    assert reply.logprobs.tolist() == same.logprobs.tolist()
    (before,) = policy.compute([request], 0)
    assert reply.logprobs.tolist() != before.logprobs.tolist()


def test_turns_without_entropies_are_selected_by_the_learners_own(learner_of, single, batches, monkeypatch):
    rule = HighEntropyTurns(HighEntropyTurns.Parameters(share=0.5))

    def select(batch: Batch) -> list[bool]:
        return [flag for group in batch.groups for kept in rule.select(group) for flag in kept]

    def blind(batch: Batch) -> Batch:
        def without(t):
            return replace(t, turns=tuple(turn._replace(reply=turn.reply._replace(entropies=None)) for turn in t.turns))

        groups = [replace(g, trajectories=tuple(map(without, g.trajectories))) for g in batch.groups]
        return replace(batch, groups=tuple(groups))

    alone, learner = single(), learner_of(2)
    for each in (alone, learner):
        monkeypatch.setattr(each, "_select", select)
        assert train(each, [blind(batches[0])])[0]["objective/masked_share"] == 0.5
    # Adam's first step turns a gradient of next to nothing into a whole step, of either sign.
    assert apart(learner, alone) < STEP
    assert apart(learner, alone, mean=True) < STEP / 10_000


def test_stored_successes_are_scored_by_the_ranks(learner_of, batches):
    """With the first weights, which sampled this batch: ranks find the log-probabilities it was sampled with."""

    def bare(turn):
        return turn._replace(reply=turn.reply._replace(logprobs=None, entropies=None))

    wanted = batches[0].trajectories[:2]
    given = [replace(t, turns=tuple(map(bare, t.turns))) for t in wanted]
    found = learner_of(1).score(given)
    assert len(found) == 2
    for one, other in zip(found, wanted, strict=True):
        for turn, sampled in zip(one.turns, other.turns, strict=True):
            assert turn.reply.logprobs == pytest.approx(sampled.reply.logprobs, abs=1e-4)
            assert turn.reply.entropies == pytest.approx(sampled.reply.entropies, abs=1e-4)


async def test_a_cancelled_update_ends_the_ranks_and_changes_nothing(learner_of, batches):
    learner = learner_of(1)
    train(learner, batches[:1])
    wanted, pid = weights(learner), learner.group.pids[0]

    os.kill(pid, signal.SIGSTOP)
    update = asyncio.ensure_future(learner.update(batches[1]))
    await asyncio.sleep(0.3)
    update.cancel()
    with pytest.raises(asyncio.CancelledError):
        await update
    assert learner.updates == 1
    assert not learner.group.running
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in weights(learner).items())
