import asyncio
from itertools import product

import pytest

pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.core.errors import EnvBroken, ScoreUnavailable, TaskFileError, cause_of
from dartsim.core.types import Task
from dartsim.real.osworld import steps
from dartsim.real.osworld.errors import SetupFailed, VmBadReply, VmHung, VmLost, VmMissing
from dartsim.real.osworld.replies import Executed
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.scoring import GetterValue, ScoreFault, ScorerFacts

SAYS = {"type": "vm_command_line", "command": ["say"]}
RULE = {"type": "rule", "rules": {"expected": "yes"}}
YES = {"func": "exact_match", "result": SAYS, "expected": RULE}


def task(**evaluator):
    return Task("t", "do it", "os", {"id": "t", "evaluator": evaluator})


def client_that_says(fakes, *answers, **faults):
    outputs = [Executed(answer, "", 0) if isinstance(answer, str) else answer for answer in answers]
    return fakes.FakeClient(outputs={"say": outputs}, **faults)


class FakeSandbox:
    """A pool of one sandbox, and that sandbox: its metrics give ``value``, or their result, its getters ``found``."""

    def __init__(self, value=None, found=None):
        self.value, self.found = value, found
        self.asked = []
        self.link = None

    async def run(self, call):
        return await call(self)

    async def facts(self):
        return ScorerFacts("fake 1")

    async def metric(self, name, arguments, options):
        self.asked.append((name, list(arguments), options))
        if isinstance(self.value, Exception):
            raise self.value
        return arguments[0] if self.value is None else self.value

    async def getter(self, name, config, sockets, token):
        self.asked.append((name, config, sorted(sockets), token))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def score(fakes, tmp_path, given, client=None, *, last="DONE", pool=None, **folder):
    client = client or client_that_says(fakes, "yes")
    pool = pool or fakes.OwnMetrics()
    pool.link = tmp_path

    async def go():
        async with Scorer(pool) as scorer:
            return await scorer.score(given, client, fakes.folder(tmp_path, **folder), last_action=last)

    return asyncio.run(go())


def outcome(*arguments, **options):
    """Return the score, or None where there is none."""
    try:
        return score(*arguments, **options)
    except (ScoreUnavailable, EnvBroken):
        return None


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


def test_an_empty_part_is_none(fakes, tmp_path):
    pool = FakeSandbox(0.5)
    assert score(fakes, tmp_path, task(func="one", result={}, expected=RULE), pool=pool) == 0.5
    assert pool.asked == [("one", [RULE["rules"]], {})]


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
def test_several_metrics_are_joined(fakes, tmp_path, conj, values, score_is):
    joined = {"func": ["number"] * len(values), "result": numbers(*values)} | ({"conj": conj} if conj else {})
    assert score(fakes, tmp_path, task(**joined), pool=FakeSandbox()) == score_is


def test_a_decided_score_asks_no_further(fakes, tmp_path):
    for conj, value in (("and", 0.0), ("or", 1.0)):
        client = client_that_says(fakes, "yes")
        joined = {"func": ["number", "exact_match"], "result": [*numbers(value), SAYS], "expected": [None, RULE]}
        assert (
            score(fakes, tmp_path, task(**joined, options=[None, {}], conj=conj), client, pool=FakeSandbox()) == value
        )
        assert client.calls == []


def test_a_file_that_the_agent_has_not_left_scores_0(fakes, tmp_path):
    file = {"type": "vm_file", "path": "/a", "dest": "a"}
    given = {"func": "file_contains", "result": file, "expected": RULE}
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
        score(fakes, tmp_path, task(func="file_contains", result=file, expected=RULE), client)


def test_a_desktop_that_answers_nonsense_is_no_score(fakes, tmp_path):
    with pytest.raises(ScoreFault) as caught:
        score(fakes, tmp_path, task(**YES), client_that_says(fakes, VmBadReply("junk", status=200)))
    assert caught.value.cause == "getter_failed"
    assert isinstance(caught.value, ScoreUnavailable)


