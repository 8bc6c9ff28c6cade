"""Any gymnasium environment with a screen as a desktop: created by name, checked, and wrapped with plain methods."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image

from dartsim.config.sections.gym import GymConfig
from dartsim.config.sections.policy import PolicyConfig
from dartsim.core.answers import check_task
from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.core.plugin_errors import describe
from dartsim.core.plugins import import_module_here
from dartsim.core.types import Observation, Task
from dartsim.envs.actions import ending, make_grammar, read
from dartsim.envs.actions.grammar import Inexpressible
from dartsim.envs.actions.model import Action
from dartsim.envs.base import WAIT
from dartsim.envs.direct import WrappedDesktop

CLASS = re.compile(r"^[\w.]+:[A-Za-z_]\w*$")
"""Pattern of a class's name; ids of gymnasium's registry have a version or no colon."""

WANTED = (
    "wanted observations that are a screenshot (Box of uint8 [height, width, 3]), or a Dict with one as 'screenshot', "
    "and actions that are texts (gymnasium.spaces.Text, such as dartsim.envs.base.GuiEnv has). An adapter can "
    'translate: gym.wrapper = "package.module:function"'
)

RESET_SEED = "reset_seed"
"""Key in the specification of a numbered task: the seed of its environment's reset."""


def make_env(config: GymConfig) -> gymnasium.Env[Any, Any]:
    """Return a new environment, in its adapter if it has one.

    Raises:
        ConfigError: If the name is unknown, the environment cannot be created, or its spaces are not a desktop's.
    """
    name = str(config.env)
    try:
        if CLASS.match(name):
            env: gymnasium.Env[Any, Any] = _named(name, "gym.env")(**config.arguments)
        else:
            env = gymnasium.make(name, disable_env_checker=True, **config.arguments)
        if config.wrapper is not None:
            env = _named(config.wrapper, "gym.wrapper")(env)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"gym.env = {name!r} cannot be made: {describe(error)}") from error
    check_spaces(env, name)
    return env


def check_spaces(env: gymnasium.Env[Any, Any], name: str) -> None:
    """Check that an environment has the spaces of a desktop.

    Raises:
        ConfigError: If it does not; says what is expected.
    """
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(f"gym.env = {name!r} makes {env!r}, which is no gymnasium.Env")
    screen, actions = _screen(env), env.action_space
    if screen is None or not isinstance(actions, spaces.Text):
        raise ConfigError(f"gym.env = {name!r} observes {env.observation_space} and takes {actions}; {WANTED}")


def _screen(env: gymnasium.Env[Any, Any]) -> tuple[int, int] | None:
    """Return width and height of an environment's screen in pixels; None if it has none."""
    screen: Any = env.observation_space
    if isinstance(screen, spaces.Dict):
        screen = screen.spaces.get("screenshot")
    if not isinstance(screen, spaces.Box) or screen.dtype != np.uint8 or len(screen.shape) != 3 or screen.shape[2] != 3:
        return None
    return screen.shape[1], screen.shape[0]


def _named(name: str, key: str) -> Any:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ConfigError(f'{key} = {name!r} is no name of a class or function: wanted "package.module:NAME"')
    try:
        return getattr(import_module_here(module), attribute)
    except ImportError as error:
        raise ConfigError(f"{key} = {name!r} cannot be imported: {error}") from error
    except AttributeError:
        raise ConfigError(f"{key} = {name!r}: the module {module} has no {attribute!r}") from None


def gym_tasks(config: GymConfig, count: int) -> Sequence[Task]:
    """Return the tasks of an environment.

    They come from its attribute ``tasks``: tasks, dictionaries of their fields or instructions, or a function that
    returns these. ``reset`` gets one as ``options={"task": ...}``. An environment without ``tasks`` has ``count``
    numbered ones: task N is the episode after a reset with seed N.

    Raises:
        ConfigError: As ``make_env``, or if ``tasks`` contains anything else.
    """
    return _tasks(config.model_dump_json(), count)


