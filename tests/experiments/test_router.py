"""The overhead of a turn is measured on all clients, at a server that does what it says."""

from __future__ import annotations

import asyncio
import time

import pytest

pytest.importorskip("torch", reason="needs the extra `train`")
pytest.importorskip("transformers", reason="needs the extra `train`")
pytest.importorskip("httpx", reason="needs the extra `real`")

from experiments import router
from experiments.router import Once, Turns, clients, figures_of, many, once, server


def test_every_client_gets_its_answers():
    turns = Turns.make()
    with server(turns) as url:
        for name in clients():
            began = time.perf_counter()
            found = asyncio.run(once(name, url, turns, 2, (4, 2), 0.2))
            assert found.cpu_seconds > 0
            assert found.fast > 0
            assert found.slow <= 2 / 0.2  # no client is faster than the server
            assert time.perf_counter() - began > 0.2


def test_no_turn_begins_after_its_time():
    async def main() -> None:
        async def ask(number: int) -> None:
            await asyncio.sleep(0)

        assert await many(ask, 3, 10) == 10
        assert await many(ask, 3, 10, seconds=-1.0) == 3

    asyncio.run(main())


def test_figures_are_medians_and_say_what_was_not_measured():
    ours = [Once(0.002, 400.0, 4.0), Once(0.004, 300.0, 5.0), Once(0.003, 350.0, 4.5)]
    row = figures_of(10, {"ours": ours, "httpx": [Once(0.001, 1.0, 1.0)], "openai": []}, 2.0)
    assert (row["ours_cpu_ms"], row["overhead_ms"]) == (3.0, 2.0)
    assert row["ours_throughput_share"] == 0.9
    assert row["throughput_lost"] == pytest.approx(0.1)
    assert row["openai_cpu_ms"] is None


def test_a_missing_client_is_left_out(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    assert router.clients() == ["ours", "httpx"]
