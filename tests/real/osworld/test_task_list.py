"""Tasks that will not run are all named with their reasons, before anything starts, and refused or left out."""

import json

import pytest

pytest.importorskip("httpx")

from dartsim.config import load
from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.real.osworld.task_list import check_list, supported_tasks
from dartsim.run.prepare import prepare, prepare_run

RULE = {"type": "rule", "rules": {"expected": "a"}}
GOOD = {"func": "exact_match", "result": {"type": "vm_command_line", "command": "say"}, "expected": RULE}
SPECS = {
    "good": {"evaluator": GOOD},
    "login": {"evaluator": GOOD, "config": [{"type": "login", "parameters": {}}]},
    "getter": {"evaluator": GOOD | {"result": {"type": "googledrive_file", "path": "a", "dest": "a"}}},
    "forged": {"evaluator": GOOD | {"func": "check_python_file_by_test_suite"}},
}


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Return a function that configures a run on a list of tasks; there is no evaluator."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "examples/os").mkdir(parents=True)
    for name, spec in SPECS.items():
        (tmp_path / f"examples/os/{name}.json").write_text(json.dumps({"id": name, "instruction": "do it", **spec}))
    (tmp_path / "examples/os/torn.json").write_text("{")

    def make(*overrides, names=(*SPECS, "torn", "gone")):
        (tmp_path / "small.json").write_text(json.dumps({"os": names}))
        changes = (f"tasks.folder={tmp_path}", "tasks.list_name=small", *overrides)
        return load("osworld-8gpu", overrides=["tasks.unsupported=refuse", *changes])

    return make


def test_every_task_that_will_not_run_is_named_with_its_reason(configured):
    found = check_list(configured())
    assert (found.num_listed, found.num_run) == (6, 1)
    assert set(found.problems) == {"os/login", "os/getter", "os/forged", "os/torn", "os/gone"}
    assert set(found.refused) == {"os/login", "os/getter", "os/torn", "os/gone"}


def test_what_is_left_out_is_not_refused(configured):
    found = check_list(configured("tasks.unsupported=skip"))
    assert found.num_run == 1
    assert found.refused == ()
    assert check_list(configured('tasks.exclude=["torn"]')).num_listed == 5
    with pytest.raises(ConfigError, match="exclude names nobody"):
        check_list(configured('tasks.exclude=["nobody"]'))


def test_a_run_refuses_all_at_once_or_leaves_them_out(configured):
    names = ("good", "login", "getter")
    with pytest.raises(TaskFileError, match=r"(?s)os/login.*os/getter"):
        prepare_run(configured(names=names))
    (left,) = prepare_run(configured("tasks.unsupported=skip", names=(*names, "torn"))).tasks
    assert left.id == "good"
    with pytest.raises(ConfigError):
        prepare_run(configured("tasks.unsupported=skip", names=names[1:]))


def test_tasks_are_held_out_among_those_that_can_run(configured, tmp_path):
    for number in range(9):
        for name in ("good", "login"):
            spec = {"id": f"{name}{number}", "instruction": "do it", **SPECS[name]}
            (tmp_path / f"examples/os/{name}{number}.json").write_text(json.dumps(spec))
    names = [f"{name}{number}" for name in ("good", "login") for number in range(9)]
    prepared = prepare_run(configured("tasks.unsupported=skip", "tasks.held_out=3", names=names))
    assert (len(prepared.tasks), len(prepared.held_out)) == (6, 3)
    assert all(task.id.startswith("good") for task in prepared.held_out)


def test_a_task_that_needs_the_evaluator_asks_for_it_before_anything_starts(configured, tmp_path):
    spec = {"id": "pdf", "instruction": "do it", "evaluator": GOOD | {"func": "compare_pdfs"}}
    (tmp_path / "examples/os/pdf.json").write_text(json.dumps(spec))
    config = configured(names=("good", "pdf"))
    with pytest.raises(ConfigError, match="dartsim desktop evaluator"):
        prepare_run(config)
    found = check_list(config)
    assert found.num_run == 2
    assert found.scorer is None
    assert found.scorer_problem
    assert [task.id for task in supported_tasks(config, prepare(config).tasks, None)] == ["good", "pdf"]


def test_what_the_desktops_lack_is_left_out_by_name(configured, tmp_path):
    opens = [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://example.com"]}}]
    more = {"web": {"config": opens}, "editor": {"related_apps": ["vscode"]}}
    for name, spec in more.items():
        spec = {"id": name, "instruction": "do it", "evaluator": GOOD} | spec
        (tmp_path / f"examples/os/{name}.json").write_text(json.dumps(spec))
    names = ("good", *more)
    found = check_list(configured(names=names))
    assert (found.num_run, found.num_internet, found.problems) == (3, 1, {})
    changes = ("tasks.internet=false", "tasks.unsupported=skip", "backend.desktops=desktop")
    config = configured(*changes, names=names)
    found = check_list(config)
    assert (found.num_run, found.num_internet) == (1, 0)
    assert set(found.problems) == {"os/web", "os/editor"}
    assert [task.id for task in supported_tasks(config, prepare(config).tasks, None)] == ["good"]
