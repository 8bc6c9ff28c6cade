"""Evaluations in virtual time: resumed, masked, stopped; and the folder that OSWorld's show_result.py reads."""

from __future__ import annotations

import ast
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dartsim.config import Config, load
from dartsim.core.errors import ConfigError
from dartsim.core.png import check_png
from dartsim.core.types import Attempt, Ending, Observation, Reply, Task, Trajectory, Turn
from dartsim.run import policy_evaluation
from dartsim.run.evaluation_results import AttemptKey, EvaluationFolder, EvaluationPlan, identity_of
from dartsim.run.policy_evaluation import EvaluationStopped, evaluate_policy, evaluation_figures
from dartsim.run.prepare import prepare

SIZES = ("tasks.count=6", "rollout.num_envs=4", "rollout.num_workers=2")


def evaluated(path: Path, *changes: str, on_step: Any = None, **options: Any) -> tuple[EvaluationPlan, dict[Any, Any]]:
    prepared = prepare(load("dart", overrides=[*SIZES, *changes]))
    plan = EvaluationPlan(tasks=prepared.tasks, steps=options.pop("steps", [15]), **options)
    folder = EvaluationFolder(path, "surrogate")
    with pytest.MonkeyPatch.context() as patch:  # a thousand equal screenshots of 1080p take seconds
        patch.setattr("dartsim.run.evaluation_results.png_of", lambda screen: b"PNG")
        return plan, evaluate_policy(prepared, plan, folder, "none", on_step=on_step)


def scores_like_show_result(result_dir: Path, model: str) -> dict[str, list[float]]:
    """Return the scores by domain, as OSWorld's show_result.py finds them."""
    target = result_dir / "pyautogui" / "screenshot" / model
    found: dict[str, list[float]] = {}
    for domain in target.iterdir():
        for example in domain.iterdir():
            if domain.is_dir() and example.is_dir() and "result.txt" in [each.name for each in example.iterdir()]:
                found.setdefault(domain.name, []).append(float((example / "result.txt").read_text()))
    return found


def test_every_attempt_of_every_budget_has_a_result_that_osworld_s_script_finds(tmp_path: Path):
    plan, results = evaluated(tmp_path, steps=[5, 30], attempts=2)
    figures = evaluation_figures(plan, results)
    assert [budget["steps"] for budget in figures["budgets"]] == [5, 30]
    for budget in figures["budgets"]:
        assert (budget["tasks"], budget["attempts"], budget["missing"], budget["masked"]) == (6, 12, 0, {})
        assert set(budget["domains"]) == {"generated"}
        found = [
            scores_like_show_result(tmp_path / f"steps-{budget['steps']}" / f"attempt-{n}", "surrogate") for n in (1, 2)
        ]
        assert sum(map(sum, (each["generated"] for each in found))) / 12 == pytest.approx(budget["success_rate"])
    assert max(result.turns for key, result in results.items() if key.steps == 5) <= 5


def test_scored_attempts_are_kept_and_no_desktop_is_started_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, results = evaluated(tmp_path, attempts=1)
    more: list[tuple[int, int, int]] = []
    _, again = evaluated(tmp_path, attempts=2, on_step=lambda *counts: more.append(counts))
    assert more[0] == (6, 0, 12)
    assert more[-1] == (12, 0, 12)
    assert {key: again[key] for key in results} == results

    def never(*_: Any) -> None:
        raise AssertionError("nothing is left to attempt")

    monkeypatch.setattr(policy_evaluation, "open_desktops", never)
    _, kept = evaluated(tmp_path, attempts=2)
    assert kept == again


