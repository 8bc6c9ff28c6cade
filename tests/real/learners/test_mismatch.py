"""The disagreement of worker and learner: measured at equal weights only, added up, and an alarm above a bound."""

import logging
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.types import Batch  # noqa: E402
from dartsim.real.learners.gradient_steps import TINY  # noqa: E402
from dartsim.real.learners.mismatch import Mismatch  # noqa: E402
from dartsim.real.learners.torch_learner import TorchLearner  # noqa: E402
from dartsim.real.vlm import VlmPolicy  # noqa: E402


def off_by(batch: Batch, nats: float) -> Batch:
    """Return a batch whose workers report other log-probabilities, and whose rewards differ."""

    def moved(t):
        turns = tuple(turn._replace(reply=turn.reply._replace(logprobs=turn.reply.logprobs + nats)) for turn in t.turns)
        return replace(t, turns=turns, reward=float(t.attempt.index % 2))

    groups = [replace(g, trajectories=tuple(map(moved, g.trajectories))) for g in batch.groups]
    return replace(batch, groups=tuple(groups))


def test_only_known_tokens_of_fresh_turns_are_compared_and_parts_add_up():
    old = torch.tensor([[-1.0, -2.0], [-1.0, -1.0], [-3.0, 0.0]])
    worker = torch.tensor([[-1.5, -2.0], [-9.0, -9.0], [float("nan"), 5.0]])
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    fresh = torch.tensor([True, False, True])
    whole = Mismatch.of(old, worker, mask, fresh)
    assert whole == Mismatch(0.5, 2.0, 0.5)
    parts = [Mismatch.of(old[rows], worker[rows], mask[rows], fresh[rows]) for rows in ([0], [1, 2])]
    assert parts[0] + parts[1] == whole
    assert whole.metrics(0.2)["learner/mismatch_alarm"] == 1.0
    assert whole.metrics(0.3)["learner/mismatch_alarm"] == whole.metrics(None)["learner/mismatch_alarm"] == 0.0
    assert Mismatch().metrics(0.1) == {"learner/mismatch_tokens": 0.0, "learner/mismatch_alarm": 0.0}


def test_an_update_measures_it_and_logs_the_alarm(make_vlm, play_batch, caplog):
    batch = play_batch(VlmPolicy(make_vlm()))
    config = TINY.replace(mismatch_bound=0.01)
    agreed = TorchLearner(make_vlm(), config).train(off_by(batch, 0.0)).metrics
    assert agreed["learner/mismatch_max"] < 1e-4
    assert agreed["learner/mismatch_tokens"] == 16.0
    assert agreed["learner/mismatch_alarm"] == 0.0
    with caplog.at_level(logging.WARNING, "dartsim.real.learners.mismatch"):
        apart = TorchLearner(make_vlm(), config).train(off_by(batch, 0.1)).metrics
    assert apart["learner/mismatch_mean"] == pytest.approx(0.1, abs=1e-4)
    assert apart["learner/mismatch_alarm"] == 1.0
    assert caplog.records
    stale = TorchLearner(make_vlm(), config).train(replace(off_by(batch, 0.1), version=3)).metrics
    assert "learner/mismatch_mean" not in stale
    assert stale["learner/mismatch_alarm"] == 0.0
