import copy
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dartsim.core.errors import TaskFileError
from dartsim.envs.base import is_infeasible
from dartsim.envs.tasks import TaskFile, load_suite, load_task
from dartsim.sim.task_difficulties import DOMAINS, by_domain

OSWORLD = Path(os.environ.get("DARTSIM_OSWORLD_TASKS", Path(__file__).parents[3] / "shared/data/osworld_tasks"))
needs_osworld = pytest.mark.skipif(not OSWORLD.is_dir(), reason="OSWorld's task files are not here")

GOOD = {
    "id": "a-1",
    "snapshot": "chrome",
    "instruction": "Do it.",
    "source": ["one", "two"],
    "config": [
        {"type": "launch", "parameters": {"command": ["app"]}},
        {"type": "sleep", "parameters": {"seconds": 1}},
    ],
    "trajectory": "trajectories/",
    "related_apps": ["chrome"],
    "evaluator": {
        "func": ["exact_match", "is_in"],
        "conj": "or",
        "result": [{"type": "vm_file", "path": "/x"}, {"type": "cache_file"}],
        "expected": [{"type": "rule", "rules": {}}, {"type": "rule"}],
        "options": [{}, {}],
        "postconfig": [{"type": "sleep", "parameters": {"seconds": 0.5}}],
    },
    "proxy": False,
    "fixed_ip": False,
    "possibility_of_env_change": "low",
    "hint": "none",
    "of_our_own": {"kept": [1, 2]},
}


