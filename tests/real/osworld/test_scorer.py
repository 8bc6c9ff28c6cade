import asyncio

import pytest

from dartsim.core.errors import EnvBroken, ScoreUnavailable, TaskFileError
from dartsim.core.types import Task
from dartsim.real.osworld.errors import SetupFailed, Unscored, VmBadReply, VmHung, VmLost
from dartsim.real.osworld.evaluator import EvaluatorFacts, ResultFileMissing
from dartsim.real.osworld.metrics import NATIVE, Metric
from dartsim.real.osworld.replies import Executed
from dartsim.real.osworld.scorer import Scorer

SAYS = {"type": "vm_command_line", "command": ["say"]}
RULE = {"type": "rule", "rules": {"expected": "yes"}}
YES = {"func": "exact_match", "result": SAYS, "expected": RULE}


def task(**evaluator):
    return Task("t", "do it", "os", {"id": "t", "evaluator": evaluator})


def client_that_says(fakes, *answers, **faults):
    outputs = [Executed(answer, "", 0) if isinstance(answer, str) else answer for answer in answers]
    return fakes.FakeClient(outputs={"say": outputs}, **faults)


def score(fakes, tmp_path, given, client=None, *, last="DONE", evaluator=None, **folder):
    client = client or client_that_says(fakes, "yes")
    scorer = Scorer(evaluator)
    return asyncio.run(scorer.score(given, client, fakes.folder(tmp_path, **folder), last_action=last))


@pytest.fixture
def number(monkeypatch):
    """A metric whose score is its result."""
    metrics = {**NATIVE, "number": Metric(lambda result, expected=None: result)}
    monkeypatch.setattr("dartsim.real.osworld.scorer.METRICS", metrics)


def numbers(*values):
    return [{"type": "rule", "rules": value} for value in values]


def test_one_metric(fakes, tmp_path):
    assert score(fakes, tmp_path, task(**YES)) == 1.0
    assert score(fakes, tmp_path, task(**YES), client_that_says(fakes, "no")) == 0.0


@pytest.mark.parametrize(
    ("func", "last", "value"),
    [
        ("infeasible", "FAIL", 1.0),
        ("infeasible", "DONE", 0.0),
        ("infeasible", None, 0.0),
        ("exact_match", "FAIL", 0.0),
        ("exact_match", "DONE", 1.0),
        ("exact_match", None, 1.0),
    ],
)
def test_only_infeasible_tasks_are_solved_by_fail(fakes, tmp_path, func, last, value):
    assert score(fakes, tmp_path, task(**YES | {"func": func}), last=last) == value


def test_postconfig_comes_first_whatever_the_last_action(fakes, tmp_path):
    client = client_that_says(fakes, "yes")
    given = task(**YES, postconfig=[{"type": "launch", "parameters": {"command": ["save"]}}])
    assert score(fakes, tmp_path, given, client) == 1.0
    assert [call[0] for call in client.calls] == ["launch", "execute"]
    assert score(fakes, tmp_path, given, client, last="FAIL") == 0.0
    assert [call[0] for call in client.calls[2:]] == ["launch"]


def test_a_postconfig_that_fails_is_no_score(fakes, tmp_path):
    client = client_that_says(fakes, "yes", fails={"launch": VmBadReply("no", status=500)})
    given = task(**YES, postconfig=[{"type": "launch", "parameters": {"command": ["save"]}}])
    with pytest.raises(SetupFailed):
        score(fakes, tmp_path, given, client)
    with pytest.raises(TaskFileError):
        score(fakes, tmp_path, task(**YES, postconfig=[{"type": "dance"}]), client)


@pytest.mark.parametrize(
    ("conj", "values", "score_is"),
    [
        ("and", (1.0, 0.5), 0.75),
        ("and", (0.5, 0.0, 1.0), 0.0),
        ("and", (1.0, 1.0), 1.0),
        ("or", (0.2, 0.7, 0.0), 0.7),
        ("or", (0.2, 1.0), 1.0),
        ("or", (0.0, 0.0), 0.0),
        (None, (0.5, 1.0), 0.75),
    ],
)
@pytest.mark.usefixtures("number")
def test_several_metrics_are_joined(fakes, tmp_path, conj, values, score_is):
    joined = {"func": ["number"] * len(values), "result": numbers(*values)} | ({"conj": conj} if conj else {})
    assert score(fakes, tmp_path, task(**joined)) == score_is


@pytest.mark.usefixtures("number")
def test_a_decided_score_asks_no_further(fakes, tmp_path):
    for conj, value in (("and", 0.0), ("or", 1.0)):
        client = client_that_says(fakes, "yes")
        joined = {"func": ["number", "exact_match"], "result": [*numbers(value), SAYS], "expected": [None, RULE]}
        assert score(fakes, tmp_path, task(**joined, options=[None, {}], conj=conj), client) == value
        assert client.calls == []


