"""Which tasks a run is offered: those of its source, less those that are left out."""

from __future__ import annotations

import json
import logging

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.run.prepare import prepare


@pytest.fixture
def offered(tmp_path):
    """Return the ids of the tasks that a configuration offers, of a folder with three."""
    evaluators = {
        "plain": "exact_match",
        "code": ["exact_match", "check_python_file_by_test_suite"],
        "other": "check_list",
    }
    (tmp_path / "examples/os").mkdir(parents=True)
    for name, func in evaluators.items():
        spec = {"id": name, "instruction": "do it", "evaluator": {"func": func}}
        (tmp_path / f"examples/os/{name}.json").write_text(json.dumps(spec))
    (tmp_path / "list.json").write_text(json.dumps({"os": list(evaluators)}))

    def ids(*overrides):
        source = ("tasks.source=osworld", f"tasks.folder={tmp_path}", "tasks.list_name=list")
        return [task.id for task in prepare(load(preset_name="dart", overrides=[*source, *overrides])).tasks]

    return ids


def test_a_task_whose_answer_can_forge_its_score_is_left_out_unless_a_setting_keeps_it(offered, caplog):
    with caplog.at_level(logging.WARNING):
        assert offered() == ["plain", "other"]
    assert "left out code: the metric runs the agent's answer" in caplog.text
    assert offered("tasks.forgeable=true") == ["plain", "code", "other"]


def test_tasks_are_left_out_by_id(offered):
    assert offered('tasks.exclude=["other"]') == ["plain"]
    with pytest.raises(ConfigError, match="names nobody, which are not among the tasks"):
        offered('tasks.exclude=["nobody"]')
