import pytest

from experiments import mock_speed


@pytest.mark.parametrize("name", mock_speed.PLAYERS)
def test_every_way_takes_the_steps_it_counts(name):
    if name == "minigrid":
        pytest.importorskip("minigrid", reason="the rival is optional")
    play = mock_speed.PLAYERS[name](112, 112)
    assert play is not None
    assert play(20) >= 20


def test_a_rival_without_a_room_of_that_size_has_no_rate():
    rates = mock_speed.steps_per_second(100, 100, num_steps=5, repeats=1)
    assert rates["minigrid"] is None
    assert rates["mock_desktop"] > 0
