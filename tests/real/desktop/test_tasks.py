"""The tasks of real applications: OSWorld's schema, no network, each solved by its oracle and not by doing nothing."""

import asyncio
import json

import pytest

from dartsim.config import load
from dartsim.envs.actions import make_grammar
from dartsim.envs.actions.model import Done, Fail
from dartsim.envs.base import is_infeasible
from dartsim.real.desktop.tasks import desktop_tasks
from dartsim.real.desktop.tasks.oracles import ORACLES
from dartsim.real.osworld.coverage import check_task
from dartsim.run.prepare import prepare

TASKS = {task.id: task for task in desktop_tasks()}
SCREEN = (1280, 720)
EVERY_TIME = {
    "mousepad-title-capitals", "galculator-product", "thunar-drag-file", "xterm-stop-program", "bill-total",
}  # fmt: skip
"""One of each kind, for ``-m slow``. With ``-m soak`` the others are played."""
AT_ONCE = 4
"""Desktops. Each waits for most of its time: for a screen to rest, or for a score that does not come."""


def read(turns):
    grammar = make_grammar("pyautogui", *SCREEN)
    return [grammar.parse(turn) for turn in turns]


@pytest.mark.parametrize("name", TASKS)
def test_it_can_be_set_up_and_scored_by_what_is_built_in_and_without_a_network(name):
    task = TASKS[name]
    check_task(task)
    assert "http" not in json.dumps(task.spec)
    assert not {"download", "sleep"} & {step["type"] for step in task.spec["config"]}


def test_oracles_are_read_as_they_are_meant():
    assert set(ORACLES) == set(TASKS)
    for name, turns in ORACLES.items():
        *before, (last,) = read(turns)
        assert isinstance(last, Fail if is_infeasible(TASKS[name]) else Done)
        assert not any(isinstance(action, Done | Fail) for actions in before for action in actions)


def test_a_configuration_chooses_them():
    chosen = (
        'backend.desktops="desktop"',
        'backend.workers="local"',
        'backend.learner="local"',
        'tasks.source="desktop"',
        'tasks.desktop="apps"',
        "tasks.held_out=0",
        'run.target_success="none"',
    )
    assert prepare(load(preset_name="tiny", overrides=chosen)).tasks == list(TASKS.values())


def tried(names, image, engine):
    """Return the score of each task's oracle and that of doing nothing, each on a desktop of its own."""
    from dartsim.config.schema import DesktopConfig
    from dartsim.real.desktop import desktop_spec
    from dartsim.real.desktop.tasks.playing import desktops, do_nothing, play

    spec = desktop_spec(DesktopConfig(width=SCREEN[0], height=SCREEN[1], image=image))

    async def main():
        free = asyncio.Semaphore(AT_ONCE)

        async def oracle(name, slot):
            async with free:
                return (await play(provider, TASKS[name], ORACLES[name], slot=slot)).score

        async def nothing(name, slot):
            async with free:
                return await do_nothing(provider, TASKS[name], slot=slot)

        async with desktops(spec, engine, screen=SCREEN) as provider:
            both = [
                way(name, 2 * number + n)
                for number, name in enumerate(names)
                for n, way in enumerate((oracle, nothing))
            ]
            scores = await asyncio.gather(*both)
        return dict(zip(names, zip(scores[::2], scores[1::2], strict=True), strict=True))

    return asyncio.run(main())


@pytest.mark.docker
@pytest.mark.slow
def test_the_oracle_solves_one_of_each_kind_and_doing_nothing_does_not(docker_engine, desktop_image):
    found = tried(sorted(EVERY_TIME), desktop_image, docker_engine)
    assert found == dict.fromkeys(EVERY_TIME, (1.0, 0.0))


@pytest.mark.docker
@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(set(TASKS) - EVERY_TIME))
def test_the_oracle_solves_it_and_doing_nothing_does_not(name, docker_engine, desktop_image):
    assert tried([name], desktop_image, docker_engine) == {name: (1.0, 0.0)}
