"""A model in a run: demonstrations, warm start, selection, and the pool filled by the oracle."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `train`")

from dartsim.config import load
from dartsim.curation import SuccessPool
from dartsim.observe import Listener
from dartsim.run.model import trained_model
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

SMALL = (
    "tasks.count=16", "tasks.held_out=8", "rollout.num_envs=8", "run.updates=2", "run.max_segments=0",
    "curation.batch.min_groups=4", "curation.batch.max_groups=4",
)  # fmt: skip


def built(*changes: str):
    prepared = prepare(load("tiny", overrides=[*SMALL, *changes]))
    return prepared, trained_model(prepared)


def test_the_oracle_s_successes_fill_the_pool_with_the_model_s_log_probabilities():
    found, learned = built("curation.pool.collected_per_task=1")
    pool = SuccessPool()
    learned.fill(pool)
    assert len(pool) == len(found.tasks)
    stored = pool.stored(found.tasks[0].id)[0].trajectory
    assert stored.reward == 1.0
    for turn in stored.turns:
        assert len(turn.reply.tokens) == len(turn.reply.logprobs) == len(turn.reply.entropies)
        assert np.all(np.asarray(turn.reply.logprobs) <= 0.0)


def test_what_a_grammar_cannot_write_is_not_stored():
    """The grammar has no word for an infeasible task."""
    _, learned = built("curation.pool.collected_per_task=1", "tasks.mock=missing_jobs", "rollout.max_turns=8")
    pool = SuccessPool()
    learned.fill(pool)
    assert len(pool) == 0


def test_a_run_has_many_turns():
    found, learned = built(
        "policy.grammar=clicks_and_done", "policy.grid=4", "policy.max_texts=4", "tasks.mock=errands",
        "rollout.max_turns=4", "curation.selection.rule=high_entropy", "curation.turn_limit.rule=by_success",
        "run.updates=1", "run.hours=0.2", "curation.groups.drop_all_failed=false", "rollout.num_envs=4",
        "tasks.held_out=2",
    )  # fmt: skip
    result = run_prepared(found, learning=learned)
    assert result.figures["total_updates"] == 1
    assert result.figures["turns_per_trajectory"] > 1
    assert "learner/loss" in result.recorder.updates[0].metrics


def test_two_versions_are_served_during_a_rolling_sync():
    """Replies carry the version that wrote them, whatever the workers load meanwhile."""
    found, learned = built("cluster.engine.reload_seconds=30.0", "run.updates=4")
    seen: set[tuple[int, int]] = set()

    def see(ended) -> None:
        seen.update((turn.reply.oldest_version, turn.reply.version) for turn in ended.turns)

    run_prepared(found, learning=learned, instruments=[Listener(attempt_ended=see)])
    assert {version for _, version in seen} >= {0, 1}
    assert all(oldest == version for oldest, version in seen)
