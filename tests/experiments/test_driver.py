"""Parts of the driver are counted once."""

from __future__ import annotations

import time
from types import ModuleType

import pytest

from experiments.driver import Meter, metered


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


def test_every_part_is_where_it_is_measured():
    pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("aiohttp", reason="needs the extra `real`")
    with metered() as meter:
        assert not meter.seconds
