"""``dartsim collect``: from an oracle, a model and a recorded run into a folder, and from there into a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `train`")

from dartsim.config import load
from dartsim.curation import SuccessPool
from dartsim.real.pool_files import read_pool
from dartsim.run.learning import learning
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation

TASKS = ("--set", "tasks.count=12", "--set", "tasks.held_out=8")
SHORT = (*TASKS, "--set", "rollout.num_envs=8", "--set", "run.updates=2")
FEW = ("curation.batch.min_groups=4", "curation.batch.max_groups=4")


@pytest.fixture(scope="module")
def run(dartsim, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run's folder, whose pool has kept successes."""
    folder = tmp_path_factory.mktemp("collect") / "run"
    few = [word for setting in FEW for word in ("--set", setting)]
    assert dartsim("run", *SHORT, *few, "--out", str(folder), "--json", "-") == 0
    return folder


def collected(dartsim, tmp_path, *arguments: str) -> tuple[int, Path, dict]:
    folder, figures = tmp_path / "pool", tmp_path / "figures.json"
    code = dartsim("collect", *arguments, "--out", str(folder), "--json", str(figures))
    return code, folder, json.loads(figures.read_text()) if figures.exists() else {}


def config(*changes: str):
    settings = [word for word in SHORT if word != "--set"]
    return load(preset_name="tiny", overrides=[*settings, *FEW, *changes])


def test_the_oracle_solves_every_task(dartsim, tmp_path, capsys):
    code, folder, figures = collected(dartsim, tmp_path, "--oracle", "2", *TASKS)
    assert code == 0
    assert (figures["successes"], figures["tasks"], figures["tasks_solved"], figures["attempts"]) == (24, 12, 12, 24)
    assert figures["source"] == {"kind": "oracle", "per_task": 2}
    said = " ".join(capsys.readouterr().out.split())
    assert "24 successes in 24 attempts, at 12 of 12 tasks" in said
    found = read_pool(folder, prepare(config()).tasks)
    assert all(turn.reply.logprobs is None for success in found.successes for turn in success.turns)


def test_a_run_begins_with_the_oracle_s_successes_scored_by_its_first_weights(dartsim, tmp_path):
    _, folder, _ = collected(dartsim, tmp_path, "--oracle", "1", *TASKS)
    pools = []
    for changes in ([f"curation.pool.file={folder}"], ["curation.pool.collected_per_task=1"]):
        prepared = prepare(config(*changes))
        pool = SuccessPool()
        learning(prepared).fill(pool)
        pools.append([pool.stored(task.id)[0].trajectory for task in prepared.tasks])
    for from_file, made_now in zip(*pools, strict=True):
        for one, other in zip(from_file.turns, made_now.turns, strict=True):
            assert one.reply.action == other.reply.action
            assert np.array_equal(one.reply.logprobs, other.reply.logprobs)
            assert np.array_equal(one.observation.screenshot, other.observation.screenshot)


def test_a_model_s_successes_keep_its_own_log_probabilities_and_version(dartsim, tmp_path, run):
    code, folder, figures = collected(dartsim, tmp_path, "--model", str(run), "--attempts", "6")
    assert code == 0
    assert figures["attempts"] == 72
    assert figures["source"]["version"] == 2
    prepared = prepare(config(f"curation.pool.file={folder}"))
    learned = learning(prepared)
    pool = SuccessPool(max_per_task=99)
    learned.fill(pool)
    assert len(pool) == figures["successes"] > 0
    written = read_pool(folder, prepared.tasks).successes
    for success in written:
        stored = [entry.trajectory for entry in pool.stored(success.attempt.task.id)]
        same = [one for one in stored if one.attempt.seed == success.attempt.seed]
        assert len(same) == 1
        assert same[0].oldest_version == 2
        assert same[0].attempt.id < 0
        assert all(
            np.array_equal(one.reply.logprobs, other.reply.logprobs)
            for one, other in zip(same[0].turns, success.turns, strict=True)
        )


def test_a_pool_of_a_file_rescues_groups_and_is_counted(dartsim, tmp_path):
    """At chance most groups of two fail whole: each gets a success of the file."""
    _, folder, _ = collected(dartsim, tmp_path, "--oracle", "1", *TASKS)
    prepared = prepare(
        config(f"curation.pool.file={folder}", "curation.attempts.rule=fixed", "curation.attempts.group_size=2")
    )
    learned = learning(prepared)
    result = run_simulation(prepared, learning=learned)
    figures = learned.figures()["pool"]
    assert figures["stored_collected"] == 12
    assert figures["rescued"] > 0
    assert figures["file"] == {"successes": 12, "unknown_tasks": []}
    assert result.figures["total_updates"] == 2