@cache
def _tasks(config_json: str, count: int) -> Sequence[Task]:
    config = GymConfig.model_validate_json(config_json)
    env = make_env(config)
    name = str(config.env).rpartition(":")[2].rpartition(".")[2]
    try:
        own = getattr(env.unwrapped, "tasks", None)
        listed = own() if callable(own) else own
        listed = listed if listed is None else list(listed)
        env.close()
    except Exception as error:
        raise ConfigError(
            f"gym.env = {config.env!r} does not say its tasks: {type(error).__name__}: {error}"
        ) from error
    if listed is None:
        return [Task(f"{name}-{n}", f"Task {n} of {name}", "gym", {RESET_SEED: n}) for n in range(count)]
    tasks = [_task(name, number, item) for number, item in enumerate(listed)]
    if not tasks or len({task.id for task in tasks}) < len(tasks):
        raise ConfigError(f"gym.env = {config.env!r}: wanted tasks, each with an id of its own, and found {listed!r}")
    return tasks


def _task(name: str, number: int, item: Any) -> Task:
    fields = item if isinstance(item, Mapping) else {"instruction": str(item)}
    try:
        task = item if isinstance(item, Task) else Task(**{"id": f"{name}-{number}", "domain": "gym", **fields})
        check_task(task)
    except (TypeError, TaskFileError) as error:
        raise ConfigError(f"task {number} of gym.env is {item!a:.200}: {error}; wanted a dartsim.envs.Task") from None
    return task


def gym_desktop_maker(config: GymConfig, policy: PolicyConfig) -> Callable[[], GymDesktop]:
    """Return a picklable factory of desktops."""
    return partial(make_desktop, config, policy)


def make_desktop(config: GymConfig, policy: PolicyConfig) -> GymDesktop:
    """Return an environment as a desktop; errors as ``make_env``."""
    env = make_env(config)
    translates = policy.kind == "vlm" and config.actions == "pyautogui"
    return TranslatedDesktop(env, policy) if translates else GymDesktop(env)


class GymDesktop(WrappedDesktop):
    """An environment that gets actions unchanged."""

    def begin(self, task: Task, seed: int) -> None:
        super().begin(task, task.spec.get(RESET_SEED, seed))


class TranslatedDesktop(GymDesktop):
    """An environment that reads pyautogui code, for a model that writes another grammar.

    A small model that clicks sees the screen as a square of ``policy.screen`` pixels; its positions are scaled.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], policy: PolicyConfig) -> None:
        super().__init__(env)
        screen = _screen(env)
        assert screen is not None, "checked when it was made"
        grammar, options = policy.action_grammar
        self._size = screen
        self._shown_size = screen if policy.sees_whole_screen else (policy.screen, policy.screen)
        self._grammar = make_grammar(grammar, *self._shown_size, **options)
        self._code = make_grammar("pyautogui", *screen)
        self._calls: Counter[str] = Counter()

    def begin(self, task: Task, seed: int) -> None:
        self._calls.clear()
        super().begin(task, seed)

    def act(self, action: str) -> bool:
        actions = read(self._grammar, action, self._calls)
        if actions is None:  # malformed: nothing changes
            return super().act(WAIT)
        try:
            return super().act(ending(actions) or self._code.format([self._scale(each) for each in actions]))
        except Inexpressible:
            return super().act(WAIT)

    def observe(self) -> Observation:
        observation = super().observe()
        if self._shown_size == self._size:
            return observation
        picture = Image.fromarray(np.asarray(observation.screenshot)).resize(
            self._shown_size, Image.Resampling.BILINEAR
        )
        return observation._replace(screenshot=np.asarray(picture))

    def _scale(self, action: Action) -> Action:
        """Return an action with its position scaled from the model's picture to the screen."""
        sides = {"x": 0, "y": 1}
        found = {name: pixel for name in sides if (pixel := getattr(action, name, None)) is not None}
        scaled = {
            name: (2 * pixel + 1) * self._size[sides[name]] // (2 * self._shown_size[sides[name]])
            for name, pixel in found.items()
        }
        return replace(action, **scaled)