def test_a_file_that_the_agent_has_not_left_scores_0(fakes, tmp_path):
    file = {"type": "vm_file", "path": "/a", "dest": "a"}
    given = {"func": "compare_config", "result": file, "expected": RULE}
    assert score(fakes, tmp_path, task(**given)) == 0.0
    joined = {"func": ["compare_config", "exact_match"], "result": [file, SAYS], "expected": [RULE, RULE]}
    assert score(fakes, tmp_path, task(**joined, conj="or")) == 1.0
    assert score(fakes, tmp_path, task(**joined, conj="and")) == 0.0
    gold = {"func": "compare_text_file", "result": {"type": "vm_file", "path": "/b", "dest": "b"}, "expected": file}
    assert score(fakes, tmp_path, task(**gold), fakes.FakeClient(files={"/b": b"x"})) == 0.0


@pytest.mark.parametrize("fault", [VmHung("hung"), VmLost("lost")])
def test_a_desktop_that_fails_is_no_score(fakes, tmp_path, fault):
    file = {"type": "vm_file", "path": "/a", "dest": "a"}
    client = fakes.FakeClient(files={"/a": b"x"}, fails={"file": fault})
    with pytest.raises(EnvBroken):
        score(fakes, tmp_path, task(func="compare_config", result=file, expected=RULE), client)


def test_a_desktop_that_answers_nonsense_is_no_score(fakes, tmp_path):
    with pytest.raises(Unscored, match="getter vm_command_line: VmBadReply: junk") as caught:
        score(fakes, tmp_path, task(**YES), client_that_says(fakes, VmBadReply("junk", status=200)))
    assert caught.value.cause == "getter_failed"
    assert isinstance(caught.value, ScoreUnavailable)


@pytest.mark.parametrize("value", [1.01, -0.5, float("nan"), float("inf"), 7])
@pytest.mark.usefixtures("number")
def test_a_number_that_is_no_score_is_no_score(fakes, tmp_path, value):
    with pytest.raises(Unscored, match="wanted a number in") as caught:
        score(fakes, tmp_path, task(func="number", result=numbers(value)[0]))
    assert caught.value.cause == "score_out_of_range"


@pytest.mark.parametrize(
    ("given", "cause", "message"),
    [
        (
            YES | {"func": "compare_pptx_files"},
            "metric_unavailable",
            "is not built in; make its environment with `dart",
        ),
        (YES | {"options": {"colour": 1}}, "metric_unavailable", "is not built in"),
        (YES | {"result": {"type": "cookie_data"}}, "getter_unavailable", "is desktop-env's; make its environment"),
        (YES | {"result": {"type": "vm_file"}}, "getter_failed", "getter vm_file: KeyError: 'path'"),
        (
            YES | {"expected": {"type": "rule", "rules": {}}},
            "metric_failed",
            "metric exact_match: KeyError: 'expected'",
        ),
        (
            YES | {"expected": {"type": "cloud_file", "path": "file:///etc/passwd", "dest": "x"}},
            "gold_download_failed",
            "wanted a file inside the task folders",
        ),
        (YES | {"result": {"type": "cache_file", "path": "x"}}, "getter_failed", "no step has made it"),
    ],
)
def test_what_cannot_be_scored_says_why(fakes, tmp_path, given, cause, message):
    with pytest.raises(Unscored, match=message) as caught:
        score(fakes, tmp_path, task(**given))
    assert caught.value.cause == cause


async def test_scoring_has_a_limit(fakes, tmp_path):
    given = task(**YES, postconfig=[{"type": "sleep", "parameters": {"seconds": 100}}])
    with pytest.raises(Unscored, match="took more than 60 s") as caught:
        await Scorer(seconds=60.0).score(given, fakes.FakeClient(), fakes.folder(tmp_path), last_action=None)
    assert caught.value.cause == "score_timeout"
    assert asyncio.get_running_loop().time() == 60.0


class FakeEvaluator:
    """An evaluator without a process."""

    def __init__(self, value=0.5, found="found"):
        self.value, self.found = value, found
        self.asked = []

    async def facts(self):
        metrics = dict.fromkeys(("exact_match", "compare_config", "check_gnome_favorite_apps"), ())
        getters = {"history": [], "page_info": ["playwright"]}
        return EvaluatorFacts(
            "9", "3.11", metrics | {"compare_audios": ["librosa"]}, getters, {"exact_match": ["result"]}
        )

    async def metric(self, name, args, options):
        self.asked.append((name, args, options))
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    async def getter(self, name, config, where):
        self.asked.append((name, config))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_a_configured_evaluator_is_preferred(fakes, tmp_path):
    evaluator = FakeEvaluator()
    assert score(fakes, tmp_path, task(**YES, options={"_remark": 1}), evaluator=evaluator) == 0.5
    assert evaluator.asked == [("exact_match", ["yes", {"expected": "yes"}], {"_remark": 1})]


