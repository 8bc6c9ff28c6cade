"""``dartsim eval --keep-successes``: from a model or other agents into a pool, and from there into a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `train`")

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.curation import SuccessPool
from dartsim.real.pool_files import read_pool, token_meaning, write_pool
from dartsim.run.demonstrations import demonstrate
from dartsim.run.model import trained_model
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

TASKS = ("--set", "tasks.count=12", "--set", "tasks.held_out=8")
SHORT = (*TASKS, "--set", "rollout.num_envs=8", "--set", "run.updates=2")
FEW = ("curation.batch.min_groups=4", "curation.batch.max_groups=4")


@pytest.fixture(scope="module")
def run(dartsim, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run's folder, whose pool has kept successes."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    few = [word for setting in FEW for word in ("--set", setting)]
    assert dartsim("run", "tiny", *SHORT, *few, "--out", str(folder), "--json", "-") == 0
    return folder


def config(*changes: str):
    settings = [word for word in SHORT if word != "--set"]
    return load("tiny", overrides=[*settings, *FEW, *changes])


@pytest.fixture
def oracles_pool(tmp_path: Path) -> Path:
    """A pool of the oracle's successes, one a task, without log-probabilities."""
    prepared = prepare(config())
    model = trained_model(prepared).vlm
    successes = [demonstrate(prepared.config, task, 0, model) for task in prepared.tasks]
    meaning = token_meaning(model, prepared.config.policy.screen)
    write_pool(tmp_path / "oracle", [one for one in successes if one], writes=meaning, source={"kind": "oracle"})
    return tmp_path / "oracle"


def test_a_model_s_successes_keep_its_own_log_probabilities_and_version(dartsim, tmp_path, run):
    pool, figures = tmp_path / "pool", tmp_path / "figures.json"
    rest = ("--json", str(figures), "--tasks", "10")
    wanted = (str(run), "--attempts", "6", "--keep-successes", str(pool), "--out", "out", *rest)
    assert dartsim("eval", *wanted) == 0
    found = json.loads(figures.read_text())
    (budget,) = found["budgets"]
    assert (found["split"], budget["attempts"], found["version"]) == ("training", 60, 2)
    prepared = prepare(config(f"curation.pool.file={pool}"))
    learned = trained_model(prepared)
    filled = SuccessPool(max_per_task=99)
    learned.fill(filled)
    assert len(filled) == found["kept_successes"] == round(60 * budget["success_rate"]) > 0
    written = read_pool(pool, prepared.tasks).successes
    for success in written:
        stored = [entry.trajectory for entry in filled.stored(success.attempt.task.id)]
        (same,) = [one for one in stored if one.attempt.seed == success.attempt.seed]
        assert same.oldest_version == 2
        assert same.attempt.id < 0
        assert all(
            np.array_equal(one.reply.logprobs, other.reply.logprobs)
            for one, other in zip(same.turns, success.turns, strict=True)
        )
    first = {file.name: file.read_bytes() for file in pool.iterdir() if file.is_file()}
    again = (*wanted[:4], "again", *wanted[5:])
    assert dartsim("eval", *again) == 0, "an evaluation that was interrupted has kept its successes"
    assert {file.name: file.read_bytes() for file in Path("again").iterdir() if file.is_file()} == first


def test_successes_of_an_evaluation_that_kept_none_are_refused(dartsim, run, capsys):
    wanted = ("eval", str(run), "--attempts", "1", "--set", "tasks.held_out=0", "--out", "out")
    assert dartsim(*wanted, "--json", "figures.json") == 0
    assert json.loads(Path("figures.json").read_text())["budgets"][0]["success_rate"] > 0.0
    assert dartsim(*wanted, "--keep-successes", "pool") == 2
    assert "was not kept; evaluate again in another folder" in " ".join(capsys.readouterr().err.split())


def test_a_run_begins_with_successes_scored_by_its_first_weights(oracles_pool):
    pools = []
    for changes in ([f"curation.pool.file={oracles_pool}"], ["curation.pool.collected_per_task=1"]):
        prepared = prepare(config(*changes))
        pool = SuccessPool()
        trained_model(prepared).fill(pool)
        pools.append([pool.stored(task.id)[0].trajectory for task in prepared.tasks])
    for from_file, made_now in zip(*pools, strict=True):
        for one, other in zip(from_file.turns, made_now.turns, strict=True):
            assert one.reply.action == other.reply.action
            assert np.array_equal(one.reply.logprobs, other.reply.logprobs)
            assert np.array_equal(one.observation.screenshot, other.observation.screenshot)


def test_a_pool_of_a_file_rescues_groups_and_is_counted(oracles_pool):
    """At chance most groups of two fail whole: each gets a success of the file."""
    pairs = ("curation.attempts.rule=fixed", "curation.attempts.group_size=2")
    prepared = prepare(config(f"curation.pool.file={oracles_pool}", *pairs))
    learned = trained_model(prepared)
    result = run_prepared(prepared, learning=learned)
    figures = learned.figures()["pool"]
    assert figures["stored_collected"] == 12
    assert figures["rescued"] > 0
    assert figures["file"] == {"successes": 12, "unknown_tasks": []}
    assert result.figures["total_updates"] == 2


def test_what_a_run_kept_is_a_pool(run):
    (success, *_) = read_pool(run / "successes", prepare(config()).tasks).successes
    assert all(turn.reply.logprobs is not None for turn in success.turns)
    assert json.loads((run / "summary.json").read_text())["pool"]["stored_online"] > 0


def test_a_file_that_no_pool_would_use_is_refused():
    with pytest.raises(ConfigError, match="would never be used"):
        config("curation.pool.file=x", "curation.pool.enabled=false")
