"""Learners of one and of two ranks, started once for all tests and put back to their beginning for each."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dartsim.core.types import Batch


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fsdp")


@pytest.fixture(scope="session")
def started() -> Iterator[dict[int, Any]]:
    """Learners by their number of ranks."""
    learners: dict[int, Any] = {}
    yield learners
    for learner in learners.values():
        learner.close()


@pytest.fixture
def config():
    """Micro-batches of one prompt, a step that shows; and advantages that can be made infinite."""
    pytest.importorskip("torch")
    from dartsim.config.sections.trainer import ObjectiveConfig
    from dartsim.real.learners.gradient_steps import TINY

    objective = ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.02, advantage={"spread": "none"})
    return TINY.replace(objective=objective, optimizer={"max_tokens": 40}, mismatch_bound=1e-3)


@pytest.fixture
def learner_of(make_vlm, config, folder, started) -> Callable[[int], Any]:
    """Return the learner of so many ranks, at its beginning."""

    def make(ranks: int):
        from dartsim.real.learners.fsdp.learner import FsdpLearner
        from dartsim.real.vlm.export import export

        first = folder / f"first-{ranks}"
        if ranks not in started:
            vlm = make_vlm()
            model = export(vlm, folder / f"model-{ranks}")
            settings = config.replace(fsdp={"ranks": ranks, "device": "cpu"})
            started[ranks] = FsdpLearner(vlm, model, folder / f"ranks-{ranks}", settings, seed=5)
            started[ranks].save(first)
        else:
            started[ranks].load(first)
        return started[ranks]

    return make


@pytest.fixture
def batches(make_vlm, play_batch) -> list[Batch]:
    """Four batches of three groups: two ranks have unequally many prompts."""
    from dartsim.real.vlm import VlmPolicy

    def scored(batch: Batch) -> Batch:
        groups = [
            replace(g, trajectories=tuple(replace(t, reward=float(t.attempt.index % 2)) for t in g.trajectories))
            for g in batch.groups[:3]
        ]
        return replace(batch, version=batch.update - 1, groups=tuple(groups))

    return [scored(play_batch(VlmPolicy(make_vlm()), update, 0)) for update in (1, 2, 3, 4)]