def write(folder: Path, data, name="a-1", domain="chrome") -> Path:
    path = folder / "examples" / domain / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def write_list(folder: Path, data, name="test_nogdrive") -> None:
    (folder / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")


def test_what_osworld_does_not_read_may_be_anything(tmp_path):
    """The list names files: an id that differs is another field that nobody reads."""
    unread = {"id": "b-2", "related_apps": "chrome", "hint": ["look"], "source": 7, "proxy": None}
    task = load_task(write(tmp_path, GOOD | unread))
    assert task.id == "a-1"
    assert task.spec["id"] == "b-2"


@pytest.mark.parametrize("name", ["result", "expected", "options"])
def test_an_empty_part_of_an_evaluator_is_none(tmp_path, name):
    for evaluator in ({"func": "exact_match", name: {}}, {"func": ["exact_match"], name: []}):
        load_task(write(tmp_path, GOOD | {"evaluator": evaluator}))
    load_task(write(tmp_path, changed(["evaluator", "expected"], [{}, {"type": "rule"}])))


def changed(path, value):
    """Return the good file with one place changed; ``...`` deletes it."""
    data = copy.deepcopy(GOOD)
    *parents, last = path
    place = data
    for part in parents:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(["id"], ...), "id: field required; found nothing"),
        (changed(["instruction"], ""), "instruction: String should have at least 1 character; found ''"),
        (changed(["evaluator"], ...), "evaluator: field required; found nothing"),
        (changed(["evaluator", "conj"], "xor"), "evaluator.conj: Input should be 'and' or 'or'; found 'xor'"),
        (changed(["evaluator", "result"], [{"type": "x"}]), "result is a list of 1, but func is a list of 2"),
        (
            changed(["evaluator", "expected"], {"type": "x"}),
            "expected is a single one, but func is a list of 2",
        ),
        (changed(["evaluator", "func"], "exact_match"), "result is a list of 2, but func is a single one"),
        (changed(["evaluator", "result", 1, "type"], ...), "evaluator.result.*1.type: field required"),
        (
            changed(["evaluator", "postconfig", 0, "type"], 3),
            "evaluator.postconfig.0.type: .*valid string; found 3",
        ),
        (changed(["config", 1, "parameters"], [1]), "config.1.parameters: .*valid dict.*; found a list of 1"),
        (changed(["config"], {"type": "launch"}), "config: .*valid list; found an object with 1 keys"),
        ([GOOD], "the file: .*; found a list of 1"),
        ("{", "is not JSON: "),
        ("[" * 200_000, "is not JSON: "),
        ('{"id": ' + "9" * 5000 + "}", "is not JSON: "),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else None,
)
def test_a_bad_file_is_refused_by_name_and_field(tmp_path, data, message):
    path = write(tmp_path, data)
    with pytest.raises(TaskFileError, match=message) as caught:
        load_task(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_huge_file_is_refused_without_reading_it_whole(tmp_path):
    path = tmp_path / "a-1.json"
    with path.open("wb") as file:
        file.write(b'{"id": "a-1", "instruction": "')
        file.truncate(300 * 2**20)
    with pytest.raises(TaskFileError, match="has 314,572,800 bytes, at most 4,194,304 are read"):
        load_task(path)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(TaskFileError, match=r"no\.json"):
        load_task(tmp_path / "no.json")
    (tmp_path / "latin.json").write_bytes(b'{"id": "\xff"}')
    with pytest.raises(TaskFileError, match="'utf-8'"):
        load_task(tmp_path / "latin.json")


def places(data, path=()):
    """Every place of a JSON value that can be changed."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(places(GOOD), key=str)), st.just(...) | values),
        min_size=1,
        max_size=3,
    )
)
def test_a_mutated_file_loads_whole_or_is_refused_as_a_task_file(tmp_path, mutations):
    data = GOOD
    for path, value in mutations:
        try:
            data = _mutate(data, path, value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier mutation took the place away
    path = write(tmp_path, data)
    try:
        task = load_task(path)
    except TaskFileError:
        with pytest.raises(TaskFileError, match=re.escape(f"{path}: ")):
            load_task(path)
    else:
        assert task.spec == json.loads(path.read_text(encoding="utf-8"))
        assert TaskFile.model_validate(dict(task.spec)).id == task.id == "a-1"


def _mutate(data, path, value):
    data = copy.deepcopy(data)
    *parents, last = path
    place = data
    for part in parents:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


def test_a_suite_follows_its_list(tmp_path):
    for domain, name in [("os", "c"), ("chrome", "a"), ("os", "b")]:
        write(tmp_path, {**GOOD, "id": name}, name, domain)
    write_list(tmp_path, {"os": ["c", "b"], "chrome": ["a"]})
    suite = load_suite(tmp_path)
    assert [(task.domain, task.id) for task in suite.tasks] == [("os", "c"), ("os", "b"), ("chrome", "a")]
    assert (suite.name, suite.missing) == ("test_nogdrive", ())


def test_missing_files_are_an_error_or_counted(tmp_path):
    write(tmp_path, GOOD)
    write_list(tmp_path, {"chrome": ["a-1", "w", "x"], "os": ["y", "z"]}, "mine")
    with pytest.raises(TaskFileError, match=r"lists 5 tasks and 4 have no file .*: chrome/w, chrome/x, os/y, …; add"):
        load_suite(tmp_path, "mine")
    suite = load_suite(tmp_path, "mine", missing="skip")
    assert [task.id for task in suite.tasks] == ["a-1"]
    assert suite.missing == ("chrome/w", "chrome/x", "os/y", "os/z")


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ({"chrome": ["a-1"], "os": ["a-1"]}, "task a-1 is listed under 'chrome' and again under 'os'"),
        (["a-1"], r"wanted an object \{domain: \[task ids\]\}, found a list of 1"),
        ({"chrome": "a-1"}, "chrome: wanted a list of task ids, found 'a-1'"),
        ({"chrome": [1]}, "chrome: wanted a list of task ids"),
        ({"chrome": ["../../../etc/passwd"]}, "is no file name"),
        ({"../chrome": ["a-1"]}, "is no file name"),
        ({"chrome": ["/etc/passwd"]}, "is no file name"),
        ({"chrome": ["a\0"]}, "is no file name"),
    ],
    ids=str,
)
def test_a_bad_list_is_refused(tmp_path, listed, message):
    write(tmp_path, GOOD)
    write_list(tmp_path, listed)
    with pytest.raises(TaskFileError, match=message):
        load_suite(tmp_path, missing="skip")


def test_every_bad_file_is_named_or_left_out(tmp_path):
    (tmp_path / "examples" / "os").mkdir(parents=True)
    for name, text in (("a-1", json.dumps(GOOD)), ("b", "{"), ("c", "[]")):
        (tmp_path / "examples" / "os" / f"{name}.json").write_text(text)
    (tmp_path / "list.json").write_text(json.dumps({"os": ["a-1", "b", "c"]}))
    with pytest.raises(TaskFileError, match=r"b\.json.*c\.json"):
        load_suite(tmp_path, "list")
    suite = load_suite(tmp_path, "list", bad="skip")
    assert [task.id for task in suite.tasks] == ["a-1"]
    assert set(suite.bad) == {"os/b", "os/c"}
    assert suite.num_listed == 3
    without = load_suite(tmp_path, "list", exclude=["b", "c", "unlisted"])
    assert without.excluded == {"b", "c"}
    assert without.num_listed == 1


@needs_osworld
def test_every_osworld_file_is_kept_field_by_field():
    files = sorted(OSWORLD.glob("examples/*/*.json"))
    assert len(files) == 268
    for file in files:
        task = load_task(file)
        raw = json.loads(file.read_text(encoding="utf-8"))
        assert task.spec == raw
        assert (task.id, task.instruction, task.domain) == (raw["id"], raw["instruction"], file.parent.name)
        assert TaskFile.model_validate(raw).model_dump(exclude_unset=True) == raw


@needs_osworld
def test_the_lists_of_osworld_load():
    suite = load_suite(OSWORLD, missing="skip")
    counts = Counter(task.domain for task in suite.tasks)
    assert (len(suite.tasks), len(suite.missing)) == (268, 93)
    assert set(counts) == set(DOMAINS) - {"multi_apps"}
    assert {name.partition("/")[0] for name in suite.missing} == {"multi_apps"}
    with pytest.raises(TaskFileError, match="lists 361 tasks and 93 have no file"):
        load_suite(OSWORLD)
    infeasible = load_suite(OSWORLD, "test_infeasible", missing="skip")
    assert all(is_infeasible(task) for task in infeasible.tasks)


@needs_osworld
def test_osworlds_tasks_have_the_published_difficulty_of_their_domain():
    import numpy as np

    tasks = load_suite(OSWORLD, missing="skip").tasks
    rates = by_domain(tasks, np.random.default_rng(0))
    chrome = [rate for task, rate in zip(tasks, rates, strict=True) if task.domain == "chrome"]
    assert np.mean(chrome) == pytest.approx(0.5209)
