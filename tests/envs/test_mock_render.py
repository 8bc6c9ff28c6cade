import numpy as np
import pytest

from dartsim.envs.actions import GRAMMARS
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import play_oracle
from dartsim.envs.mock.suites import mock_tasks
from dartsim.envs.render import RING, draw_action, episode_gif, episode_png

image = pytest.importorskip("PIL.Image", reason="pictures need pillow")


def episode(grammar="pyautogui", family="pages"):
    env = MockDesktop(width=112, height=112, grammar=grammar)
    frames: list = []
    score, actions = play_oracle(env, mock_tasks(family, 1, 0, 4)[0], frames=frames)
    assert score == 1.0
    return frames, actions


def rings(picture):
    return (picture == RING).all(axis=2)


def test_a_click_is_a_ring_around_its_place_and_the_frame_stays():
    frame = np.full((240, 320, 3), 200, np.uint8)
    drawn = draw_action(frame, "pyautogui.click(100, 50)")
    ys, xs = np.nonzero(rings(drawn))
    assert (xs.mean().round(), ys.mean().round()) == (100, 50)
    assert (frame == 200).all()
    assert drawn.shape == (252, 320, 3)
    assert (drawn[240:] != drawn[240, 0]).any()  # the caption


def test_a_small_frame_is_enlarged_and_marks_at_the_edge_are_cut_off():
    drawn = draw_action(np.zeros((112, 112, 3), np.uint8), "pyautogui.click(111, 111)")
    assert drawn.shape == (224 + 12, 224, 3)
    assert rings(drawn)[:224].any()
    wild = draw_action(np.zeros((112, 112, 3), np.uint8), "pyautogui.moveTo(-900, 5); pyautogui.dragTo(9999, 9)")
    assert rings(wild).any()


@pytest.mark.parametrize("text", ["nonsense", "", "pyautogui.write('hello')", "x" * 500, "尺寸\n🙂"])
def test_what_has_no_place_is_written_only(text):
    drawn = draw_action(np.zeros((112, 112, 3), np.uint8), text)
    assert not rings(drawn).any()


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_the_pictures_hold_every_frame(tmp_path, grammar):
    frames, actions = episode(grammar)
    episode_gif(frames, actions, tmp_path / "e.gif", grammar=grammar, end="reward 1")
    with image.open(tmp_path / "e.gif") as gif:
        assert gif.n_frames == len(frames)
        assert gif.size == (224, 236)
    episode_png(frames, actions, tmp_path / "e.png", grammar=grammar, columns=2)
    with image.open(tmp_path / "e.png") as png:
        down = -(-len(frames) // 2)
        assert png.size == (2 * 228 + 4, down * 240 + 4)


def test_frames_and_actions_have_to_fit(tmp_path):
    frames, actions = episode()
    for wrong in (([], []), (frames, actions[:-1]), (frames[:-2], actions)):
        with pytest.raises(ValueError, match="a frame before each action"):
            episode_gif(*wrong, tmp_path / "e.gif")
    with pytest.raises(ValueError, match="columns"):
        episode_png(frames, actions, tmp_path / "e.png", columns=0)
