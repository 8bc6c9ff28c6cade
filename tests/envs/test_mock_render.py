import pytest

from dartsim.envs.actions import GRAMMARS
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import play_oracle
from dartsim.envs.mock.suites import mock_tasks
from dartsim.envs.render import episode_gif

image = pytest.importorskip("PIL.Image", reason="pictures need pillow")


def episode(grammar="pyautogui", family="errands"):
    env = MockDesktop(width=112, height=112, grammar=grammar)
    frames: list = []
    score, actions = play_oracle(env, mock_tasks(family, 1, 0, 4)[0], frames=frames)
    assert score == 1.0
    return frames, actions


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_the_pictures_hold_every_frame(tmp_path, grammar):
    frames, actions = episode(grammar)
    episode_gif(frames, actions, tmp_path / "e.gif", grammar=grammar)
    with image.open(tmp_path / "e.gif") as gif:
        assert gif.n_frames == len(frames)
        assert gif.size == (224, 236)


def test_frames_and_actions_have_to_fit(tmp_path):
    frames, actions = episode()
    for wrong in (([], []), (frames, actions[:-1]), (frames[:-2], actions)):
        with pytest.raises(ValueError, match="a frame before each action"):
            episode_gif(*wrong, tmp_path / "e.gif")
