import json

import pytest

from dartsim.core.errors import ConfigError
from dartsim.envs.actions import GRAMMARS
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.families.drafts import MAX_DIFFICULTY
from dartsim.envs.mock.oracle import play_oracle
from dartsim.envs.mock.suites import FAMILIES, SUITES, mock_suite, mock_tasks
from dartsim.envs.tasks import TaskFile

DIFFICULTIES = range(1, MAX_DIFFICULTY + 1)
SIZES = [(96, 96), (112, 112), (96, 1080), (1920, 96), (320, 240), (640, 480), (1920, 1080)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_does_every_task_at_every_size(family, size):
    env = MockDesktop(width=size[0], height=size[1])
    for difficulty in DIFFICULTIES:
        for task in mock_tasks(family, 1, 11, difficulty):
            assert play_oracle(env, task)[0] == 1.0, task
            assert env.malformed == 0


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_does_every_task_in_every_grammar(family, grammar):
    env = MockDesktop(width=112, height=112, grammar=grammar)
    for difficulty in DIFFICULTIES:
        for task in mock_tasks(family, 2, 12, difficulty):
            assert play_oracle(env, task)[0] == 1.0, task
            assert env.malformed == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_doing_nothing_and_declaring_done_score_nothing(family):
    env = MockDesktop(width=112, height=112)
    for difficulty in DIFFICULTIES:
        for held_out in (False, True):
            for task in mock_tasks(family, 8, 13, difficulty, held_out=held_out):
                env.begin(task)
                assert env.evaluate() == 0.0, task
                env.act("DONE")
                assert env.evaluate() == 0.0, task
                env.begin(task)
                for _ in range(12):
                    env.act("WAIT")
                assert env.evaluate() == 0.0, task


@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_is_a_task_file(family):
    for difficulty in DIFFICULTIES:
        for task in mock_tasks(family, 3, difficulty=difficulty):
            checked = TaskFile.model_validate(json.loads(json.dumps(task.spec)))
            assert (checked.id, checked.instruction) == (task.id, task.instruction)
            assert json.loads(json.dumps(task.spec)) == task.spec


def test_tasks_are_the_same_for_the_same_seed_and_the_first_of_more():
    few, many = mock_tasks("plain_jobs", 3, 5, 4), mock_tasks("plain_jobs", 9, 5, 4)
    assert [task.spec for task in few] == [task.spec for task in many[:3]]
    assert few[0].spec != mock_tasks("plain_jobs", 1, 6, 4)[0].spec


@pytest.mark.parametrize("suite", SUITES)
def test_suites_have_distinct_tasks_and_a_held_out_split(suite):
    train, held = mock_suite(suite, 60), mock_suite(suite, 60, held_out=True)
    ids = {task.id for task in train + held}
    assert len(ids) == 120
    shown = [json.dumps(task.spec["config"]) for task in train + held]
    assert len(set(shown)) == 120
    assert len({task.domain for task in train}) == len({family for family, _ in SUITES[suite]})


def test_what_cannot_be_drawn_is_refused():
    for wrong in (
        ("chess", 1),
        ("plain_jobs", -1),
        ("plain_jobs", 1, -1),
        ("plain_jobs", 1, 0, 11),
        ("plain_jobs", 1, 0, 0),
    ):
        with pytest.raises(ConfigError):
            mock_tasks(*wrong)
    with pytest.raises(ConfigError, match="suite 'huge'"):
        mock_suite("huge", 1)


def test_dialogs_interrupt_until_they_are_dismissed():
    env = MockDesktop(width=640, height=480)
    (task,) = mock_tasks("plain_jobs", 1, 0, 4)
    env.begin(task)
    assert not env.desktop.modal
    for _ in range(8):
        env.act("WAIT")
    assert env.desktop.modal
    env.act("pyautogui.press('enter')")
    assert not env.desktop.modal
    assert env.desktop.pressed == ["dialog0.OK"]
