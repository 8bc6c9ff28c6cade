"""``dartsim new`` and ``import-latencies``: a cluster of one's own, from questions and from a CSV file."""

import json
import os
import pty
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dartsim.cli import import_latencies, new
from dartsim.config import load
from dartsim.config.load import presets
from dartsim.lab.batch_tokens import tokens_per_turn
from dartsim.lab.import_latencies import candidates
from dartsim.run.prepare import prepare
from dartsim.sim.latency import from_spec

NUMBERS = ("--gpus", "6", "--trainer-gpus", "2", "--desktops", "20", "--hosts", "2x64GiBx16cores")


def test_a_new_cluster_has_the_given_numbers_and_every_scheduler_runs_on_it(dartsim, capsys):
    assert dartsim("new", "cluster.toml", *NUMBERS, "--model-billions", "3", "--update-seconds", "100", "--yes") == 0
    printed = capsys.readouterr().out
    assert "4 GPUs for engines and 2 for the trainer, 100 s an update" in printed
    assert "next: dartsim plan --on cluster.toml" in printed
    for scheduler in ("dartsim", "areal-eta4", "coupled", "trl"):
        config = load(scheduler, workload_name="cluster.toml")
        assert prepare(config).config.rollout.num_desktops == 20
    assert (config.rollout.num_workers, config.cluster.learner.gpus, config.cluster.hosts.cores) == (4, 2, 16.0)
    curation, learner = config.curation, config.cluster.learner
    drawn = config.surrogate
    turns = 0.421 * drawn.success_turns_mean + 0.579 * drawn.failure_turns_mean
    batch = turns * curation.attempts.group_size * curation.batch.max_groups
    tokens = tokens_per_turn(prepare(load("dart-measured", workload_name="cluster.toml")))
    seconds = learner.fixed_seconds + batch * tokens / 1000.0 * learner.kilotoken_seconds
    assert seconds == pytest.approx(100.0, rel=1e-4), "as DART computes it: one sequence per turn"
    lines = Path("cluster.toml").read_text().splitlines()
    settings = [number for number, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert all(lines[number - 1].startswith("# ") for number in settings), "each with its meaning"
    assert sum(line.startswith("# (given)") for line in lines) == 11


def test_a_new_cluster_decides_nothing_of_a_scheduler(dartsim):
    assert dartsim("new", "cluster.toml", "--yes") == 0
    for name in presets():
        own = load(name)
        if own.policy.kind == "surrogate" and own.backend.virtual:
            on = load(name, workload_name="cluster.toml")
            assert on.policy == own.policy
            assert (on.rollout.sync, on.rollout.routing) == (own.rollout.sync, own.rollout.routing)
            assert on.curation.admission == own.curation.admission


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hosts", "four"), "hosts are written COUNTxMEMORYGiB"),
        (("--desktops", "400"), "400 desktops of 4.2 GiB do not fit on 8 hosts"),
        (("--trainer-gpus", "8"), "engines and trainer need 1 or more each"),
        (("--model-billions", "72"), "leaves 0 tokens of cache on one h100"),
        (("--gpu", "h1000"), "cluster.engine.gpu = 'h1000' is unknown"),
        (("--workload", "office"), "there is no workload 'office'"),
    ],
)
def test_what_cannot_work_writes_nothing(dartsim, capsys, arguments, said):
    assert dartsim("new", "cluster.toml", *arguments, "--yes") == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("cluster.toml").exists()


def test_a_file_is_not_overwritten(dartsim, capsys):
    Path("cluster.toml").write_text("mine")
    assert dartsim("new", "cluster.toml", "--yes") == 2
    assert "cluster.toml exists already" in capsys.readouterr().err
    assert Path("cluster.toml").read_text() == "mine"


def test_on_a_terminal_it_asks_for_what_was_not_given():
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be opened here: {error}")
    command = [sys.executable, "-m", "dartsim", "new", "cluster.toml", "--hosts", "2x64GiB", "--gpus", "4"]
    os.write(ours, b"24\n\n300\n")
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "Parameters of the model, billions [7.0]" in done.stdout
    assert "24 desktops on 2x64GiB" in done.stdout
    assert "300 s an update" in done.stdout


def test_a_larger_model_is_slower_and_leaves_less_cache():
    small, large = (
        prepare(load("dart", overrides=[f"cluster.engine.model_billions={size}"])).gpu for size in ("7.0", "14.0")
    )
    assert large.iteration_seconds(8) > 1.5 * small.iteration_seconds(8)
    assert 0 < large.kv_capacity_tokens < small.kv_capacity_tokens / 2
    assert small is prepare(load("dart")).gpu


@pytest.fixture
def times():
    rng = np.random.default_rng(1)
    rows = zip(rng.lognormal(0.5, 0.8, 300), 10_000 * rng.gamma(9.0, 1.0, 300), strict=True)
    text = "\n".join(f"{number},{step:.4f},{boot:.1f}" for number, (step, boot) in enumerate(rows))
    Path("times.csv").write_text(f"id,step,boot_ms\n{text}\n")
    return "times.csv"


