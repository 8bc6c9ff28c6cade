"""The overhead of a turn is measured on all clients, at a server that does what it says."""

from __future__ import annotations

import asyncio
import time

import pytest

pytest.importorskip("torch", reason="needs the extra `train`")
pytest.importorskip("transformers", reason="needs the extra `train`")
pytest.importorskip("httpx", reason="needs the extra `real`")


from experiments import router
from experiments.router import RouterSample, Turns, clients, figures_of, many, once, server


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
    ours = [RouterSample(0.002, 400.0, 4.0), RouterSample(0.004, 300.0, 5.0), RouterSample(0.003, 350.0, 4.5)]
    loop = [RouterSample(0.002, 500.0, 4.0), RouterSample(0.001, 300.0, 5.0), RouterSample(0.001, 100.0, 5.0)]
    row = figures_of(10, {"ours": ours, "httpx": loop, "pooled": [], "openai": []}, 2.0)
    assert (row["ours_cpu_ms"], row["overhead_ms"]) == (3.0, 2.0)
    assert row["ours_throughput_share"] == 0.9
    assert (row["kept_at_once"], row["kept"]) == (1.0, 1.0)  # medians of .8, 1, 3.5 and of 1, 1, .9
    assert row["openai_cpu_ms"] is None
    assert router.not_met(row) == [{"live": 10, "figure": "overhead_ms", "value": 2.0}]


def test_ours_is_held_against_the_better_of_the_bare_loops_in_every_round():
    ours = [RouterSample(0.001, 90.0, 4.0), RouterSample(0.001, 90.0, 4.0)]
    slow, fast = [RouterSample(0.009, 10.0, 1.0)] * 2, [RouterSample(0.0005, 100.0, 5.0)] * 2
    row = figures_of(10, {"ours": ours, "httpx": slow, "pooled": fast}, 2.0)
    assert (row["overhead_ms"], row["kept_at_once"], row["kept"]) == (0.5, 0.9, 0.8)
    assert [one["figure"] for one in router.not_met(row)] == ["kept_at_once", "kept"]


def test_a_missing_client_is_left_out(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    assert router.clients() == ["ours", "httpx", "pooled"]


def test_where_the_aim_is_missed_is_said():
    row = figures_of(
        16, {"ours": [RouterSample(0.003, 9.0, 9.0)], "httpx": [RouterSample(0.001, 10.0, 9.0)], "pooled": []}, 2.0
    )
    figures = {"rows": [row], "reply_seconds": 2.0, "missing": ["openai"], "not_met": router.not_met(row)}
    quoted = router.clients_table({**figures, "commit": {"id": None}, "seeds": [0], "load_average": 1.0})
    assert "| 16 | 3.00 | 1.00 | – | +2.00 | 0.90x | 1.00x | 112% |" in quoted
    assert "Not met: overhead_ms = 2 at 16 turns, kept_at_once = 0.9 at 16 turns." in quoted
