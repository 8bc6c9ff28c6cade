"""A learner that is judged: better weights are promoted, a collapse is rolled back, and versions never go back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.trainer import PromotionConfig
from dartsim.core.errors import LearnerFault, UpdateUncertain
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.observe import Recorder
from dartsim.sim import run_virtual
from dartsim.trainer import Trainer
from dartsim.trainer.promoted import PromotedLearner
from dartsim.trainer.promotion import HeldOutRewards, Promotions, Verdict

TASKS = 24


class Scripted:
    """A learner whose weights are one number, its skill, which each update changes by what the script says.

    ``momentum`` stands for the optimizer's state: the last change.
    """

    def __init__(self, *changes: float, skill: float = 0.2):
        self.changes = list(changes)
        self.skill = skill
        self.momentum = 0.0
        self.updates = 0
        self.kept = None

    async def update(self, batch):
        change = self.changes[self.updates] if self.updates < len(self.changes) else 0.0
        if change is None:
            self.changes[self.updates] = 0.0
            raise LearnerFault("scripted")
        self.momentum = change
        self.skill += change
        self.updates = batch.update
        return UpdateResult(self.weights(), {"learner/loss": 1.0})

    def weights(self):
        return Weights(self.updates, (self.skill, self.momentum))

    def keep(self):
        self.kept = (self.skill, self.momentum)

    def go_back(self, version):
        self.skill, self.momentum = self.kept
        self.updates = version
        return self.weights()


class Examiner:
    """Scores tasks by skill; of equal seeds the noise is the same. Remembers what it was asked."""

    def __init__(self, noise: float = 0.05):
        self.noise = noise
        self.asked: list[tuple[int, int]] = []

    def __call__(self, weights, seed):
        self.asked.append((weights.version, seed))
        noise = np.random.default_rng(seed).normal(0.0, self.noise, TASKS)
        return HeldOutRewards(
            version=weights.version, rewards={f"t{i}": [weights.source[0] + noise[i]] for i in range(TASKS)}
        )


def promoted(learner, examiner=None, *, every=1, seen=None, **rule):
    promotions = Promotions(rule=PromotionConfig(**rule), rng=np.random.default_rng(0))
    return PromotedLearner(
        learner,
        examiner or Examiner(),
        promotions,
        every_updates=every,
        on_promoted=None if seen is None else seen.append,
    )


async def train(learner, updates):
    return [await learner.update(Batch(number, number - 1, ())) for number in range(1, updates + 1)]


async def test_a_collapse_is_rolled_back_and_training_goes_on_from_the_best():
    scripted = Scripted(0.2, 0.2, -0.5, 0.1)
    results = await train(promoted(scripted), 4)
    skills = [round(result.weights.source[0], 3) for result in results]
    assert skills == [0.4, 0.6, 0.6, 0.7]
    assert [result.weights.version for result in results] == [1, 2, 3, 4]
    assert [bool(r.metrics["promotion/rolled_back"]) for r in results] == [False, False, True, False]
    assert [bool(r.metrics["promotion/promoted"]) for r in results] == [True, True, False, True]


async def test_the_optimizer_goes_back_too():
    scripted = Scripted(0.2, -0.5)
    await train(promoted(scripted), 2)
    assert scripted.momentum == 0.2


async def test_what_is_neither_better_nor_worse_is_kept():
    scripted = Scripted(0.0)
    learner = promoted(scripted)
    (result,) = await train(learner, 1)
    assert result.metrics["promotion/kept"] == 1.0
    assert learner.incumbent.version == 0
    assert scripted.updates == 1


async def test_candidate_and_incumbent_play_with_one_seed_another_each_time():
    examiner = Examiner()
    await train(promoted(Scripted(0.2, 0.2, -0.5), examiner), 3)
    assert examiner.asked == [(0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)]


async def test_it_is_judged_every_so_many_updates_only():
    examiner = Examiner()
    results = await train(promoted(Scripted(*[0.1] * 7), examiner, every=3), 7)
    assert [version for version, _ in examiner.asked] == [0, 3, 3, 6]
    assert [r.weights.version for r in results if "promotion/promoted" in r.metrics] == [3, 6]
    assert all(result.metrics["learner/loss"] == 1.0 for result in results)


async def test_who_keeps_the_best_weights_is_told():
    seen = []
    await train(promoted(Scripted(0.2, -0.5, 0.3), seen=seen), 3)
    assert [weights.version for weights in seen] == [1, 3]


async def test_a_judgment_that_cannot_be_carried_out_is_neither_made_nor_trained_for_again():
    seen, scripted, examiner = [], Scripted(0.2, -0.5), Examiner()
    learner = promoted(scripted, examiner)

    def full(weights):
        seen.append(weights.version)
        if len(seen) == 1:
            raise OSError("no space is left")

    learner._on_promoted = full
    with pytest.raises(UpdateUncertain, match="update 1 is done, but its judgment failed"):
        await learner.update(Batch(1, 0, ()))
    results = await train(learner, 2)
    assert [round(result.weights.source[0], 3) for result in results] == [0.4, 0.4]
    assert [decision.verdict for decision in learner.promotions.decisions] == [Verdict.PROMOTE, Verdict.ROLL_BACK]
    assert examiner.asked == [(0, 1), (1, 1), (1, 2), (2, 2)]
    assert seen == [1, 1]


async def test_a_failed_update_is_not_judged():
    examiner = Examiner()
    learner = promoted(Scripted(None), examiner)
    with pytest.raises(LearnerFault):
        await train(learner, 1)
    assert examiner.asked == []
    assert learner.promotions.decisions == []


async def test_without_a_largest_loss_nothing_goes_back():
    results = await train(promoted(Scripted(0.2, -0.5), max_loss=None), 2)
    assert results[1].weights.source[0] < 0.0
    assert results[1].metrics["promotion/kept"] == 1.0


def test_it_is_judged_at_least_now_and_then():
    with pytest.raises(ValueError, match="every_updates must be at least 1"):
        promoted(Scripted(), every=0)


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=12), st.integers(1, 4))
def test_versions_never_go_back_and_the_incumbent_never_gets_clearly_worse(changes, every):
    learner = promoted(Scripted(*changes), Examiner(noise=0.0), every=every)

    async def main():
        return await train(learner, len(changes))

    results = []
    run_virtual(_collect(main, results), seed=0)
    assert [result.weights.version for result in results] == list(range(1, len(changes) + 1))
    promoted_skills = [r.weights.source[0] for r in results if r.metrics.get("promotion/promoted")]
    assert promoted_skills == sorted(promoted_skills)
    assert all(r.weights.source == learner_source for r, learner_source in _rolled_back(results))


async def _collect(main, results):
    results.extend(await main())


def _rolled_back(results):
    """Pair every rolled back result with the weights that were promoted last."""
    best = (0.2, 0.0)
    for result in results:
        if result.metrics.get("promotion/promoted"):
            best = result.weights.source
        elif result.metrics.get("promotion/rolled_back"):
            yield result, best


# -- in the training loop -----------------------------------------------------------------------------


class Side:
    """Source and publisher of a training loop."""

    def __init__(self, updates):
        self.left = [Batch(number, number - 1, ()) for number in range(1, updates + 1)]
        self.published_weights = []

    async def next_batch(self):
        return self.left.pop(0) if self.left else None

    def trained(self, batch, result): ...

    def release(self, batch):
        self.left.insert(0, batch)

    def published(self, version): ...

    def publish(self, weights):
        self.published_weights.append(weights)

    async def settled(self, version): ...


async def test_the_loop_counts_and_never_publishes_what_collapsed():
    side = Side(5)
    recorder = Recorder(asyncio.get_running_loop().time, num_envs=1, num_engines=1)
    learner = promoted(Scripted(0.2, -0.6, None, 0.0, 0.2))
    await Trainer(learner, source=side, publisher=side, recorder=recorder).run()
    assert [weights.version for weights in side.published_weights] == [1, 2, 3, 4, 5]
    assert min(weights.source[0] for weights in side.published_weights) >= 0.2
    counts = {name: n for name, n in recorder.counts.items() if name.startswith("promotion/")}
    assert counts == {"promotion/promoted": 2, "promotion/kept": 2, "promotion/rolled_back": 1}
    assert [decision.verdict for decision in learner.promotions.decisions].count(Verdict.ROLL_BACK) == 1
