"""Tasks of OSWorld's form on the image ``apps``, scored by ``desktop-env`` itself: right answers, wrong ones, none."""

import asyncio
import os
from pathlib import Path

import pytest

pytest.importorskip("docker")

from dartsim.config.schema import DesktopConfig
from dartsim.core.types import Task
from dartsim.envs.tasks import load_suite
from dartsim.real.containers import DesktopFleet, DockerHost
from dartsim.real.desktop import desktop_spec
from dartsim.real.desktop.tasks.playing import do_nothing, play
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.fetch import Downloads
from dartsim.real.osworld.provider import DesktopProvider
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.scoring.container import open_pool
from experiments.office_tasks import LIST, RIGHT, TASKS, WRONG, make_office_tasks
from experiments.osworld_apps import by_application
from experiments.osworld_apps_work import summary
from experiments.osworld_solutions import SOLUTIONS

HOME = os.environ.get("DARTSIM_EVALUATOR", "")
CHROME = [
    {"type": "launch", "parameters": {"command": ["google-chrome", "--remote-debugging-port=1337"]}},
    {"type": "launch", "parameters": {"command": ["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]}},
]
RESTART = [
    {"type": "launch", "parameters": {"command": ["pkill", "chrome"]}},
    {"type": "sleep", "parameters": {"seconds": 3}},
]
LOCK = "gsettings get org.gnome.desktop.screensaver lock-enabled"


def rule(**rules):
    return {"type": "rule", "rules": rules}


OURS = {
    # by the task of OSWorld whose solution solves it
    "030eeff7-b492-4218-b312-701ec99ee0cc": (
        CHROME,
        {
            "func": "exact_match",
            "result": {"type": "enable_do_not_track"},
            "expected": rule(expected="true"),
            "postconfig": RESTART,
        },
    ),
    "9195653c-f4aa-453d-aa95-787f6ccfaae9": (
        [{"type": "launch", "parameters": {"command": ["vlc"]}}],
        {
            "func": "check_qt_max_volume",
            "result": {"type": "vlc_config", "dest": "vlcrc"},
            "expected": rule(expected_qt_max_volume=200),
        },
    ),
    "a4d98375-215b-4a4d-aee9-3d4370fccc41": (
        [{"type": "execute", "parameters": {"command": LOCK.replace("get", "set") + " false", "shell": True}}],
        {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": LOCK, "shell": True},
            "expected": rule(expected="true\n"),
        },
    ),
}
OFFICE = ("calc-total", "writer-replace", "impress-title", "gimp-mirror")


AT_ONCE = 2
"""Attempts at the same time: they wait for applications more than they compute."""


@pytest.fixture(scope="module")
def scores(docker_engine, need_image, tmp_path_factory):
    """The scores of attempts at each task: of its two answers, or of nothing and the solution."""
    need_image("apps")
    if not HOME:
        pytest.skip("no environment with desktop-env in DARTSIM_EVALUATOR")
    folder = tmp_path_factory.mktemp("tasks")
    make_office_tasks(folder, Path(HOME))
    tasks = {
        name: Task(name, "do it", "apps", {"id": name, "config": config, "evaluator": evaluator})
        for name, (config, evaluator) in OURS.items()
    }
    tasks |= {task.id: task for task in load_suite(folder, LIST).tasks}
    attempts = [(name, turns) for name in OURS for turns in (None, SOLUTIONS[name])]
    attempts += [(name, turns) for name in OFFICE for turns in (RIGHT[name], WRONG[name])]
    found = asyncio.run(played(docker_engine, folder, [(tasks[name], turns) for name, turns in attempts]))
    return {name: [score for (other, _), score in zip(attempts, found, strict=True) if other == name] for name in tasks}


async def played(engine, folder, attempts):
    """Return the score of each attempt, or what went wrong with it: turns to play, or None for doing nothing."""
    spec = desktop_spec(DesktopConfig(variant="apps", memory_mib=3072))
    places = asyncio.Semaphore(AT_ONCE)
    async with DesktopFleet([DockerHost(engine)]) as fleet, open_pool(Path(HOME), size=1) as pool:
        downloads = Downloads(folder / "downloads", sources=(folder,))
        provider = DesktopProvider(fleet, spec, DesktopOptions(downloads=downloads, scorer=Scorer(pool)))

        async def score(task, turns):
            async with places:
                if turns is None:
                    return await do_nothing(provider, task)
                return (await play(provider, task, turns)).score

        return await asyncio.gather(*(score(*attempt) for attempt in attempts), return_exceptions=True)


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_a_script_solves_a_task_and_doing_nothing_does_not(scores, name):
    assert scores[name] == [0.0, 1.0]


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("name", OFFICE)
def test_documents_are_scored_by_what_is_in_them(scores, name):
    assert scores[name] == [1.0, 0.0]


def test_each_office_task_has_two_answers_that_differ():
    assert len(TASKS) >= 20
    assert all(task.right != task.wrong and task.right[-1] == task.wrong[-1] == "DONE" for task in TASKS.values())


def test_rows_are_counted_by_application():
    rows = [
        {"app": "os", "runs": True, "reason": "", "nothing_score": 0.0, "solution_score": 1.0},
        {"app": "os", "runs": True, "reason": "", "infeasible": True, "nothing_score": 0.0, "solution_score": 1.0},
        {"app": "os", "runs": False, "reason": "installs software: a"},
        {"app": LIST, "runs": True, "reason": "", "nothing_score": 0.0, "solution_score": 1.0, "wrong_score": 0.0},
    ]
    found = summary(rows)
    assert (found["listed"], found["run"], found["solved"], found["infeasible"]) == (3, 2, 1, 1)
    assert (found["office"], found["office_right"], found["office_wrong"]) == (1, 1, 1)
    assert by_application("os", rows)["reasons"] == "1: installs software"
