from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import oracle_text, play_oracle
from dartsim.envs.mock.suites import FAMILIES, SUITES, mock_suite, mock_tasks

JOBS = sorted({family for family, _ in SUITES["long"]})
CLICKS = [f"click {column} {row}" for row in range(3) for column in range(3)]


def small_desktop():
    return MockDesktop(width=96, height=96, grammar="compact", grammar_options={"columns": 3, "rows": 3})


families = st.sampled_from(JOBS)
drawn = st.builds(
    lambda family, seed, difficulty, held_out: mock_tasks(family, 1, seed, difficulty, held_out=held_out)[0],
    families,
    st.integers(0, 10_000),
    st.integers(1, 10),
    st.booleans(),
)


def seen(env, actions):
    """Play actions from the beginning and return what can still matter, or the score if they end the episode."""
    env.begin(env.task)
    for action in actions:
        env.act(action)
    windows = tuple((window.id, window.page) for window in env.desktop.windows)
    waiting = len(env.desktop.interrupts)
    return (windows, waiting, env.desktop.actions if waiting else 0)


def shortest(env, limit):
    """Return the clicks of a shortest way to full score, by breadth-first search."""
    queue, known = deque([()]), {seen(env, ())}
    while queue:
        actions = queue.popleft()
        seen(env, actions)
        if env.evaluate() == 1.0:
            return actions
        for click in CLICKS if len(actions) < limit else ():
            state = seen(env, (*actions, click))
            if state not in known:
                known.add(state)
                queue.append((*actions, click))
    return None


@given(drawn)
@settings(max_examples=60, deadline=None)
def test_the_oracle_takes_6_to_15_clicks_and_ends(task):
    env = small_desktop()
    score, actions = play_oracle(env, task)
    feasible = FAMILIES[task.domain].feasible
    assert score == 1.0
    assert (6 if feasible else 4) <= len(actions) <= 15
    assert actions[-1] == ("done" if feasible else "fail")
    assert set(actions[:-1]) <= set(CLICKS)


@given(st.sampled_from([family for family in JOBS if FAMILIES[family].feasible]), st.integers(0, 500))
@settings(max_examples=6, deadline=None)
def test_no_solution_is_shorter_than_the_oracles(family, seed):
    """The dialogs' times make the state, so that the easiest tasks, which have none, are searched whole."""
    env = small_desktop()
    (task,) = mock_tasks(family, 1, seed, 1)
    actions = play_oracle(env, task)[1]
    assert len(shortest(env, len(actions)) or ()) == len(actions) - 1


@given(drawn, st.lists(st.sampled_from(CLICKS), max_size=12))
@settings(max_examples=60, deadline=None)
def test_every_mistake_can_be_undone(task, mistakes):
    env = small_desktop()
    env.begin(task)
    for click in mistakes:
        env.act(click)
    over = False
    for _ in range(40):
        over = over or env.act(oracle_text(env))
    assert over
    assert env.evaluate() == 1.0


@given(drawn)
@settings(max_examples=40, deadline=None)
def test_only_the_right_ending_scores(task):
    env = small_desktop()
    env.begin(task)
    for _ in range(30):
        env.act("wait")
    assert env.evaluate() == 0.0
    feasible = FAMILIES[task.domain].feasible
    for ending in ("done", "fail"):
        actions = play_oracle(env, task)[1]
        env.begin(task)
        for action in actions[:-1]:
            env.act(action)
        env.act(ending)
        assert env.evaluate() == float((ending == "done") == feasible)


def buttons(env):
    """Return color and command of the buttons above the taskbar."""
    page = env.desktop.top.pages[env.desktop.top.page]
    return [(cell.color, cell.command) for row in page[:2] for cell in row if cell.kind == "button"]


def test_a_question_asks_for_the_color_of_the_note_before_it():
    env = small_desktop()
    asked = 0
    for task in mock_tasks("recall_jobs", 10, 0, 5):
        actions = play_oracle(env, task)[1]
        env.begin(task)
        noted = None
        for action in actions:
            shown = [] if env.desktop.modal else buttons(env)
            if len({color for color, _ in shown}) > 1:
                assert [color for color, command in shown if command == "next"] == [noted]
                asked += 1
            elif len(shown) == 1:
                noted = shown[0][0]
            env.act(action)
    assert asked >= 10


def test_train_and_held_out_tasks_differ():
    train, held_out = mock_suite("long", 100), mock_suite("long", 100, held_out=True)
    assert not {str(task.spec["config"]) for task in train} & {str(task.spec["config"]) for task in held_out}
