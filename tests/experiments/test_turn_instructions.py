"""Instructions and cache misses of a turn, as Valgrind counts them."""

import shutil

import pytest

from experiments.turn_instructions import counted, per_turn, read_counts, table

PRINTED = """
==7== I   refs:      1,440,741,035
==7== I1  misses:       54,609,860
==7== LLi misses:        1,884,338
==7== D   refs:        704,243,885  (437,470,850 rd + 266,773,035 wr)
==7== D1  misses:       38,375,741  ( 30,639,904 rd +   7,735,837 wr)
==7== LLd misses:        4,927,310  (  3,313,027 rd +   1,614,283 wr)
==7== LL refs:          92,985,601  ( 85,249,764 rd +   7,735,837 wr)
==7== LL misses:         6,811,648  (  5,197,365 rd +   1,614,283 wr)
"""


def test_the_counts_are_read_from_what_valgrind_prints():
    assert read_counts(PRINTED) == {
        "instructions": 1_440_741_035,
        "code_misses": 54_609_860,
        "data_misses": 38_375_741,
        "second_level_misses": 6_811_648,
    }
    with pytest.raises(RuntimeError, match="printed no code_misses"):
        read_counts(PRINTED.replace("I1", "I2"))


def test_a_turn_has_what_the_longer_run_has_more():
    short = {"instructions": 100, "code_misses": 10, "data_misses": 5, "second_level_misses": 1, "turns": 10}
    long = {"instructions": 300, "code_misses": 30, "data_misses": 25, "second_level_misses": 1, "turns": 20}
    assert per_turn(short, long) == {"instructions": 20, "code_misses": 2, "data_misses": 2, "second_level_misses": 0}


def test_the_table_names_form_and_cluster():
    row = {"instructions": 110_532, "code_misses": 4_700, "data_misses": 3_295, "second_level_misses": 564}
    assert table({"rows": [{"form": "compiled", "num_envs": 1_000, **row}]})[1] == [
        ["dartsim, compiled", "1,000", "110,532", "4,700", "3,295", "564"]
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_valgrind_counts_a_run():
    found = counted("bare", 20, 0.02)
    assert found["turns"] > 0
    assert found["instructions"] > 100_000 * found["turns"]
    assert 0 < found["second_level_misses"] < found["code_misses"] + found["data_misses"]
