"""Panel tasks: drawn from the seed, in the schema, solved by a click on the button and by nothing else."""

import asyncio
import json
from pathlib import Path

import pytest

from dartsim.config import load
from dartsim.real.desktop.tasks.panel import COLUMNS, panel_tasks
from dartsim.run.prepare import prepare


def test_tasks_are_drawn_from_the_seed():
    tasks = panel_tasks(40, 3)
    assert tasks == panel_tasks(40, 3)
    assert tasks[:10] == panel_tasks(10, 3)
    assert len({task.id for task in [*tasks, *panel_tasks(40, 3, held_out=True)]}) == 80
    assert {tuple(task.spec["target"]) for task in tasks} == {(x, y) for x in range(COLUMNS) for y in range(COLUMNS)}


def test_the_button_is_where_the_target_says():
    for task in panel_tasks(10):
        x, y = task.spec["target"]
        description = json.loads(task.spec["config"][0]["parameters"]["command"][1])
        kinds = [item["kind"] for item in description["items"]]
        assert kinds.index("button") == y * COLUMNS + x
        assert kinds.count("button") == 1


PANEL = (
    'backend.desktops="desktop"',
    'backend.workers="local"',
    'backend.learner="local"',
    'tasks.source="desktop"',
    'tasks.desktop="panel"',
    "tasks.count=9",
    "tasks.held_out=0",
    "trainer.promotion.enabled=false",
    "desktop.width=224",
    "desktop.height=224",
    'run.target_success="none"',
)


@pytest.mark.docker
def test_a_click_on_the_button_scores_and_others_do_not(desktop_image, tmp_path):
    pytest.importorskip("torch", reason="needs the extra `train`")
    from dartsim.real.osworld.backend import open_desktops

    prepared = prepare(load(preset_name="tiny", overrides=PANEL))

    async def main():
        task = prepared.tasks[0]
        x, y = task.spec["target"]

        async def score_of(action, slot):
            desktop = await provider.start(slot)
            shown = await desktop.reset(task, seed=0)
            assert shown.screenshot.shape == (112, 112, 3)
            over = (await desktop.step(action)).over
            assert over == action.startswith("click")
            score = await desktop.evaluate()
            await desktop.close()
            return score

        actions = (f"click {x} {y}", f"click {(x + 1) % 3} {y}", "wait")
        async with open_desktops(prepared.config, prepared.tasks, cache=Path(tmp_path)) as provider:
            return await asyncio.gather(*(score_of(action, slot) for slot, action in enumerate(actions)))

    assert asyncio.run(main()) == [1.0, 0.0, 0.0]