def test_what_a_run_kept_is_collected(dartsim, tmp_path, run):
    assert (run / "successes" / "pool.json").is_file()
    code, folder, figures = collected(dartsim, tmp_path, "--run", str(run))
    assert code == 0
    assert figures["attempts"] is None
    assert figures["source"]["kind"] == "run"
    assert figures["successes"] == figures["tasks_solved"] > 0  # one a task
    success = read_pool(folder, prepare(config()).tasks).successes[0]
    assert all(turn.reply.logprobs is not None for turn in success.turns)
    assert json.loads((run / "summary.json").read_text())["pool"]["stored_online"] > 0


def test_unknown_tasks_are_reported(dartsim, tmp_path, run, capsys, caplog):
    _, folder, _ = collected(dartsim, tmp_path, "--oracle", "1", *TASKS)
    prepared = prepare(config(f"curation.pool.file={folder}", "tasks.count=5"))
    learned = learning(prepared)
    learned.fill(SuccessPool())
    assert "successes of 7 tasks that this run has not were left out" in caplog.text
    assert len(learned.figures()["pool"]["file"]["unknown_tasks"]) == 7
    (tmp_path / "b").mkdir()
    code, _, figures = collected(dartsim, tmp_path / "b", "--run", str(run), "--set", "tasks.count=1")
    if code == 0:  # the run may have kept nothing of the one task
        assert len(figures["unknown_tasks"]) > 0
        assert "left out" in " ".join(capsys.readouterr().err.split())
    else:
        assert code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "wanted exactly one source, --oracle N, --model RUN, --run RUN or --results DIR; found none of them"),
        (("--oracle", "1", "--run", "x"), "found --oracle and --run"),
        (("--oracle", "1", "--preset", "dart"), "has a surrogate policy"),
        (("--model", "nowhere"), "nowhere is not a folder"),
        (("--oracle", "1", "--out", "here"), "here already exists"),
    ],
    ids=["none", "two", "surrogate", "absent", "used"],
)
def test_a_wrong_request_is_refused(dartsim, tmp_path, capsys, arguments, message):
    (tmp_path / "here").mkdir()
    assert dartsim("collect", *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


def test_what_cannot_be_written_is_not_a_success(dartsim, tmp_path, capsys):
    """The grammar has no word for an infeasible task: nothing is collected, and nothing written."""
    code, folder, _ = collected(dartsim, tmp_path, "--oracle", "1", *TASKS, "--set", "tasks.mock=missing_jobs")
    assert code == 1
    assert "the oracle made no success at 12 tasks" in " ".join(capsys.readouterr().err.split())
    assert not folder.exists()


def test_another_model_s_successes_are_refused_before_the_run_starts(dartsim, tmp_path, capsys):
    _, folder, _ = collected(dartsim, tmp_path, "--oracle", "1", *TASKS)
    out = tmp_path / "run"
    changes = ("--set", "policy.grid=4", "--set", f"curation.pool.file={folder}")
    assert dartsim("run", *SHORT, *changes, "--out", str(out)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "written in the tokens of another model" in said
    assert "num_actions is 9 there and 16 here" in said
    assert not out.exists()


def test_a_file_of_other_tasks_is_refused(dartsim, tmp_path, capsys):
    _, folder, _ = collected(dartsim, tmp_path, "--oracle", "1", *TASKS)
    changes = ("--set", "run.seed=5", "--set", f"curation.pool.file={folder}")
    assert dartsim("run", *SHORT, *changes, "--out", str(tmp_path / "run")) == 2
    assert "holds no success of this run's tasks: 12 others" in " ".join(capsys.readouterr().err.split())


def test_a_file_that_no_pool_would_use_is_refused(dartsim, tmp_path, capsys):
    changes = ("--set", "curation.pool.file=x", "--set", "curation.pool.enabled=false")
    assert dartsim("run", *changes, "--out", str(tmp_path / "run")) == 2
    assert "would never be used" in " ".join(capsys.readouterr().err.split())


def test_a_run_that_kept_nothing_says_what_it_takes(dartsim, tmp_path, capsys, run):
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (bare / file.name).write_bytes(file.read_bytes())
    assert dartsim("collect", "--run", str(bare), "--out", str(tmp_path / "pool")) == 2
    assert "kept no successes" in " ".join(capsys.readouterr().err.split())
