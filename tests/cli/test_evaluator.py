import json

import pytest
from typer.testing import CliRunner

from dartsim.cli.app import app

RULE = {"type": "rule", "rules": {"expected": "a"}}
SAYS = {"type": "vm_command_line", "command": "say"}


@pytest.fixture
def tasks(tmp_path):
    """A folder of three tasks, and an empty cache."""
    names = {"t1": "exact_match", "t2": "compare_pdfs", "t3": "compare_cats"}
    (tmp_path / "examples/os").mkdir(parents=True)
    for name, func in names.items():
        spec = {"id": name, "instruction": "do it", "evaluator": {"func": func, "result": SAYS, "expected": RULE}}
        (tmp_path / f"examples/os/{name}.json").write_text(json.dumps(spec))
    (tmp_path / "test_all.json").write_text(json.dumps({"os": [*names, "gone"]}))
    return tmp_path


def invoke(*arguments, home):
    return CliRunner().invoke(app, ["osworld", *map(str, arguments)], env={"XDG_CACHE_HOME": str(home)})


def test_check_prints_a_table(tasks, tmp_path):
    result = invoke("check", tasks, home=tmp_path)
    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines() if line.startswith("all")] == [
        ["all", "│", "1", "│", "2", "│", "0"]
    ]
    assert "desktop-env: not installed" in result.output
    assert "1 tasks of the list have no file" in result.output


def test_check_gives_json(tasks, tmp_path):
    result = invoke("check", tasks, "--json", "-", home=tmp_path)
    assert json.loads(result.stdout) == {
        "counts": {"builtin": 1, "desktop-env": 2, "unsupported": 0},
        "domains": {"os": {"builtin": 1, "desktop-env": 2, "unsupported": 0}},
        "reasons": {
            "desktop-env": {"metric compare_cats": 1, "metric compare_pdfs": 1},
            "unsupported": {},
        },
        "scorer": None,
        "missing": ["os/gone"],
        "unreadable": {},
    }


def test_a_task_that_cannot_be_read_is_named(tasks, tmp_path):
    (tasks / "examples/os/t1.json").write_text('{"id": "t1"')
    result = invoke("check", tasks, home=tmp_path)
    assert "os/t1 cannot be read:" in result.output
    assert "t1.json: is not JSON" in result.output


def test_a_home_without_an_environment_is_refused(tasks, tmp_path):
    result = invoke("check", tasks, "--home", tmp_path / "none", home=tmp_path)
    assert result.exit_code != 0
    assert "wanted one made by `dartsim osworld install`" in str(result.exception)


def test_install_refuses_a_folder_with_something_in_it(tasks, tmp_path):
    result = invoke("install", "--home", tasks, home=tmp_path)
    assert result.exit_code != 0
    assert "is no virtual environment" in str(result.exception)
