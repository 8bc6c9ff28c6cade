"""A run in real time whose learner is two processes: mock desktops, workers in threads, weights from a folder."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.config import load
from dartsim.real.learners.fsdp.learner import FsdpLearner
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.run.model import trained_model
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared


@pytest.mark.slow
def test_a_run_trains_with_ranks_and_leaves_its_model_and_state(tmp_path):
    changes = [
        "backend.desktops=mock",
        "backend.workers=local",
        "backend.learner=fsdp",
        "trainer.fsdp.device=cpu",
        f"trainer.fsdp.folder={tmp_path / 'learner'}",
        "trainer.mismatch_bound=0.001",
        "run.updates=2",
        "run.hours=0.1",
        "tasks.held_out=8",
    ]
    prepared = prepare(load("tiny", overrides=changes))
    trained = trained_model(prepared)
    assert isinstance(trained.trainer, FsdpLearner)
    result = run_prepared(prepared, learning=trained)
    updates = result.recorder.updates
    assert len(updates) >= 2
    assert trained.trainer.updates >= 2
    assert not trained.trainer.group.running
    assert updates[0].metrics["learner/ranks"] == 2.0
    assert updates[0].metrics["learner/mismatch_max"] < 1e-4
    assert not any(update.metrics["learner/mismatch_alarm"] for update in updates)
    assert trained.held_out.evaluate(trained.weights) is not None
    trained.save(tmp_path / "run")
    # Without ranks, such as for an evaluation:
    alone = prepare(load("tiny", overrides=[*changes, "backend.learner=local"]))
    again = trained_model(alone, restore=tmp_path / "run")
    assert isinstance(again.trainer, TorchLearner)
    assert again.trainer.updates == trained.trainer.updates
