"""Panel tasks: drawn from the seed, in the schema, solved by a click on the button and by nothing else."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest

from dartsim.config import load
from dartsim.real.desktop.tasks.panel import COLUMNS, PAGES, page_tasks, panel_tasks
from dartsim.run.prepare import prepare


def test_tasks_are_drawn_from_the_seed():
    tasks = panel_tasks(40, 3)
    assert tasks == panel_tasks(40, 3)
    assert tasks[:10] == panel_tasks(10, 3)
    assert len({task.id for task in [*tasks, *panel_tasks(40, 3, held_out=True)]}) == 80
    assert {tuple(task.spec["targets"][0]) for task in tasks} == {
        (x, y) for x in range(COLUMNS) for y in range(COLUMNS)
    }


def test_tasks_of_several_pages_are_drawn_from_the_seed_and_each_turn_shows():
    tasks = page_tasks(40, 3)
    assert tasks == page_tasks(40, 3)
    assert len({task.id for task in [*tasks, *page_tasks(40, 3, held_out=True)]}) == 80
    assert {len(task.spec["targets"]) for task in tasks} == set(range(min(PAGES), max(PAGES) + 1))
    for task in tasks:
        *pages, end = json.loads(task.spec["config"][0]["parameters"]["command"][1])["pages"]
        cells = [[item["kind"] for item in page].index("button") for page in pages]
        assert [[cell % COLUMNS, cell // COLUMNS] for cell in cells] == task.spec["targets"]
        assert all(one != other for one, other in pairwise(cells))
        assert "button" not in {item["kind"] for item in end}


PANEL = (
    'backend.desktops="desktop"',
    'backend.workers="local"',
    'backend.learner="local"',
    'tasks.source="desktop"',
    'tasks.desktop="panel"',
    "tasks.count=9",
    "tasks.held_out=0",
    "desktop.width=224",
    "desktop.height=224",
    'run.target_success="none"',
)


@pytest.mark.docker
def test_the_red_buttons_turn_the_pages_and_clicks_beside_them_do_not(desktop_image, tmp_path):
    pytest.importorskip("torch", reason="needs the extra `train`")
    from dartsim.real.osworld.backend import open_desktops

    prepared = prepare(load("tiny", overrides=[*PANEL, 'tasks.desktop="pages"']))
    task = prepared.tasks[0]
    right = [f"click {x} {y}" for x, y in task.spec["targets"]]

    async def main():
        async def score_of(actions, slot):
            desktop = await provider.start(slot)
            await desktop.reset(task, seed=0)
            over = [(await desktop.step(action)).over for action in actions]
            assert over == [action == "done" for action in actions]
            score = await desktop.evaluate()
            await desktop.close()
            return score

        x, y = task.spec["targets"][1]
        beside = f"click {(x + 1) % COLUMNS} {y}"
        played = ([*right, "done"], [right[0], beside, *right[1:]], [*right[:-1], beside, "done"])
        async with open_desktops(prepared.config, prepared.tasks, cache=Path(tmp_path)) as provider:
            return await asyncio.gather(*(score_of(actions, slot) for slot, actions in enumerate(played)))

    assert asyncio.run(main()) == [1.0, 1.0, 0.0]
