"""``dartsim tune`` and ``plan``, as a user types them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest
import tomli_w

from dartsim.config import load

SETTINGS = (
    "rollout.num_envs=4",
    "rollout.num_workers=2",
    "rollout.max_turns=6",
    "curation.attempts.group_size=2",
    "curation.batch.min_groups=1",
    "curation.batch.max_groups=2",
    "curation.groups.min_size=1",
    "cluster.learner.fixed_seconds=30.0",
    "cluster.engine.reload_seconds=20.0",
)
SMALL = [argument for setting in SETTINGS for argument in ("--set", setting)]


def tune(dartsim, *arguments: str, space: str = "rollout.num_envs=2..6,rollout.sync.mode=drain|keep") -> int:
    short = ("--hours", "0.3", "--processes", "1", "--fresh-seeds", "2")
    return dartsim("tune", "--space", space, *SMALL, *short, *arguments)


def test_tune_ends_with_a_file_that_run_loads(dartsim, capsys):
    assert tune(dartsim, "--until-steady", "5%", "--budget", "3", "--out", "study", "--json", "tuned.json") == 0
    found = json.loads(Path("tuned.json").read_text())
    assert found["num_trials"] == 3
    tuned, tuned_text = load(Path("study/best.toml")), Path("study/best.toml").read_text()
    assert tuned.rollout.num_envs == found["best"]["settings"]["rollout.num_envs"]
    assert tuned.run.max_segments == load("dart-measured").run.max_segments
    assert tuned.run.until_steady is None, "the file is for a whole run"
    assert found["fresh"]["seeds"] == [1, 2]
    (effect,) = found["fresh"]["effects"]
    assert effect.startswith("steady turns per minute ")
    assert f"# With fresh seeds: {effect}." in tuned_text
    assert f"with fresh seeds: {effect}" in capsys.readouterr().out
    document = json.loads(Path("study/study.json").read_text())
    assert effect in document["verdict"]
    assert [row["arm"] for row in document["ranking"]] in (["best", "as it is"], ["as it is", "best"])
    assert Path("study/study.html").is_file()
    assert found["as_it_is"] == {"rollout.num_envs": 4, "rollout.sync.mode": "restart"}
    # A larger budget goes on with the same study.
    assert tune(dartsim, "--until-steady", "5%", "--budget", "4", "--out", "study", "--json", "-") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["trials"][:3] == found["trials"]
    assert again["num_trials"] == 4


@pytest.mark.soak
def test_tune_of_two_objectives_writes_the_front(dartsim):
    wanted = ("--objective", "trained_turns_per_minute", "--objective", "staleness_mean")
    assert tune(dartsim, *wanted, "--budget", "4", "--out", "study", "--json", "-") == 0
    files = sorted(path.name for path in Path("study").glob("*.toml"))
    assert files[0] == "best.toml"
    assert "front-0.toml" in files
    assert "Pareto front" in [table["title"] for table in json.loads(Path("study/study.json").read_text())["tables"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune",), "nothing to tune: give --space"),
        (("tune", "--space", "rollout.num_env=2..4"), "did you mean 'rollout.num_envs'?"),
        (("tune", "--space", "rollout.num_envs=2..4", "--objective", "speed"), "there is no figure 'speed'"),
        (("tune", "--space", "rollout.num_envs=2..4", "--max-staleness", "nan"), "Invalid value for '--max-staleness'"),
        (("tune", "--space", "rollout.num_envs=2..4", "--max-cost", "-1"), "Invalid value for '--max-cost'"),
        (("plan", "--gpus", "0", "--hosts", "4x64GiB"), "a plan needs 2 GPUs or more"),
        (("plan", "--gpus", "4", "--hosts", "four"), "hosts are written COUNTxMEMORYGiB"),
    ],
)
def test_wrong_requests_are_refused(dartsim, capsys, arguments, message):
    assert dartsim(*arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_no_trial_within_the_bounds_is_said(dartsim, capsys):
    assert tune(dartsim, "--budget", "1", "--max-cost", "1", "--out", "study") == 1
    printed = capsys.readouterr()
    said = " ".join(printed.err.split())
    assert "1 refused: costs 10 an hour, more than 1" in printed.out
    assert "no trial met the bounds" in said
    assert not Path("study/best.toml").exists()


CLUSTER = """
[rollout]
num_envs = 4
num_workers = 2
max_turns = 6
[curation.attempts]
group_size = 2
[curation.batch]
max_groups = 2
[cluster.hosts]
count = 1
memory_gib = 8.0
[cluster.env.latency]
step = 3.5
[cluster.learner]
fixed_seconds = 30.0
gpus = 1
"""


@pytest.fixture
def cluster():
    Path("cluster.toml").write_text(CLUSTER)
    return "cluster.toml"


def test_plan_ends_with_a_file_that_run_loads_and_says_what_it_costs(dartsim, capsys, cluster):
    options = ("--hours", "0.3", "--budget", "4", "--fresh-seeds", "2", "--processes", "1", "--price-gpu-hour", "2")
    out = ("--out", "planned", "--json", "plan.json")
    assert dartsim("plan", "areal-eta4", "--on", cluster, *options, *out) == 0
    found, made = json.loads(Path("plan.json").read_text()), load(Path("planned/best.toml"))
    rollout, cluster_of = made.rollout, made.cluster
    assert rollout.num_envs == found["best"]["changed"]["rollout.num_envs"] <= 4
    assert rollout.num_workers + cluster_of.learner.gpus == 3
    assert (cluster_of.hosts.count, made.preset, cluster_of.env.latency) == (1, "areal-eta4", {"step": 3.5})
    own = load("areal-eta4")
    assert (made.curation.store, made.run.max_segments) == (own.curation.store, own.run.max_segments)
    assert found["fresh"]["seeds"] == [1, 2]
    assert found["best"]["figures"]["cost_per_hour"] == 6.0
    printed = capsys.readouterr().out
    assert "the best: Limited by " in printed
    assert "it costs 6 an hour, " in printed


def test_predict_writes_a_page_of_what_it_says(dartsim, capsys, tmp_path):
    figures = [{"figure": "update_seconds", "value": 30.0}]
    table = {
        **{"id": "t", "title": "a table", "source": "a test", "kind": "update", "model": {"name": "Qwen3-4B"}},
        "machines": {"gpu": "H100", "trainer": 2, "rollout": 2},
        "workload": {"groups": 8, "group_size": 4, "reply_tokens": 600.0, "reply_spread": 0.5, "longest": 2048},
        "scheduler": {"preset": "verl-partial", "ahead": 2.0},
        "rows": [{"name": name, "figures": figures} for name in ("short", "<script>")],
    }
    file = tmp_path / "t.toml"
    file.write_text(tomli_w.dumps(table))
    assert dartsim("predict", str(file), "--no-fit", "--html", str(tmp_path / "page.html"), "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    held = re.search(r'id="documents">([^<]+)<', (tmp_path / "page.html").read_text())[1]
    study = json.loads(gzip.decompress(base64.b64decode(held)))["study"]
    assert study["title"].startswith("a table")
    assert [row["row"] for row in rows] == ["short", "<script>"]
    shown = [cell for each in study["tables"] for row in each["rows"] for cell in row]
    assert {"short", "<script>"} <= set(shown)
