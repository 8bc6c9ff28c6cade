"""What a run is offered: the tasks of its source, less those that are left out, and spares that fit its hosts."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.run.prepare import prepare, refuse_missing_packages


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
        return [task.id for task in prepare(load("dart", overrides=[*source, *overrides])).tasks]

    return ids


def test_a_task_whose_answer_can_forge_its_score_is_left_out(offered, caplog):
    with caplog.at_level(logging.WARNING):
        assert offered() == ["plain", "other"]
    assert "left out code: the metric runs the agent's answer" in caplog.text


def test_a_run_without_tasks_is_refused(offered, tmp_path):
    with pytest.raises(ConfigError, match=r"tasks\.source"):
        offered('tasks.exclude=["plain", "other"]')
    (tmp_path / "list.json").write_text("{}")
    with pytest.raises(TaskFileError, match=r"list\.json"):
        offered()


def test_a_modeled_cluster_has_as_many_spares_as_its_memory_holds(caplog):
    changes = [
        "rollout.num_envs=38",
        "rollout.warm_envs=6",
        "cluster.hosts.count=2",
        "cluster.env.latency.memory_gib=4",
    ]
    roomy = prepare(load("dart", overrides=[*changes, "cluster.hosts.memory_gib=100.0"]))
    assert roomy.config.rollout.num_desktops == 44
    with caplog.at_level(logging.WARNING):
        tight = prepare(load("dart", overrides=[*changes, "cluster.hosts.memory_gib=83.0"]))
    assert (tight.config.rollout.num_envs, tight.config.rollout.warm_envs) == (38, 2)
    assert "2 of 6 spare desktops (rollout.warm_envs) fit into the memory of the hosts beside 38" in caplog.text
    reserve = "rollout.host_reserve_gib=5.0"
    kept = prepare(load("dart", overrides=[*changes, "cluster.hosts.memory_gib=83.0", reserve]))
    assert kept.config.rollout.warm_envs == 0


def test_tasks_are_left_out_by_id(offered):
    assert offered('tasks.exclude=["other"]') == ["plain"]
    with pytest.raises(ConfigError, match="names nobody, which are not among the tasks"):
        offered('tasks.exclude=["nobody"]')


@pytest.mark.parametrize("change", ["backend.desktops=desktop", "backend.workers=vllm"])
def test_a_package_that_a_backend_needs_is_looked_for_first(monkeypatch, change):
    monkeypatch.setitem(sys.modules, "httpx", None)
    config = load("desktop" if "desktops" in change else "tiny", overrides=[change])
    with pytest.raises(ConfigError, match=r"need .*httpx, not installed here: pip install .*\[real\]"):
        refuse_missing_packages(config)
    refuse_missing_packages(load("dart"))
