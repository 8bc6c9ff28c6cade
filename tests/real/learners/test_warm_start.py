from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.types import Task  # noqa: E402
from dartsim.real.evaluate import evaluate  # noqa: E402
from dartsim.real.learners.warm_start import Demonstration, WarmStart, warm_start  # noqa: E402
from dartsim.real.vlm import VlmPolicy  # noqa: E402


def shown(red_buttons: list[Any]) -> list[Demonstration]:
    found = []
    for cell in range(4):
        red_buttons[0].begin(Task(str(cell), "press"), 0)
        found.append(Demonstration(red_buttons[0].observe(), [], f"click {cell % 2} {cell // 2}"))
    return found


def test_imitation_solves_the_tasks(make_vlm, red_buttons):
    vlm = make_vlm(output_scale=0.1)
    losses = warm_start(vlm, shown(red_buttons), WarmStart(steps=80, batch=8))
    assert losses[-1] < 0.5 < losses[0]
    tasks = [Task(str(cell), "press") for cell in range(4)]
    result = evaluate(VlmPolicy(vlm, greedy=True), red_buttons, tasks, version=0, turn_limit=1)
    assert set(result.values()) == {1.0}


def test_the_same_seed_imitates_alike(make_vlm, red_buttons):
    runs = [warm_start(make_vlm(), shown(red_buttons), WarmStart(steps=5, batch=3, seed=1)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_the_present_screenshot_comes_first_and_history_after_it(make_vlm, red_buttons):
    """Without history in the demonstrations, both stages are the same imitation."""
    settings = WarmStart(steps=4, present_steps=6, batch=3)
    steps: list[int] = []
    losses = warm_start(make_vlm(), shown(red_buttons), settings, on_step=lambda step, _: steps.append(step))
    assert steps == list(range(10))
    assert losses[:6] == warm_start(make_vlm(), shown(red_buttons), WarmStart(steps=6, batch=3))


def test_an_action_outside_the_grammar_is_refused(make_vlm, red_buttons):
    wrong = [shown(red_buttons)[0]._replace(action="dance")]
    with pytest.raises(ValueError, match="not allowed"):
        warm_start(make_vlm(), wrong)