@pytest.mark.parametrize("value", [1.01, -0.5, float("nan"), float("inf"), 7])
def test_a_number_that_is_no_score_is_no_score(fakes, tmp_path, value):
    with pytest.raises(ScoreFault) as caught:
        score(fakes, tmp_path, task(func="number", result=numbers(value)[0]), pool=FakeSandbox())
    assert caught.value.cause == "score_out_of_range"


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"func": "compare_pptx_files"}, "metric_unavailable"),
        ({"options": {"colour": 1}}, "metric_failed"),
        ({"result": {"type": "cookie_data"}}, "getter_unavailable"),
        ({"result": {"type": "vm_file"}}, "getter_failed"),
        ({"expected": {"type": "rule", "rules": {}}}, "metric_failed"),
        ({"expected": {"type": "cloud_file", "path": "file:///etc/passwd", "dest": "x"}}, "gold_download_failed"),
        ({"result": {"type": "cache_file", "path": "x"}}, "getter_failed"),
    ],
)
def test_what_cannot_be_scored_has_its_cause(fakes, tmp_path, given, cause):
    with pytest.raises(ScoreUnavailable) as caught:
        score(fakes, tmp_path, task(**YES | given))
    assert cause_of(caught.value) == cause


def test_a_metric_gets_its_arguments_and_its_options(fakes, tmp_path):
    pool = FakeSandbox(0.5)
    assert score(fakes, tmp_path, task(**YES, options={"_remark": 1}), pool=pool) == 0.5
    assert pool.asked == [("exact_match", ["yes", {"expected": "yes"}], {"_remark": 1})]


def test_getters_of_desktop_env_reach_the_desktop_while_they_run(fakes, tmp_path):
    given = task(**YES | {"result": {"type": "history", "dest": "h"}})
    pool = FakeSandbox(0.5, found=GetterValue(b"[]"))
    assert score(fakes, tmp_path, given, pool=pool, chromium_url="http://127.0.0.1:9", token="t") == 0.5
    assert pool.asked[0] == ("history", {"type": "history", "dest": "h"}, ["chromium", "server"], "t")
    assert pool.asked[1] == ("exact_match", [GetterValue(b"[]"), {"expected": "yes"}], {})
    assert [path.name for path in tmp_path.iterdir() if path.is_socket()] == []


def test_what_a_getter_does_not_find_scores_0_unless_it_is_what_is_expected(fakes, tmp_path):
    given = task(**YES | {"result": {"type": "history", "dest": "h"}})
    expected = task(**YES | {"expected": {"type": "history", "dest": "h"}})
    for found in (GetterValue(b"null", missing=True), ScoreFault("gone", cause="result_missing")):
        assert score(fakes, tmp_path, given, pool=FakeSandbox(0.5, found=found)) == 0.0
        with pytest.raises(ScoreUnavailable):
            score(fakes, tmp_path, expected, pool=FakeSandbox(0.5, found=found))


def test_one_of_several_files_that_is_missing_scores_0_where_the_metric_breaks_on_it(fakes, tmp_path):
    files = {"type": "vm_file", "path": ["/a", "/b"], "dest": ["a", "b"], "multi": True, "gives": [0, 1]}
    client = fakes.FakeClient(files={"/a": b"x"})
    broken = FakeSandbox(ScoreFault("TypeError", cause="metric_failed"))
    assert score(fakes, tmp_path, task(**YES | {"result": files}), client, pool=broken) == 0.0
    died = FakeSandbox(ScoreFault("died", cause="sandbox_died"))
    with pytest.raises(ScoreFault):
        score(fakes, tmp_path, task(**YES | {"result": files}), client, pool=died)


GOLD = "the gold"


@pytest.mark.parametrize("first", ["result", "expected", "step"])
def test_no_file_of_an_agent_becomes_what_is_expected(fakes, tmp_path, first):
    """Whatever the files are called, and whichever is there before: the answer is compared with the gold."""
    (tmp_path / "gold.txt").write_text(GOLD)

    def given(result_dest, expected_dest):
        gold = {"type": "cloud_file", "path": (tmp_path / "gold.txt").as_uri(), "dest": expected_dest}
        answer = {"type": "vm_file", "path": "/a", "dest": result_dest}
        if first == "step":
            step = {"type": "execute", "parameters": {"command": ["say"], "stdout": expected_dest}}
            return task(func="compare_text_file", result=answer, expected=gold, postconfig=[step])
        before = gold if first == "expected" else answer  # which another metric has fetched
        anything = {"type": "rule", "rules": {"expected": []}}
        funcs = ["file_contains", "compare_text_file"]
        return task(func=funcs, result=[before, answer], expected=[anything, gold])

    async def go():
        async with Scorer(fakes.OwnMetrics()) as scorer:
            for names in product(("x.txt", "./x.txt", "x.txt/x"), ("x.txt", "./x.txt", "X.txt", "x.txt/x")):
                for text, value in ((GOLD, 1.0), ("the agent's", 0.0)):
                    client = fakes.FakeClient(files={"/a": text.encode()}, outputs={"say": Executed(text, "", 0)})
                    where = fakes.folder(tmp_path / "-".join(names).replace("/", "_") / text, sources=[tmp_path])
                    assert await scorer.score(given(*names), client, where, last_action="DONE") == value, names

    asyncio.run(go())


