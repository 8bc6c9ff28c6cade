"""``dartsim cluster``: a file of one's own, from a real run, and from a CSV file of times."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dartsim.config import load
from dartsim.config.packaged import presets
from dartsim.lab.new_cluster import BATCH_TURNS
from dartsim.run.execute import execute
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.latency import from_spec

IMPORT = ("import", "--from", "csv")
NUMBERS = ("--gpus", "6", "--desktops", "20", "--hosts", "2x64GiBx16cores")


def test_a_new_cluster_has_the_given_numbers_and_every_scheduler_runs_on_it(dartsim):
    assert dartsim("cluster", "new", *NUMBERS, "--update-seconds", "100") == 0
    for scheduler in ("dartsim", "areal-eta4", "coupled", "trl"):
        config = load(scheduler, on="cluster.toml")
        assert prepare(config).config.rollout.num_desktops == 20
    assert (config.rollout.num_workers, config.cluster.learner.gpus, config.cluster.hosts.cores) == (3, 3, 16.0)
    learner = config.cluster.learner
    measured = load("dart-measured", on="cluster.toml", overrides=["run.hours=2"])
    tokens = run_prepared(prepare(measured)).figures["tokens_per_trained_turn"]
    seconds = learner.fixed_seconds + BATCH_TURNS * tokens / 1000.0 * learner.kilotoken_seconds
    assert seconds == pytest.approx(100.0, rel=0.05), "as DART computes it: one sequence per turn"


def test_a_new_cluster_decides_nothing_of_a_scheduler(dartsim):
    assert dartsim("cluster", "new") == 0
    for name in presets():
        own = load(name)
        if own.policy.kind == "surrogate" and own.backend.virtual:
            on = load(name, on="cluster.toml")
            assert on.policy == own.policy
            assert (on.rollout.sync, on.rollout.routing) == (own.rollout.sync, own.rollout.routing)
            assert on.curation.admission == own.curation.admission


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hosts", "four"), "hosts are written COUNTxMEMORYGiB"),
        (("--desktops", "400"), "400 desktops of 4.2 GiB do not fit on 8 hosts"),
    ],
)
def test_what_cannot_work_writes_nothing(dartsim, capsys, arguments, said):
    assert dartsim("cluster", "new", *arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("cluster.toml").exists()


def test_a_file_is_not_overwritten(dartsim, times):
    Path("mine.toml").write_text("mine")
    assert dartsim("cluster", "new", "--out", "mine.toml") == 2
    assert dartsim("cluster", *IMPORT, times, "--column", "step", "--out", "mine.toml") == 2
    assert Path("mine.toml").read_text() == "mine"


@pytest.fixture
def times():
    rng = np.random.default_rng(1)
    rows = zip(rng.lognormal(0.5, 0.8, 300), 10_000 * rng.gamma(9.0, 1.0, 300), strict=True)
    text = "\n".join(f"{number},{step:.4f},{boot:.1f},{boot:.1f}" for number, (step, boot) in enumerate(rows))
    Path("times.csv").write_text(f"id,step,boot,boot_ms\n{text}\n")
    return "times.csv"


def latency(file, name):
    return from_spec(tomllib.loads(Path(file).read_text())["cluster"]["env"]["latency"][name])


def test_measured_times_become_a_profile_that_run_loads(dartsim, times):
    assert dartsim("cluster", *IMPORT, times, "--column", "step") == 0
    column = [float(line.split(",")[1]) for line in Path(times).read_text().splitlines()[1:]]
    step = latency("latencies.toml", "step")
    assert step.mean == pytest.approx(np.mean(column), rel=1e-6)
    assert np.median(step.draw(np.random.default_rng(0), 10_000)) == pytest.approx(np.median(column), rel=0.05)
    small = ("--on", "laptop+latencies.toml", "--hours", "0.1", "--out", "run", "--json", "-")
    assert dartsim("run", "areal-eta4", *small) == 0
    assert "step" in load(Path("run/config.toml")).cluster.env.latency


def test_times_are_in_seconds_or_in_what_the_user_says(dartsim, times):
    assert dartsim("cluster", *IMPORT, times, "--column", "boot=boot_ms", "--unit", "ms") == 0
    assert latency("latencies.toml", "boot").mean == pytest.approx(90.0, rel=0.1)
    assert dartsim("cluster", *IMPORT, times, "--column", "boot", "--out", "slow.toml") == 0
    assert latency("slow.toml", "boot").mean == pytest.approx(90_000.0, rel=0.1)


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("id,steps\n1,2\n", "step", "has no column 'step'; it has: id, steps"),
        ("step\n1.0\nfast\n", "step", "line 3: step = 'fast'"),
        ("step\n1.0\nnan\n", "step", "line 3: step = 'nan'"),
        ("step\n1.0\n\n", "step", "column 'step' has 1 values"),
        ("step\n1\n2\n", "jump=step", "a desktop has no latency 'jump'"),
    ],
)
def test_a_bad_file_gets_one_sentence(dartsim, capsys, text, column, said):
    Path("bad.csv").write_text(text)
    Path("there.toml").touch()
    assert dartsim("cluster", *IMPORT, "bad.csv", "--column", column, "--out", "there.toml") == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert dartsim("cluster", *IMPORT, "none.csv", "--column", "step") == 2
    assert not Path("latencies.toml").exists()


def test_latencies_alone_are_no_cluster(dartsim, capsys, times):
    assert dartsim("cluster", *IMPORT, times, "--column", "step") == 0
    for cluster in ("latencies.toml", "latencies.toml+long-tail"):
        assert dartsim("run", "dart", "--on", cluster) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "latencies.toml has measured times but no cluster: write --on CLUSTER+latencies.toml" in said


def test_incomplete_requests_are_refused(dartsim, times):
    Path("run").mkdir()
    for wrong in (
        (*IMPORT, times),
        (*IMPORT, times, times, "--column", "step"),
        (*IMPORT, "nowhere", "--column", "step"),
        ("measure", "nowhere"),
        ("measure",),
    ):
        assert dartsim("cluster", *wrong) == 2, wrong
    assert not Path("latencies.toml").exists()


REAL = ("backend.desktops=mock", "backend.workers=local", "backend.learner=local")
SMALL = ("run.hours=0.0008", "tasks.count=64", "tasks.held_out=8", "rollout.num_envs=4", "run.target_success=none")
FAST = ("curation.batch.min_groups=1", "curation.batch.max_groups=1", "curation.groups.drop_all_failed=false")


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    """Folder of a run of three seconds in real time."""
    pytest.importorskip("torch", reason="needs the extra `train`")
    folder = tmp_path_factory.mktemp("measure") / "real"
    execute(load("tiny", overrides=[*REAL, *SMALL, *FAST]), folder)
    return folder


def test_a_real_run_becomes_a_profile_and_a_twin_that_predicts_it(dartsim, capsys, real_run):
    assert dartsim("cluster", "measure", str(real_run), "--check", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["measured"]) == set(found["predicted"]) == set(found["relative_error"])
    assert found["measured"]["generated_turns_per_minute"] > 0
    assert found["predicted"]["generated_turns_per_minute"] > 0
    profile = tomllib.loads((real_run / "profile.toml").read_text())
    assert profile["cluster"] == found["settings"]["cluster"]
    assert profile["about"]["counts"]["worker/batch"] > 0
    assert load(real_run / "twin.toml").backend.virtual
    assert (real_run / "twin" / "summary.json").exists()
    # The twin of another configuration runs on the measured cluster.
    assert dartsim("run", "tiny", "--twin", "--on", str(real_run), "--hours", "0.05", "--out", "other") in (0, 18)
    other = load("other/config.toml")
    assert other.cluster.env.latency == load(real_run / "twin.toml").cluster.env.latency
    assert other.rollout.num_envs == load("tiny").rollout.num_envs
