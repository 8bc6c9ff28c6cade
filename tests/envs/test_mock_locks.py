from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.suites import mock_suite, mock_tasks


def small_desktop():
    return MockDesktop(width=96, height=96, grammar="compact", grammar_options={"columns": 3, "rows": 3})


def press(env, cells):
    for cell in cells:
        env.act(f"click {cell % 3} {cell // 3}")


def right_cells(task):
    return [int(goal[1].rpartition("cell")[2]) for goal in task.spec["goals"]]


def test_a_lock_opens_by_its_cells_in_order_and_a_wrong_press_spoils_it():
    env = small_desktop()
    for task in mock_suite("locks", 12):
        right = right_cells(task)
        for presses, score in ((right, 1.0), ([(right[0] + 1) % 9, *right], 0.0), (right[:-1], 0.0)):
            env.begin(task)
            press(env, presses)
            assert env.evaluate() == score


def test_a_wrong_press_does_not_show():
    env = small_desktop()
    env.begin(mock_tasks("odd_locks", 1, 0, 3)[0])
    right = right_cells(env.task)
    press(env, right[:1])
    turned = env.observe().screenshot
    env.begin(env.task)
    press(env, [(right[0] + 1) % 9, right[0]])
    assert (env.observe().screenshot == turned).all()