def test_two_files_with_one_name_are_two(fakes, tmp_path):
    """Those of one getter as well as those of an answer and of the desktop's own gold."""
    client = fakes.FakeClient(files={"/a": b"a", "/b": b"b"})
    a, b = ({"type": "vm_file", "path": path, "dest": "x"} for path in ("/a", "/b"))
    assert score(fakes, tmp_path, task(func="compare_text_file", result=a, expected=b), client) == 0.0
    both = {"type": "vm_file", "path": ["/a", "/b"], "dest": ["x", "./x"], "multi": True, "gives": [0, 1]}
    pool = FakeSandbox(0.5)
    assert score(fakes, tmp_path, task(func="two", result=both), client, pool=pool) == 0.5
    one, other = pool.asked[0][1][0]
    assert one.path != other.path


BROKEN = ScoreFault("BadZipFile", cause="metric_failed")


class Breaks(FakeSandbox):
    """Its metrics fail on files of a desktop, on others if ``gold_too``, and their control on everything if so."""

    def __init__(self, fault, *, gold_too=False):
        super().__init__()
        self.fault, self.gold_too = fault, gold_too

    async def metric(self, name, arguments, options):
        self.asked.append((name, list(arguments), options))
        of_desktop = name != "exact_match" and (getattr(arguments[0], "name", "answer") == "answer")
        if of_desktop or self.gold_too:
            raise self.fault
        return 1.0


@pytest.mark.parametrize(
    ("cause", "with_rule", "alone"),
    [
        ("metric_failed", 0.0, 0.0),
        ("score_memory", 0.0, 0.0),
        ("score_cpu", 0.0, 0.0),
        ("score_disk", 0.0, 0.0),
        ("score_crashed", 0.0, 0.0),
        ("input_too_large", 0.0, 0.0),
        ("score_timeout", 0.0, None),
        ("score_killed", 0.0, None),
        ("sandbox_died", 0.0, None),
        ("metric_unavailable", None, None),
        ("sandbox_start_failed", None, None),
    ],
)
def test_an_answer_that_breaks_its_metric_scores_0_and_a_broken_evaluator_does_not(
    fakes, tmp_path, cause, with_rule, alone
):
    """``alone``: what is scored if the sandbox does not work without the answer either."""
    answer = {"type": "vm_file", "path": "/a", "dest": "answer"}
    (tmp_path / "gold").write_text(GOLD)
    gold = {"type": "cloud_file", "path": (tmp_path / "gold").as_uri(), "dest": "gold"}
    client = fakes.FakeClient(files={"/a": b"PK"})

    def found(expected, result=answer, **broken):
        given = task(func="compare", result=result, **({"expected": expected} if expected else {}))
        try:
            pool = Breaks(ScoreFault("x", cause=cause), **broken)
            return score(fakes, tmp_path, given, client, pool=pool, sources=[tmp_path])
        except ScoreUnavailable as fault:
            return None if cause_of(fault) == cause else cause_of(fault)

    assert found(RULE) == found(None) == found(gold) == with_rule
    assert found(RULE, gold_too=True) == alone
    assert found(gold, gold_too=True) is None, "the gold is broken, or the evaluator"
    assert found(gold, result={"type": "rule", "rules": 1}) is None, "nothing is the agent's"


def test_what_the_task_file_lacks_is_never_the_agents_fault(fakes, tmp_path):
    fault = ScoreFault("KeyError", cause="getter_failed", of_task=True)
    with pytest.raises(ScoreFault):
        score(fakes, tmp_path, task(**YES | {"result": {"type": "history"}}), pool=FakeSandbox(1.0, found=fault))


