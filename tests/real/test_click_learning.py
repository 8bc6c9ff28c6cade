"""From chance to success on the mock desktop's clicks, by reinforcement alone; no cluster."""

import time
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.rewards import mean_over_tasks  # noqa: E402
from dartsim.core.types import Attempt, Batch, Group  # noqa: E402
from dartsim.envs.mock.env import MockDesktop  # noqa: E402
from dartsim.envs.mock.suites import mock_tasks  # noqa: E402
from dartsim.real.evaluate import evaluate, play  # noqa: E402
from dartsim.real.learners.gradient_steps import TINY  # noqa: E402
from dartsim.real.learners.torch_learner import TorchLearner  # noqa: E402
from dartsim.real.vlm import VlmPolicy, build, tiny  # noqa: E402

NUM_GROUPS, GROUP = 16, 8


def desktops() -> list[Any]:
    grid = {"columns": 3, "rows": 3}
    return [
        MockDesktop(width=112, height=112, grammar="compact", grammar_options=grid) for _ in range(NUM_GROUPS * GROUP)
    ]


def learn(seed: int, *, target: float, max_seconds: float) -> tuple[float, float]:
    """Learn until the mean of ten batches reaches the target; return CPU seconds and held-out success."""
    torch.set_num_threads(1)
    vlm = build(tiny(family="qwen3_vl"), seed=seed)
    learner, policy = TorchLearner(vlm, TINY, seed=seed), VlmPolicy(vlm.twin())
    tasks, screens = mock_tasks("click_button", 2_048, seed), desktops()
    rng = np.random.default_rng(seed)
    start, recent, update = time.process_time(), [], 0
    while time.process_time() - start < max_seconds:
        chosen = [tasks[i] for i in rng.integers(len(tasks), size=NUM_GROUPS)]
        first = update * NUM_GROUPS
        attempts = [
            Attempt((first + g) * GROUP + i, task, first + g, i, int(rng.integers(2**62)), 1, update)
            for g, task in enumerate(chosen)
            for i in range(GROUP)
        ]
        played = play(policy, screens, attempts, version=update)
        groups = [
            Group(first + g, task, tuple(played[g * GROUP : (g + 1) * GROUP]), 0.0) for g, task in enumerate(chosen)
        ]
        update += 1
        policy.add(learner.train(Batch(update, update - 1, tuple(groups))).weights)
        recent = [*recent[-9:], np.mean([trajectory.reward for trajectory in played])]
        if len(recent) == 10 and np.mean(recent) >= target:
            break
    seconds = time.process_time() - start
    held_out = mock_tasks("click_button", 100, seed, held_out=True)
    return seconds, mean_over_tasks(evaluate(policy, screens, held_out, version=update, turn_limit=1))


@pytest.mark.bench
@pytest.mark.parametrize("seed", range(3))
def test_it_learns_to_click(seed):
    seconds, success = learn(seed, target=0.9, max_seconds=120)
    print(f"seed {seed}: {seconds:.1f} CPU s, held-out {success:.2f}")
    assert seconds < 120
    assert success > 0.75
