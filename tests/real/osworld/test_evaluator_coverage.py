"""Every task file that is there: its steps, getters and metrics are known, and it is told who can score it."""

import json
import os
from pathlib import Path

import pytest

from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.core.types import Task
from dartsim.envs.tasks import load_suite
from dartsim.real.osworld.coverage import By, check_task, coverage
from dartsim.real.osworld.evaluator import EvaluatorFacts

OSWORLD = Path(os.environ.get("DARTSIM_OSWORLD_TASKS", Path(__file__).parents[4] / "shared/data/osworld_tasks"))
needs_osworld = pytest.mark.skipif(not OSWORLD.is_dir(), reason="OSWorld's task files are not here")

RULE = {"type": "rule", "rules": {"expected": "a"}}
SAYS = {"type": "vm_command_line", "command": "say"}
GOOD = {"func": "exact_match", "result": SAYS, "expected": RULE}


def task(evaluator=GOOD, config=(), task_id="t", domain="os"):
    return Task(task_id, "do it", domain, {"id": task_id, "config": list(config), "evaluator": evaluator})


def verdict(given, facts=None):
    (found,) = coverage([given], facts).verdicts
    return found.by, found.why


@pytest.mark.parametrize(
    ("evaluator", "by", "why"),
    [
        (GOOD, By.BUILTIN, ()),
        ({"func": "infeasible"}, By.BUILTIN, ()),
        (GOOD | {"func": "compare_pdfs"}, By.DESKTOP_ENV, ("metric compare_pdfs",)),
        (GOOD | {"result": {"type": "history", "dest": "h"}}, By.DESKTOP_ENV, ("getter history",)),
        (GOOD | {"func": "check_play_and_exit"}, By.BUILTIN, ()),
        (
            GOOD | {"result": {"type": "chrome_appearance_mode_ui"}},
            By.NOBODY,
            ("getter chrome_appearance_mode_ui: desktop-env 1.0.2 does not have it",),
        ),
        (
            GOOD | {"func": "compare_pptx_files", "options": {"examine_run_count": False, "examine_shape": True}},
            By.NOBODY,
            ("metric compare_pptx_files: desktop-env 1.0.2 does not know its option examine_run_count",),
        ),
        (
            {"func": ["exact_match", "compare_pdfs"], "result": [SAYS, SAYS], "options": [None, {}]},
            By.DESKTOP_ENV,
            ("metric compare_pdfs",),
        ),
    ],
)
def test_who_can_score_a_task(evaluator, by, why):
    assert verdict(task(evaluator)) == (by, why)


def test_an_environment_may_lack_something():
    facts = EvaluatorFacts("9", "3.11", {"compare_pdfs": ["fitz"], "compare_audios": []}, {}, {"compare_audios": []})
    assert verdict(task(GOOD | {"func": "compare_pdfs"}), facts) == (
        By.NOBODY,
        ("metric compare_pdfs: fitz is not installed",),
    )
    assert verdict(task(GOOD | {"func": "compare_audios"}), facts)[0] is By.DESKTOP_ENV
    assert verdict(task(), facts)[0] is By.BUILTIN


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (task(GOOD | {"func": "compare_cats"}), r"task t \(os\): the metric 'compare_cats' is unknown"),
        (task(GOOD | {"func": ["infeasible"]}), "'infeasible' is unknown, or is not one of several"),
        (task(GOOD | {"result": {"type": "cat"}}), "the getter 'cat' is unknown"),
        (task(GOOD | {"postconfig": [{"type": "cat"}]}), r"step 1 of 1 \(cat\) is unknown"),
        (task(config=[{"type": "cat"}]), r"step 1 of 1 \(cat\) is unknown; known are activate_window, "),
        (task(config=[{"type": "login", "parameters": {}}]), "signs in to a Google account"),
        (task(GOOD | {"result": {"type": "vm_file", "path": "/a", "dest": "/a"}}), "found the file name '/a'"),
        (Task("t", "do it"), "it has no evaluator"),
    ],
)
def test_a_task_that_cannot_be_run_is_refused(given, message):
    with pytest.raises(TaskFileError, match=message):
        check_task(given, evaluator=True)


def test_a_task_that_needs_the_evaluator_says_so():
    given = task(GOOD | {"func": "compare_pdfs"})
    check_task(given, evaluator=True)
    with pytest.raises(ConfigError, match="needs metric compare_pdfs of desktop-env; make its environment with"):
        check_task(given)
    check_task(task())


def test_counts_by_domain():
    found = coverage([task(), task({"func": "infeasible"}, domain="vlc"), task(GOOD | {"func": "compare_pdfs"})])
    assert found.domains() == ["os", "vlc"]
    assert found.counts() == {By.BUILTIN: 2, By.DESKTOP_ENV: 1, By.NOBODY: 0}
    assert found.counts("vlc") == {By.BUILTIN: 1, By.DESKTOP_ENV: 0, By.NOBODY: 0}
    assert found.reasons(By.DESKTOP_ENV) == {"metric compare_pdfs": 1}


@needs_osworld
def test_every_osworld_task_is_understood():
    suite = load_suite(OSWORLD, "test_all", missing="skip")
    found = coverage(suite.tasks)
    unknown = [why for why in found.reasons(By.NOBODY) if "desktop-env 1.0.2 does not" not in why]
    assert [why for why in unknown if "Google account" not in why and "proxy" not in why] == []
    if len(suite.tasks) == 268:
        # Those of the multi_apps domain are not among them.
        assert found.counts() == {By.BUILTIN: 124, By.DESKTOP_ENV: 141, By.NOBODY: 3}
        assert len(suite.missing) == 101


@needs_osworld
def test_every_placeholder_of_osworld_is_filled(fakes, tmp_path):
    desk = fakes.folder(tmp_path).desk
    for given in load_suite(OSWORLD, "test_all", missing="skip").tasks:
        for step in [*given.spec.get("config", ()), *given.spec["evaluator"].get("postconfig", ())]:
            if step["type"] == "execute":
                filled = json.dumps(desk.fill(step["parameters"]["command"]))
                assert "{SCREEN" not in filled
                assert "{CLIENT" not in filled
