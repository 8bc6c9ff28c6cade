"""Promotion of a real model in a run: the best weights are kept in a folder, and a collapse does not get out."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `train`")

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.core.types import Weights
from dartsim.real.vlm import build
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.evaluation import Trials
from dartsim.run.execute import BEST, execute
from dartsim.run.learning import learning
from dartsim.run.prepare import prepare
from dartsim.run.realtime import run_realtime
from dartsim.run.simulation import run_simulation
from dartsim.trainer.promotion import HeldOutRewards

SMALL = (
    "tasks.count=16", "tasks.held_out=32", "rollout.num_envs=8", "run.updates=2", "recorder.max_segments=0",
    "curation.batch.min_groups=4", "curation.batch.max_groups=4", "trainer.promotion.enabled=true",
    "trainer.promotion.every_updates=1", "trainer.evaluation.every_updates=none", "run.target_success=none",
)  # fmt: skip


def test_a_collapse_is_rolled_back_under_a_new_version():
    """A learning rate that wrecks the model: what is published are the first weights, as versions 1 and 2."""
    prepared = prepare(load(preset_name="tiny", overrides=[*SMALL, "trainer.optimizer.learning_rate=3.0"]))
    learned = learning(prepared)

    def judge(weights, seed):  # the first weights know no more than wrecked ones
        return HeldOutRewards(
            version=weights.version, rewards={f"t{i}": [float(not weights.version)] for i in range(9)}
        )

    learned.promoted._evaluate = judge
    first = learned.trainer.weights()
    result = run_simulation(prepared, learning=learned)
    counts = result.recorder.counts
    assert counts["promotion/rolled_back"] == 2
    assert learned.newest.version == 2
    assert learned.promoted.incumbent.version == 0
    for name, tensor in first.source.items():
        assert np.array_equal(tensor, learned.newest.source[name]), name
    figures = learned.figures()["promotion"]
    assert (figures["promoted"], figures["rolled_back"], figures["best_version"]) == (0, 2, 0)
    assert all(decision["high"] < 0.0 for decision in figures["decisions"])
    assert not learned.trainer.optimizer.state  # that of the beginning


def test_equal_weights_make_equal_attempts_of_a_seed_under_any_version():
    prepared = prepare(load(preset_name="tiny", overrides=SMALL))
    vlm = build(vlm_config(prepared.config))
    judge, weights = Trials(prepared, vlm, 2), vlm.snapshot()
    first, again, other = judge(Weights(0, weights), 1), judge(Weights(7, weights), 1), judge(Weights(0, weights), 2)
    assert (first.version, again.version) == (0, 7)
    assert first.rewards == again.rewards != other.rewards
    assert len(first.rewards) == 32
    assert all(len(rewards) == 2 for rewards in first.rewards.values())


def test_promoted_weights_are_kept_in_the_run_s_folder(tmp_path):
    """With no gain asked for, every version is promoted: the last one is the best, and can be taken up."""
    config = load(preset_name="tiny", overrides=[*SMALL, "trainer.promotion.min_gain=-1.1"])
    run, result = execute(config, tmp_path / "run")
    assert run.summary["promotion"]["promoted"] == 2
    assert run.summary["promotion"]["best_version"] == 2
    assert result.recorder.counts["promotion/promoted"] == 2
    assert "Promotion" in run.report.read_text()
    best = learning(prepare(config), resume=tmp_path / "run" / BEST)
    last = learning(prepare(config), resume=tmp_path / "run")
    assert best.newest.version == last.newest.version == 2
    assert all(np.array_equal(t, last.newest.source[name]) for name, t in best.newest.source.items())


def test_it_is_judged_in_real_time_too():
    """The same learner, in a thread beside the loop."""
    parts = ("backend.desktops=mock", "backend.workers=local", "backend.learner=local", "run.hours=0.05")
    more = ("tasks.count=64", "trainer.promotion.min_gain=-1.1")
    prepared = prepare(load(preset_name="tiny", overrides=[*SMALL, *parts, *more]))
    learned = learning(prepared)
    result = run_realtime(prepared, learning=learned)
    judged = learned.figures()["promotion"]
    assert result.recorder.counts["promotion/promoted"] >= 2
    assert judged["promoted"] >= 2
    assert judged["best_version"] >= 2


@pytest.mark.parametrize(
    ("preset", "overrides"), [("dart", []), ("tiny", ["tasks.held_out=7", "run.target_success=none"])]
)
def test_a_promotion_that_can_judge_nothing_is_refused(preset, overrides):
    with pytest.raises(ConfigError, match=r"trainer\.promotion\.enabled can judge nothing"):
        load(preset_name=preset, overrides=[*overrides, "trainer.promotion.enabled=true"])
