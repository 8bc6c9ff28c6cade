"""What is on the screens of desktops that are no containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dartsim.config import Config
from dartsim.envs.simulated import SimDesktop


def desktop_maker(config: Config) -> Callable[[], Any]:
    """Return a factory of desktops: the mock desktop, a gymnasium environment, or a desktop without content."""
    if config.tasks.source == "gym":
        from dartsim.envs.gym import gym_desktop_maker

        return gym_desktop_maker(config.gym, config.policy)
    if config.tasks.source != "mock":
        return lambda: SimDesktop(draw=False)
    from dartsim.envs.mock.env import mock_desktop_maker

    return mock_desktop_maker(config.policy)