def test_measured_times_become_a_profile_that_run_loads(dartsim, capsys, times):
    assert dartsim("import-latencies", times, "--column", "step", "--json", "fits.json") == 0
    assert "KS distance" in capsys.readouterr().out
    fits = json.loads(Path("fits.json").read_text())["fits"]["step"]
    by_kind = {fit["kind"]: fit for fit in fits}
    assert fits[0]["kind"] == "empirical"
    assert fits[0]["ks"] < 0.01
    assert by_kind["lognormal"]["ks"] < 0.06 < by_kind["gamma"]["ks"], "they were drawn from a lognormal"
    latency = tomllib.loads(Path("latencies.toml").read_text())["cluster"]["env"]["latency"]["step"]
    column = [float(line.split(",")[1]) for line in Path(times).read_text().splitlines()[1:]]
    assert latency["kind"] == "empirical"
    assert from_spec(latency).mean == pytest.approx(np.mean(column), rel=1e-3)
    page = Path("latencies.html").read_text()
    assert "shifted lognormal" in page
    assert '"name": "measured"' in page or '"name":"measured"' in page
    small = ("--on", "laptop", "--profile", "latencies.toml", "--hours", "0.1", "--out", "run", "--json", "-")
    assert dartsim("run", "areal-eta4", *small) == 0
    assert load(Path("run/config.toml")).cluster.env.latency["step"] == latency


def test_columns_units_and_kinds_are_options(dartsim, times):
    options = ("--column", "boot=boot_ms", "--unit", "ms", "--kind", "gamma", "--out", "mine.toml")
    assert dartsim("import-latencies", times, *options) == 0
    (name, spec), *more = tomllib.loads(Path("mine.toml").read_text())["cluster"]["env"]["latency"].items()
    assert (name, spec["kind"], more) == ("boot", "gamma", [])
    assert spec["mean_seconds"] == pytest.approx(90.0, rel=0.1)
    assert spec["k"] == pytest.approx(9.0, rel=0.3)
    assert Path("mine.html").is_file()


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("id,steps\n1,2\n", "step", "has no column 'step'; it has: id, steps"),
        ("", "step", "has no column 'step'; it has: none"),
        ("step\n1.0\nfast\n", "step", "line 3: step = 'fast'; a number of 0 or more is wanted"),
        ("step\n1.0\n-2\n", "step", "line 3: step = '-2'"),
        ("step\n1.0\nnan\n", "step", "line 3: step = 'nan'"),
        ("step\n1.0\n\n", "step", "column 'step' has 1 values; two or more are wanted"),
        ("step\n1\n2\n", "jump=step", "a desktop has no latency 'jump'; it has: start, boot"),
    ],
)
def test_a_bad_file_gets_one_sentence(dartsim, capsys, text, column, said):
    Path("bad.csv").write_text(text)
    assert dartsim("import-latencies", "bad.csv", "--column", column) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("latencies.toml").exists()
    assert dartsim("import-latencies", "none.csv", "--column", "step") == 2


def test_the_best_kind_has_a_formula_and_no_fit_is_worse_than_its_special_case(dartsim, times):
    assert dartsim("import-latencies", times, "--column", "step", "--kind", "best", "--json", "fits.json") == 0
    latency = tomllib.loads(Path("latencies.toml").read_text())["cluster"]["env"]["latency"]["step"]
    assert latency["kind"] in ("lognormal", "shifted")
    fits = {fit["kind"]: fit["ks"] for fit in json.loads(Path("fits.json").read_text())["fits"]["step"]}
    assert fits["shifted lognormal"] <= fits["lognormal"]


def test_a_shift_is_found_again():
    seconds = 5.0 + np.random.default_rng(2).lognormal(0.0, 0.8, 400)
    fits = {fit.kind: fit for fit in candidates(seconds)}
    assert fits["shifted lognormal"].ks < 0.05 < fits["lognormal"].ks


def test_latencies_alone_are_no_cluster(dartsim, capsys, times):
    assert dartsim("import-latencies", times, "--column", "step") == 0
    assert "dartsim new cluster.toml" in capsys.readouterr().out
    for cluster in ("latencies.toml", "latencies.toml+long-tail"):
        assert dartsim("run", "dart", "--on", cluster) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "latencies.toml has latencies of desktops and no cluster; give it as --profile" in said


@pytest.mark.parametrize("examples", [new.new.__doc__, import_latencies.import_latencies.__doc__])
def test_the_examples_run_one_after_another(dartsim, examples):
    Path("times.csv").write_text("step,action_ms,boot_ms\n1.0,900,20000\n2.0,1100,25000\n1.5,1000,21000\n")
    lines = map(str.strip, examples.replace("\\\n", " ").splitlines())
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("dartsim ")]
    assert len(commands) == 3
    if commands[-1][0] == "compare":
        assert dartsim("new", "cluster.toml", "--yes") == 0
        commands[-1] += ["--hours", "0.3", "--processes", "1"]
    for command in commands:
        assert dartsim(*command) == 0, command


def test_equal_times_are_a_constant(dartsim):
    Path("equal.csv").write_text("step\n0.0\n0.0\n0.0\n")
    assert dartsim("import-latencies", "equal.csv", "--column", "step", "--kind", "best") == 0
    spec = tomllib.loads(Path("latencies.toml").read_text())["cluster"]["env"]["latency"]["step"]
    assert from_spec(spec).mean == 0.0


def test_the_schema_lists_every_kind_of_distribution(dartsim, capsys):
    assert dartsim("config", "schema") == 0
    printed = capsys.readouterr().out
    assert "samples" in printed
    assert dartsim("config", "schema", "--json", "-") == 0
    kinds = {row["kind"]: row["forms"] for row in json.loads(capsys.readouterr().out)["distributions"]}
    assert set(kinds) == {"constant", "lognormal", "gamma", "quantiles", "empirical", "sum", "shifted", "capped"}
    assert set(kinds["lognormal"][1]) == {"median_seconds", "sigma"}