def test_a_masked_attempt_is_made_again_and_never_counts_as_a_failure(tmp_path: Path):
    faults = ("cluster.faults.profile=hostile", "tasks.count=12")
    plan, results = evaluated(tmp_path, *faults, tries=1)
    masked = {key: result for key, result in results.items() if result.score is None}
    assert masked
    assert all(result.cause for result in masked.values())
    (budget,) = evaluation_figures(plan, results)["budgets"]
    assert budget["attempts"] == 12 - len(masked)
    assert sum(budget["masked"].values()) == len(masked)
    found = scores_like_show_result(tmp_path / "steps-15" / "attempt-1", "surrogate")
    assert len(found["generated"]) == 12 - len(masked)
    _, again = evaluated(tmp_path, "tasks.count=12", tries=1)  # its faults are over
    assert all(result.score is not None for result in again.values())
    assert {key: again[key] for key in results if key not in masked} == {
        key: result for key, result in results.items() if key not in masked
    }
    plan, results = evaluated(tmp_path / "patient", *faults, tries=9)
    (budget,) = evaluation_figures(plan, results)["budgets"]
    assert (budget["attempts"], budget["masked"]) == (12, {})


def test_an_evaluation_in_which_everything_is_masked_stops_and_keeps_its_place(tmp_path: Path):
    never = ("rollout.limits.setup_seconds=0.5", "tasks.count=12")
    with pytest.raises(EvaluationStopped, match=r"the last 8 attempts were all masked \(setup timed out: 8\)"):
        evaluated(tmp_path, *never)
    plan, results = evaluated(tmp_path, "tasks.count=12")
    assert evaluation_figures(plan, results)["budgets"][0]["attempts"] == 12


# ---- the folder

TASK = Task("abc-1", "Close it.", "vlc", {"id": "abc-1"})
KEY = AttemptKey(50, 1, "vlc", "abc-1")


def ended(actions: list[str], reward: float | None, ending: Ending, cause: str | None = None) -> Trajectory:
    shots = [np.full((8, 12, 3), number, dtype=np.uint8) for number in range(len(actions))]
    turns = [
        Turn(Observation(shot, "Close it."), Reply(action, 0, 0, 0, 9, 3))
        for shot, action in zip(shots, actions, strict=True)
    ]
    return Trajectory(Attempt(0, TASK, 0, 0, 7, 50, 0), tuple(turns), ending, reward, cause, 1.0, 3.5)


def ui_tars(*changes: str) -> Config:
    given = ["policy.grammar=ui_tars", "backend.desktops=mock", "backend.workers=endpoint", "backend.learner=local"]
    given += ['endpoint.url="http://127.0.0.1:1/v1"', 'endpoint.model="m"', *changes]
    return load("tiny", overrides=given)


def test_the_layout_is_osworld_s(tmp_path: Path):
    folder = EvaluationFolder(tmp_path, "org/model 1")
    trajectory = ended(
        ["Thought: x\nAction: click(start_box='(500,500)')", "what?", "Action: wait()", "Action: finished()"],
        0.5,
        Ending.DONE,
    )
    last = np.full((8, 12, 3), 9, dtype=np.uint8)
    screens = [*(turn.observation.screenshot for turn in trajectory.turns), last]
    config = ui_tars()
    written = folder.write(KEY, trajectory, screens, lambda text: policy_evaluation.osworld_code(config, text))
    example = tmp_path / "steps-50/attempt-1/pyautogui/screenshot/org-model-1/vlc/abc-1"
    names = sorted(file.name for file in example.iterdir())
    assert names == ["attempt.json", "result.txt", *(f"step_{n}.png" for n in range(5)), "traj.jsonl"]
    assert (example / "result.txt").read_text() == "0.5\n"
    assert check_png((example / "step_4.png").read_bytes()) == (12, 8)
    rows = [json.loads(line) for line in (example / "traj.jsonl").read_text().splitlines()]
    assert [row["step_num"] for row in rows] == [1, 2, 3, 4]
    assert [row["screenshot_file"] for row in rows] == ["step_1.png", "step_2.png", "step_3.png", "step_4.png"]
    assert [row["done"] for row in rows] == [False, False, False, True]
    assert [row["reward"] for row in rows] == [0.0, 0.0, 0.0, 0.5]
    code, unreadable, wait, done = (row["action"] for row in rows)
    assert ast.parse(code)
    assert code.startswith("pyautogui.click(")
    assert (unreadable, wait, done) == ("what?", "WAIT", "DONE")
    assert folder.read(KEY) == written
    assert scores_like_show_result(tmp_path / "steps-50" / "attempt-1", "org-model-1") == {"vlc": [0.5]}


