"""The experiment that trains on OSWorld's tasks: its configuration, replies and teacher."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dartsim.core.types import Observation, Task
from dartsim.envs.actions import make_grammar
from dartsim.real.desktop.tasks.playing import ScriptedAttempt
from dartsim.real.learners.warm_start import Demonstration
from experiments import apps_training, apps_training_work


@pytest.fixture
def osworld(tmp_path):
    for name in apps_training.SOLUTIONS:
        file = tmp_path / "osworld" / "examples" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return tmp_path / "osworld"


@pytest.mark.parametrize(("quick", "number"), [(False, 12), (True, 2)])
def test_the_model_can_say_each_solution(osworld, tmp_path, quick, number):
    config = apps_training.training_config(0, osworld, tmp_path / "tasks", quick=quick, minutes=3.0)
    listed = json.loads((tmp_path / "tasks" / "training.json").read_text())
    names = [f"{domain}/{task}" for domain, tasks in listed.items() for task in tasks]
    assert names == list(apps_training.SOLUTIONS)[:number]
    assert (config.desktop.variant, config.desktop.width, config.desktop.height) == ("apps", 1920, 1080)
    name, options = config.policy.action_grammar
    grammar = make_grammar(name, 1920, 1080, **options)
    assert all(len(grammar.parse(reply)) == 1 for reply in config.policy.actions)
    assert all(set(solution) <= set(config.policy.actions) for solution in apps_training.SOLUTIONS.values())
    assert all(len(solution) < config.rollout.max_turns for solution in apps_training.SOLUTIONS.values())


def test_each_lesson_is_the_right_reply_after_what_the_teacher_did():
    frames = tuple(np.full((2, 2, 3), number, np.uint8) for number in range(7))
    actions = ("key tab", "key ctrl+alt+t", "WAIT", "key ctrl+l", "WAIT", "done")
    attempt = ScriptedAttempt(1.0, 1.0, frames, actions)
    turns = apps_training_work.lessons([apps_training_work.Played(Task("1", "open", "os"), attempt, frozenset({0, 2}))])
    # A mistake is answered with what was right, also while the teacher waits for what it does.
    assert [turn.action for turn in turns] == ["key ctrl+alt+t", "key ctrl+alt+t", "wait", "done", "done", "done"]
    said = ("key tab", "key ctrl+alt+t", "wait", "key ctrl+l", "wait")
    assert [tuple(seen.reply.action for seen in turn.history) for turn in turns] == [said[:n] for n in range(6)]
    assert all(turn.observation.screenshot is frames[number] for number, turn in enumerate(turns))


def test_mistakes_come_before_the_actions_of_a_solution():
    rng = np.random.default_rng(0)
    solution = apps_training.SOLUTIONS["gimp/d52d6308-ec58-42b7-a2c9-de80e4837b2b"]
    number = 0
    for _ in range(100):
        actions, mistakes = apps_training_work.with_mistakes(solution, 0.5, rng)
        assert [action for place, action in enumerate(actions) if place not in mistakes] == list(solution)
        assert not any(actions[place] == "done" for place in mistakes)
        number += len(mistakes)
    assert number == pytest.approx(100, abs=25)


def test_replies_by_chance_leave_the_rest_as_it_was():
    turns = [Demonstration(Observation(None, ""), (), "wait")] * 200
    erring = apps_training_work.by_chance(turns, np.random.default_rng(0))
    changed = [turn.action for turn in erring if turn.action != "wait"]
    assert set(changed) <= set(apps_training.replies())
    assert len(changed) == pytest.approx(200 * apps_training_work.ERRS, abs=30)
