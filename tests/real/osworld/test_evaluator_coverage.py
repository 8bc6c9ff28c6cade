"""Every task file that is there: its steps, getters and metrics are known, and it is told who can score it."""

import os
from pathlib import Path

import pytest

from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.core.types import Task
from dartsim.envs.tasks import load_suite
from dartsim.real.osworld.coverage import ScoredBy, check_task, coverage, needs_desktop_env
from dartsim.real.osworld.needs import offer_of
from dartsim.real.scoring import ScorerFacts

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
        (GOOD, ScoredBy.BUILTIN, ()),
        ({"func": "infeasible"}, ScoredBy.BUILTIN, ()),
        (GOOD | {"func": "compare_pdfs"}, ScoredBy.DESKTOP_ENV, ("metric compare_pdfs",)),
        (GOOD | {"result": {"type": "history", "dest": "h"}}, ScoredBy.DESKTOP_ENV, ("getter history",)),
        (
            GOOD | {"func": "compare_text_file", "options": {"strict": 1}},
            ScoredBy.DESKTOP_ENV,
            ("metric compare_text_file",),
        ),
        (
            {"func": ["exact_match", "compare_pdfs"], "result": [SAYS, SAYS], "options": [None, {}]},
            ScoredBy.DESKTOP_ENV,
            ("metric compare_pdfs",),
        ),
    ],
)
def test_who_can_score_a_task(evaluator, by, why):
    assert verdict(task(evaluator)) == (by, why)


def test_a_file_to_upload_has_to_be_there(tmp_path):
    steps = [{"type": "upload_file", "parameters": {"files": [{"local_path": "a.txt", "path": "/home/user/a.txt"}]}}]
    for given in (task(config=steps), task(GOOD | {"postconfig": steps})):
        assert coverage([given], folder=tmp_path).problems().keys() == {"os/t"}
    (tmp_path / "a.txt").touch()
    assert coverage([task(config=steps)], folder=tmp_path).problems() == {}


def test_an_environment_may_lack_something():
    facts = ScorerFacts("desktop-env 9", "3.11", {"compare_pdfs": ["fitz"], "compare_audios": []})
    assert verdict(task(GOOD | {"func": "compare_pdfs"}), facts) == (
        ScoredBy.UNSUPPORTED,
        ("metric compare_pdfs: fitz is not installed",),
    )
    assert verdict(task(GOOD | {"func": "compare_audios"}), facts)[0] is ScoredBy.DESKTOP_ENV
    assert verdict(task(), facts)[0] is ScoredBy.BUILTIN
    for lacking in (
        {"func": "compare_cats"},
        {"func": "compare_audios", "options": {"a": 1, "_remark": 1}},
        {"result": {"type": "history", "dest": "h"}},
    ):
        assert verdict(task(GOOD | lacking), facts)[0] is ScoredBy.UNSUPPORTED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (task(GOOD | {"func": "compare_cats"}), "compare_cats"),
        (task(GOOD | {"func": ["infeasible"]}), "infeasible"),
        (task(GOOD | {"result": {"type": "cat"}}), "getter cat"),
        (task(GOOD | {"postconfig": [{"type": "cat"}]}), "cat"),
        (task(config=[{"type": "login", "parameters": {}}]), "login"),
        (task(GOOD | {"result": {"type": "vm_file", "path": "/a", "dest": "/a"}}), "'/a'"),
        (Task("t", "do it"), "evaluator"),
    ],
)
def test_a_task_that_cannot_be_run_is_refused(given, message):
    with pytest.raises(TaskFileError, match=message):
        check_task(given, ScorerFacts("desktop-env 9"))


def test_a_task_that_needs_the_evaluator_says_so():
    given = task(GOOD | {"func": "compare_pdfs"})
    check_task(given, ScorerFacts("desktop-env 9", metrics={"compare_pdfs": []}))
    with pytest.raises(ConfigError, match="compare_pdfs"):
        check_task(given)
    check_task(task())
    assert needs_desktop_env(given)
    assert not needs_desktop_env(task())


def test_counts_by_domain():
    found = coverage([task(), task({"func": "infeasible"}, domain="vlc"), task(GOOD | {"func": "compare_pdfs"})])
    assert found.domains() == ["os", "vlc"]
    assert found.counts() == {ScoredBy.BUILTIN: 2, ScoredBy.DESKTOP_ENV: 1, ScoredBy.UNSUPPORTED: 0}
    assert found.counts("vlc") == {ScoredBy.BUILTIN: 1, ScoredBy.DESKTOP_ENV: 0, ScoredBy.UNSUPPORTED: 0}
    assert found.reasons(ScoredBy.DESKTOP_ENV) == {"metric compare_pdfs": 1}


def test_an_option_that_osworld_ignores_is_no_obstacle():
    facts = ScorerFacts("desktop-env 9", metrics={"compare_references": []}, options={"compare_references": ["a"]})
    given = task(GOOD | {"func": "compare_references", "options": {"a": 1, "content_only": True}})
    assert coverage([given], facts).problems() == {}
    unknown = coverage([task(GOOD | {"func": "compare_references", "options": {"b": 1}})], facts)
    assert unknown.problems() == {"os/t": "metric compare_references: desktop-env 9 does not know its option b"}


@needs_osworld
def test_every_osworld_task_is_understood():
    suite = load_suite(OSWORLD, "test_all", missing="skip")
    found = coverage(suite.tasks)
    refused = found.reasons(ScoredBy.UNSUPPORTED)
    assert [why for why in refused if "Google account" not in why and "proxy" not in why] == []
    if len(suite.tasks) == 268:
        # Those of the multi_apps domain are not among them.
        assert found.counts()[ScoredBy.UNSUPPORTED] == 0
        on_apps = coverage(suite.tasks, offer=offer_of("apps")).states()
        assert list(on_apps.values()) == [44, 201, 23, 0]
        assert len(suite.missing) == 101
