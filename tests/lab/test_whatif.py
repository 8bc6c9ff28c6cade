"""What a run without one cause of idle time brings: of weights that wait, the cause that was named for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dartsim.config import from_tree, load, merge
from dartsim.lab.sweep import InProcess
from dartsim.lab.virtual import as_virtual
from dartsim.lab.whatif import gains
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation

SMALL = Path(__file__).with_name("small.toml")
QUICK = {
    "curation": {"batch": {"max_groups": 1}},
    "cluster": {"learner": {"fixed_seconds": 1.0, "kilotoken_seconds": 0.0}, "engine": {"reload_seconds": 0.0}},
    "run": {"hours": 1.0},
}


def small(**tables):
    return from_tree(merge(merge(load(SMALL).model_dump(), QUICK), tables))


def gain_by_cause(config, *causes):
    return {gain.cause: gain.gain for gain in gains(as_virtual(config), causes, (0,), InProcess()).gains}


def test_publishing_at_once_is_worth_what_the_publication_waits_for():
    config = small(trainer={"publish_wait": "running"})
    assert run_simulation(prepare(config)).figures["trainer_shares"]["wait_publish"] > 0.3
    found = gain_by_cause(config, "waiting to publish", "weight sync")
    assert found["waiting to publish"] > 0.1
    assert found["weight sync"] == pytest.approx(0.0)  # it took no time before


def test_weights_that_wait_for_a_whole_batch_wait_for_data_that_admission_holds_back():
    config = small(trainer={"publish_wait": "batch"}, curation={"admission": {"waiting_batches": 1.0}})
    shares = run_simulation(prepare(config)).figures["trainer_shares"]
    assert shares["wait_data"] > 0.3
    assert shares["wait_publish"] == 0.0
    assert gain_by_cause(config, "not admitted")["not admitted"] > 0.1
