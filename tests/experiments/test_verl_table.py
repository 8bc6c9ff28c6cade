"""verl's table: what is simulated for a row, and that a fit is read off it."""

from __future__ import annotations

import pytest

from experiments.verl_table import Fit, Row, arguments, predict, update_seconds

FIT = Fit(160.0, 2.0)


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


def test_the_command_line_names_a_row():
    row, left = arguments(["--train-gpus", "32", "--theta", "0.5", "--require-batches", "1", "--quick"])
    assert (row, left) == (Row(32, 64, 0.5, 1), ["--quick"])
    assert arguments(["--train-gpus", "0", "--rollout-gpus", "128"])[0] == Row(0, 128)
    with pytest.raises(SystemExit, match="wanted a multiple of 16"):
        arguments(["--rollout-gpus", "24"])