@pytest.mark.parametrize(
    ("cause", "desktop", "value"),
    [
        ("getter_failed", Executed("", "", 0), 0.0),
        ("score_timeout", Executed("", "", 0), 0.0),
        ("score_reply", Executed("", "", 0), 0.0),
        ("getter_failed", Executed("", "", 1), None),
        ("getter_failed", VmHung("hung"), None),
        ("getter_failed", VmBadReply("junk", status=200), None),
        ("getter_unavailable", Executed("", "", 0), None),
        ("vm_unreachable", Executed("", "", 0), None),
    ],
)
def test_a_closed_application_scores_0_if_the_desktop_still_works(fakes, tmp_path, cause, desktop, value):
    given = task(**YES | {"result": {"type": "vlc_playing_info", "dest": "s.xml"}})
    pool = FakeSandbox(1.0, found=ScoreFault("refused", cause=cause))
    client = fakes.FakeClient(outputs={"true": desktop})
    assert outcome(fakes, tmp_path, given, client, pool=pool) == value
    closed = task(**YES | {"expected": {"type": "vm_window_size", "app_class_name": "vlc"}})
    if cause == "getter_failed":
        assert score(fakes, tmp_path, closed, pool=FakeSandbox(1.0, found=GetterValue(b"null", missing=True))) == 0.0


@pytest.mark.parametrize(
    ("fault", "sent", "value"),
    [
        (VmBadReply("x", status=500, body="Failed to serve file: [Errno 21] Is a directory"), "False", 0.0),
        (VmBadReply("x", status=500, body="<!doctype html>"), "False", 0.0),
        (VmBadReply("more than is taken"), "False", 0.0),
        (VmBadReply("x", status=500, body="<!doctype html>"), "True", None),
        (VmBadReply("found a page", status=200), "True", None),
        (VmLost("cut off"), "False", None),
    ],
)
def test_a_folder_in_place_of_a_file_scores_0_and_a_broken_server_does_not(fakes, tmp_path, fault, sent, value):
    class Client(fakes.FakeClient):
        async def execute(self, command, **options):
            return Executed(f"a warning\n{sent}\n" if command[0] == "python3" else "", "", 0)

    client = Client(fails={"file": fault})
    given = task(func="file_contains", result={"type": "vm_file", "path": "/a", "dest": "a"}, expected=RULE)
    assert outcome(fakes, tmp_path, given, client) == value


@pytest.mark.parametrize(
    ("fault", "value"),
    [
        (VmBadReply("x", status=500, body="timed out after 120 seconds"), 0.0),
        (VmBadReply("x", status=500, body="[Errno 13] Permission denied: '/home/user/a.sh'"), 0.0),
        (VmBadReply("found 9,000,000 bytes", status=413), 0.0),
        (VmBadReply("x", status=500, body="<!doctype html>"), None),
        (VmBadReply("junk", status=200, body="junk"), None),
    ],
)
def test_a_command_that_cannot_be_run_scores_0_and_a_broken_server_does_not(fakes, tmp_path, fault, value):
    assert outcome(fakes, tmp_path, task(**YES), client_that_says(fakes, fault)) == value


@pytest.mark.parametrize(
    ("fault", "value"),
    [("ConnectError", 0.0), ("RemoteProtocolError", 0.0), (None, None)],
)
def test_tabs_before_scoring_fail_by_a_closed_chrome_or_by_the_network(fakes, tmp_path, monkeypatch, fault, value):
    import httpx

    async def tabs(client, where, urls_to_open):
        raise SetupFailed("no tabs", cause="setup_tabs_failed") from (fault and getattr(httpx, fault)("broke"))

    monkeypatch.setitem(steps.STEPS, "chrome_open_tabs", tabs)
    given = task(**YES, postconfig=[{"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://a"]}}])
    assert outcome(fakes, tmp_path, given) == value


def test_a_file_that_postconfig_cannot_open_because_it_was_removed_scores_0(fakes, tmp_path):
    client = client_that_says(fakes, "yes", fails={"open_file": VmMissing("gone", status=404)})
    given = YES | {"postconfig": [{"type": "open", "parameters": {"path": "/a"}}]}
    assert score(fakes, tmp_path, task(**given), client) == 0.0
    assert score(fakes, tmp_path, task(**given | {"func": "infeasible"}), client, last="FAIL") == 1.0
    client.outputs["true"] = VmHung("hung")
    with pytest.raises(EnvBroken):
        score(fakes, tmp_path, task(**given), client)


def test_a_score_says_how_it_was_computed(fakes, tmp_path):
    result = score(fakes, tmp_path, task(**YES))
    (metric,) = result.record.metrics
    assert (result.record.scorer, metric.metric, metric.score, len(metric.inputs)) == (
        "dartsim 1",
        "exact_match",
        1.0,
        2,
    )
    assert 0.0 < metric.seconds <= result.record.seconds
    assert score(fakes, tmp_path, task(**YES)).record.metrics[0].inputs == metric.inputs
    assert score(fakes, tmp_path, task(func="infeasible"), last="FAIL").record.metrics == ()
