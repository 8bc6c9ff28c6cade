"""Instructions and cache misses of a turn, as Valgrind counts them."""

import shutil

import pytest

from experiments import turn_instructions
from experiments.turn_instructions import counted, row_of


def test_a_turn_has_what_the_longer_run_has_more(monkeypatch):
    runs = {
        0.1: {"instructions": 100, "code_misses": 10, "data_misses": 5, "second_level_misses": 1, "turns": 10},
        0.2: {"instructions": 300, "code_misses": 30, "data_misses": 25, "second_level_misses": 1, "turns": 20},
    }
    monkeypatch.setattr(turn_instructions, "counted", lambda form, num_envs, hours: runs[hours])
    row = row_of(("bare", 40, (0.1, 0.2)))
    assert (row["instructions"], row["code_misses"], row["second_level_misses"]) == (20, 2, 0)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_valgrind_counts_a_run():
    found = counted("bare", 20, 0.02)
    assert found["turns"] > 0
    assert found["instructions"] > 100_000 * found["turns"]
    assert 0 < found["second_level_misses"] < found["code_misses"] + found["data_misses"]