def test_our_own_metric_knows_what_the_evaluators_does_not(fakes, tmp_path):
    given = {"func": "compare_config", "result": {"type": "vm_file", "path": "/a", "dest": "a"}, "expected": RULE}
    client = fakes.FakeClient(files={"/a": b"oh yes\n"})
    evaluator = FakeEvaluator()
    assert score(fakes, tmp_path, task(**given, options={"containment_ok": True}), client, evaluator=evaluator) == 1.0
    assert evaluator.asked == []


def test_text_of_the_desktop_is_never_run_here(fakes, tmp_path):
    given = task(func="check_gnome_favorite_apps", result=SAYS, expected={"type": "rule", "rules": {"expected": ["a"]}})
    evaluator = FakeEvaluator()
    assert score(fakes, tmp_path, given, client_that_says(fakes, "['a']"), evaluator=evaluator) == 1.0
    assert score(fakes, tmp_path, given, client_that_says(fakes, "exit()"), evaluator=evaluator) == 0.0
    assert evaluator.asked == []


def test_getters_of_the_evaluator(fakes, tmp_path):
    given = task(**YES | {"result": {"type": "history", "dest": "h"}})
    assert score(fakes, tmp_path, given, evaluator=FakeEvaluator()) == 0.5
    assert score(fakes, tmp_path, given, evaluator=FakeEvaluator(found=None)) == 0.0
    assert score(fakes, tmp_path, given, evaluator=FakeEvaluator(found=ResultFileMissing("gone"))) == 0.0
    expected = task(**YES | {"expected": {"type": "history", "dest": "h"}})
    for found in (None, ResultFileMissing("gone")):
        with pytest.raises(Unscored) as caught:
            score(fakes, tmp_path, expected, evaluator=FakeEvaluator(found=found))
        assert caught.value.cause == "getter_failed"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (YES | {"func": "compare_audios"}, "metric compare_audios is not built in; librosa is not installed"),
        (YES | {"func": "compare_cats"}, "compare_cats is not built in; desktop-env 9 does not have it"),
        (YES | {"result": {"type": "page_info"}}, "getter page_info: playwright is not installed"),
        (YES | {"result": {"type": "cookie_data"}}, "getter cookie_data: desktop-env 9 does not have it"),
    ],
)
def test_what_the_evaluator_lacks_is_named(fakes, tmp_path, given, message):
    with pytest.raises(Unscored, match=message):
        score(fakes, tmp_path, task(**given), evaluator=FakeEvaluator())


def test_one_of_several_files_that_is_missing_scores_0_where_the_metric_breaks_on_it(fakes, tmp_path):
    files = {"type": "vm_file", "path": ["/a", "/b"], "dest": ["a", "b"], "multi": True, "gives": [0, 1]}
    client = fakes.FakeClient(files={"/a": b"x"})
    broken = FakeEvaluator(Unscored("TypeError", cause="metric_failed"))
    assert score(fakes, tmp_path, task(**YES | {"result": files}), client, evaluator=broken) == 0.0
    died = FakeEvaluator(Unscored("died", cause="evaluator_died"))
    with pytest.raises(Unscored):
        score(fakes, tmp_path, task(**YES | {"result": files}), client, evaluator=died)


def test_a_sheet_larger_than_any_that_could_be_right_scores_0(fakes, tmp_path):
    """One key press and a letter: the last cell of an empty sheet. Its cells are not made."""
    openpyxl = pytest.importorskip("openpyxl")
    small, huge = tmp_path / "small.xlsx", tmp_path / "huge.xlsx"
    book = openpyxl.Workbook()
    book.active["A1"] = 1
    book.save(small)
    book.active["XFD1048576"] = "x"
    book.save(huge)
    files = {"/mine": huge.read_bytes(), "/gold": small.read_bytes()}
    mine, gold = ({"type": "vm_file", "path": f"/{name}", "dest": f"{name}.xlsx"} for name in ("mine", "gold"))
    rules = {"rules": [{"type": "sheet_data", "sheet_idx0": "RI0", "sheet_idx1": "EI0"}]}
    compared = task(func="compare_table", result=mine, expected=gold, options=rules)
    assert score(fakes, tmp_path, compared, fakes.FakeClient(files=files)) == 0.0
    row = {"type": "content_from_vm_file", "path": "/mine", "file_type": "xlsx", "file_content": "last_row"}
    read = task(func="exact_match", result=row, expected=RULE)
    assert score(fakes, tmp_path, read, fakes.FakeClient(files=files)) == 0.0