def test_a_masked_attempt_has_no_result_and_its_folder_is_replaced(tmp_path: Path):
    folder = EvaluationFolder(tmp_path, "m")
    masked = folder.write(KEY, ended(["a", "b"], None, Ending.BROKEN, "lost"), [], str)
    assert (masked.score, masked.cause, masked.turns, masked.seconds) == (None, "lost", 2, 2.5)
    assert folder.read(KEY) == masked
    assert not (folder.folder(KEY) / "result.txt").exists()
    (folder.folder(KEY).with_name(".abc-1.part")).mkdir()  # of a process that was killed as it wrote
    folder.write(KEY, ended(["a"], 1.0, Ending.DONE), [], str)
    assert folder.read(KEY).score == 1.0
    assert [each.name for each in folder.folder(KEY).parent.iterdir()] == ["abc-1"]


def claimed(path: Path, config: Config | None = None, tasks: tuple[Task, ...] = (TASK,), weights: str = "w") -> None:
    config = config or ui_tars()
    folder, identity = EvaluationFolder(path, "m"), identity_of(config, tasks, "m", weights)
    folder.check(identity)
    folder.claim(identity, config)


def test_the_same_evaluation_goes_on_with_other_machines(tmp_path: Path):
    claimed(tmp_path)
    other = ['endpoint.url="http://127.0.0.1:2/v1"', "rollout.num_envs=3"]
    claimed(tmp_path, ui_tars(*other))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"config": ("policy.temperature=0", "policy.max_images=3", "policy.max_texts=3")},
            "policy.temperature = 1.0, now 0",
        ),
        ({"weights": "others"}, "of other weights"),
        ({"tasks": (Task("abc-1", "Close it.", "vlc", {"id": "abc-1", "config": [1]}),)}, "of other tasks"),
        ({"tasks": ()}, "of other tasks"),
    ],
)
def test_results_of_another_evaluation_are_refused_and_kept(tmp_path: Path, change: dict[str, Any], said: str):
    claimed(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    options = {**change, "config": ui_tars(*change.get("config", ()))}
    with pytest.raises(ConfigError, match=said):
        claimed(tmp_path, **options)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("evaluation.json", '{"schema": 7, "settings": {}}', "of another version"),
        ("evaluation.json", "[]", "is damaged"),
        ("evaluation.json", '{"schema"', "is damaged"),
        ("pyautogui.txt", "", "it is no evaluation to go on with"),
    ],
)
def test_a_folder_of_something_else_is_refused_and_kept(tmp_path: Path, name: str, content: str, said: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=said):
        claimed(tmp_path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, content)]


@pytest.mark.parametrize("content", ['{"turns": "many"}', '{"score"', "[]", "[" * 9999])
def test_a_result_that_was_not_written_here_is_refused(tmp_path: Path, content: str):
    folder = EvaluationFolder(tmp_path, "m")
    written = folder.write(KEY, ended(["a"], 1.0, Ending.DONE), [], str)
    (folder.folder(KEY) / "attempt.json").write_text(content)
    with pytest.raises(ConfigError, match="is not as `dartsim eval` writes it"):
        folder.read(KEY)
    (folder.folder(KEY) / "attempt.json").write_text(json.dumps(asdict(written) | {"score": 7.0}))
    with pytest.raises(ConfigError, match="is not as `dartsim eval` writes it"):
        folder.read(KEY)
