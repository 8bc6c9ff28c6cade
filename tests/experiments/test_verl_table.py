"""verl's table: what is simulated for a row, and that a fit is read off it."""

from __future__ import annotations

import io
from argparse import Namespace

import pytest
from rich.console import Console

from dartsim.core.errors import ConfigError
from experiments import verl_table
from experiments.study import Options
from experiments.verl_table import (
    OTHERS,
    STUDY,
    Fit,
    Row,
    measure,
    predict,
    row_of,
    update_seconds,
    verl_provenance,
    verl_rows,
)

FIT = Fit(160.0, 2.0)


def asked_for(arguments: str) -> Namespace:
    """Return the options of a command line."""
    return STUDY.parser().parse_args(arguments.split())


def test_more_rollout_gpus_shorten_the_wait_and_a_longer_tail_lengthens_it():
    base = predict(Row(64, 64), FIT, steps=3)
    assert predict(Row(64, 128), FIT, steps=3)["gen_wait_seconds"] < base["gen_wait_seconds"]
    longer = predict(Row(64, 64), Fit(200.0, 2.0), steps=3)
    assert longer["step_seconds"] - base["step_seconds"] == pytest.approx(40.0, abs=25.0)


def test_stale_samples_hide_the_tail():
    """With theta 1 the next step's replies are made while this one's last ones are waited for."""
    waits = [predict(Row(64, 64, theta, partial=True), FIT, steps=4)["gen_wait_seconds"] for theta in (0.0, 1.0)]
    assert waits[1] < 0.6 * waits[0]


def test_a_synchronous_step_is_the_sum_of_its_parts():
    found = predict(Row(0, 128), FIT, steps=3)
    assert found["step_seconds"] == pytest.approx(found["gen_wait_seconds"] + 356.3 - 177.9, rel=0.02)
    assert found["hours_400_steps"] == pytest.approx(found["step_seconds"] / 9.0)


def test_half_of_an_update_shrinks_with_the_trainer_s_gpus():
    assert [update_seconds(gpus) for gpus in (32, 64, 128)] == pytest.approx([148.2, 98.8, 74.1])


def test_a_run_predicts_other_rows_too_and_the_page_shows_all(monkeypatch):
    monkeypatch.setattr(verl_table, "fit_rows", lambda steps, rounds: FIT)
    monkeypatch.setattr(verl_table, "predict", lambda row, fit, steps, seed=0: predict(row, fit, steps=3, seed=seed))
    asked, console = Row(32, 32, 0.5, 1), Console(file=io.StringIO(), width=160)
    own = asked_for("--train-gpus 32 --rollout-gpus 32 --require-batches 1")
    options = Options(quick=True, seeds=1, console=console, own=own)
    figures = {
        **measure(options),
        "seeds": [0],
        "commit": {"id": "0123456789abcdef"},
    }
    assert figures["step_seconds"] == predict(asked, FIT, steps=3)["step_seconds"]
    STUDY.show(figures, console)
    head, rows = verl_rows(figures)
    assert all(len(row) == len(head) for row in rows)
    assert [row[0] for row in rows] == ["128 for both", "64 : 64", "32 : 32", "64 : 64"]
    assert rows[0][4] == "356.3 (fitted)"
    assert rows[2][4:6] == ["–", f"{figures['step_seconds']:.1f}"]
    assert "160 s for the longest reply alone, 2.00 s" in verl_provenance(figures)
    for other in OTHERS:
        row = Row(*other)
        given = f"--train-gpus {row.train_gpus} --rollout-gpus {row.rollout_gpus} --theta {row.theta}"
        given += f" --require-batches {row.require_batches}{' --partial' if row.partial else ''}"
        assert row_of(asked_for(given)) == row


def test_the_command_line_names_a_row(capsys):
    assert row_of(asked_for("--train-gpus 32 --theta 0.5 --require-batches 1 --quick")) == Row(32, 64, 0.5, 1)
    assert row_of(asked_for("--train-gpus 0 --rollout-gpus 128")) == Row(0, 128)
    with pytest.raises(SystemExit):
        asked_for("--rollout-gpus 24")
    assert "must be a multiple of 16, got 24" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="at least 16, got 0"):
        row_of(asked_for("--rollout-gpus 0"))
