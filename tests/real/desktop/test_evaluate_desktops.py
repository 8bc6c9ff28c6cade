"""An endpoint is evaluated on real desktops, from the command line."""

import json
from pathlib import Path

import pytest

from dartsim.core.png import check_png
from dartsim.real.desktop.tasks.panel import panel_tasks

FAKE = Path(__file__).parents[1] / "engines" / "openai_endpoint.py"
TASKS = 3


@pytest.mark.docker
def test_an_endpoint_is_evaluated_on_real_desktops(desktop_image, dartsim, module_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    targets = [task.spec["targets"][0] for task in panel_tasks(TASKS, 0, held_out=True)]
    x, y = (round((cell + 0.5) * 1000 / 3) for cell in targets[0])
    reply = f"Thought: it is red.\nAction: click(start_box='({x},{y})')"
    wanted = [float(target == targets[0]) for target in targets]
    with module_of(FAKE).endpoint(lambda messages: reply) as served:
        given = ["desktop", "--endpoint", served.url, "--model", "agent-1", "--tasks", str(TASKS)]
        assert (
            dartsim(
                "eval", *given, "--set", "rollout.num_envs=2", "--steps", "2", "--out", "out", "--json", "figures.json"
            )
            == 0
        )
    (budget,) = json.loads(Path("figures.json").read_text())["budgets"]
    assert budget["success_rate"] == pytest.approx(sum(wanted) / TASKS)
    assert budget["masked"] == {}
    examples = sorted(Path("out/steps-2/attempt-1/pyautogui/screenshot/agent-1").glob("*/*"))
    assert [float((example / "result.txt").read_text()) for example in examples] == wanted
    assert check_png((examples[0] / "step_0.png").read_bytes()) == (224, 224)
    rows = [json.loads(line) for line in (examples[0] / "traj.jsonl").read_text().splitlines()]
    assert [row["action"][:16] for row in rows] == ["pyautogui.click("]
