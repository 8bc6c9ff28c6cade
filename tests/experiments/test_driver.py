"""Parts of the driver are counted once, and the table says what was measured."""

from __future__ import annotations

import time
from types import ModuleType

import pytest

from experiments.driver import PARTS, Meter, driver_table, metered


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_part_within_another_is_counted_once_and_only_while_measured():
    made = ModuleType("made")

    def inner():
        burn(0.02)

    def outer():
        burn(0.01)
        made.inner()

    made.inner, made.outer = inner, outer
    meter = Meter()
    before = time.thread_time()
    with meter.part("store", made, "inner"), meter.part("prompt", made, "outer"):
        made.outer()
        made.inner()
    took = time.thread_time() - before
    assert meter.seconds["store"] >= 0.04
    assert meter.seconds["prompt"] >= 0.01
    assert sum(meter.seconds.values()) <= took
    assert (made.inner, made.outer) == (inner, outer)


def test_the_table_names_where_the_target_is_missed():
    row = {"turns_per_minute": 900.0, "cpu_ms": 40.0, "loop_ms": 20.0, "rest_ms": 9.0, "peak_mib": 1_000}
    row |= {f"{name}_ms": 5.0 for name in PARTS}
    rows = [{**row, "desktops": 38, "store_kb_per_turn": 480.0}, {**row, "desktops": 180, "store_kb_per_turn": 480.0}]
    figures = {
        "rows": rows,
        "learner": {"read_ms": 2.0, "read_mib": 0.5, "write_ms": 34.0},
        "not_met": [38],
        "wanted": {"turns_per_minute": 1_000.0},
        "screen_kb": 400,
        "router_cpu_ms_at_112_pixels": 0.26,
        "config": {"cores": 2},
        "commit": {"id": "0123456789abcdef"},
        "load_average": 0.5,
    }
    told = driver_table(figures)
    assert "| 38 | 900 | 40.0 | 20.0 |" in told
    assert "Below 1,000 turns a minute: 38 desktops." in told


def test_every_part_is_where_it_is_measured():
    pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("aiohttp", reason="needs the extra `real`")
    with metered() as meter:
        assert not meter.seconds
