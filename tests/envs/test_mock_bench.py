"""Steps a second, screenshot included; ``-m bench -s`` shows them."""

import time

import pytest

from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import play_oracle
from dartsim.envs.mock.suites import mock_suite

FLOORS = {(112, 112): 2000, (320, 240): 1500, (1920, 1080): 100}
"""Steps a second that a busy machine of 2 cores still makes; a quiet one makes several times as many."""


@pytest.mark.bench
@pytest.mark.parametrize("size", FLOORS)
def test_steps_a_second(size):
    env = MockDesktop(width=size[0], height=size[1], grammar="compact")
    episodes = [(task, play_oracle(env, task)[1]) for task in mock_suite("long", 60)]
    steps, started = 0, time.process_time()
    for _ in range(3):
        for task, actions in episodes:
            env.begin(task)
            env.observe()
            for action in actions:
                env.act(action)
                env.observe()
                steps += 1
    rate = steps / (time.process_time() - started)
    print(f"{size[0]} × {size[1]}: {rate:,.0f} steps/s")
    assert rate > FLOORS[size]
