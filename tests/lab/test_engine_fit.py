"""The timing model of an engine from a designed set of loads, and the command that plays them against a server."""

import asyncio
import json
import threading
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extra `real`")

from aiohttp import web

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.lab.engine_fit import compare, design, engine_profile, fit, measure, simulated
from dartsim.real.engines.completions import Completions
from dartsim.sim import run_virtual

TRUTHS = [
    {"iteration_seconds": 0.018, "sequence_seconds": 1e-3, "token_seconds": 3e-4, "kv_seconds": 2e-7},
    {"iteration_seconds": 0.006, "sequence_seconds": 2e-5, "token_seconds": 2e-5, "kv_seconds": 3e-8},
]


def measured(truth, minutes=600.0):
    times = {"pair_seconds": 1e-9, "overhead_seconds": 4e-3, **truth}
    loads = design(max_prompt=1024, max_reply=64, max_clients=8)

    async def main():
        await measure(loads, simulated(engine_profile(times), times["overhead_seconds"]), minutes=minutes)

    run_virtual(main())
    return loads


@pytest.mark.parametrize("truth", TRUTHS)
def test_known_times_come_back_and_loads_that_were_not_fitted_are_predicted(truth):
    loads = measured(truth)
    found = fit(loads)
    for name in ("iteration_seconds", "token_seconds"):
        assert found[name] == pytest.approx(truth[name], rel=0.05), name
    rows = compare(loads, found)
    assert {row["fitted"] for row in rows} == {True, False}
    assert max(abs(row["error"]) for row in rows) < 0.05


def test_loads_end_in_time():
    loads = measured(TRUTHS[0], minutes=0.5)
    begun = min(request.start for each in loads for requests in each.rounds for request in requests)
    ended = max(request.end for each in loads for requests in each.rounds for request in requests)
    assert ended - begun < 30.0 + 2 * len(loads) * 2.0, "the last request of each load may take its time"
    with pytest.raises(ConfigError, match="give more --minutes"):
        measured({**TRUTHS[0], "iteration_seconds": 1.0}, minutes=0.01)


class Server:
    """``/v1/completions`` in a thread: words are tokens, and each reply's token takes 2 ms."""

    def __init__(self, usage=True):
        self.usage, self.prompts = usage, []

    async def complete(self, request):
        body = await request.json()
        self.prompts.append(body["prompt"])
        await asyncio.sleep(0.002 * body["max_tokens"])
        counts = {"prompt_tokens": 2 * len(body["prompt"].split()) + 1, "completion_tokens": body["max_tokens"]}
        return web.json_response({"choices": [{"text": "x"}], "usage": counts if self.usage else None})

    async def models(self, _):
        return web.json_response({"data": [{"id": "tiny"}]})

    def __enter__(self):
        self.loop, started = asyncio.new_event_loop(), threading.Event()

        async def start():
            app = web.Application()
            app.add_routes([web.post("/v1/completions", self.complete), web.get("/v1/models", self.models)])
            self.runner = web.AppRunner(app)
            await self.runner.setup()
            await web.TCPSite(self.runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
            started.set()

        self.thread = threading.Thread(target=lambda: (self.loop.create_task(start()), self.loop.run_forever()))
        self.thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self.runner.cleanup(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


def test_a_server_is_measured_and_its_file_goes_with_a_cluster(dartsim, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("--max-prompt", "64", "--max-reply", "16", "--max-clients", "2")
    with Server() as server:
        assert dartsim("cluster", "measure", "--engine", server.url + "/v1/", *small, "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)["engine_fit"]
    assert {row["figure"] for row in rows} == {"tokens_per_second", "p50_seconds", "p95_seconds"}
    assert len(set(server.prompts)) == len(server.prompts), "no cache of prefixes helps"
    lengths = {2 * len(prompt.split()) + 1 for prompt in server.prompts}
    assert {65, 13, 3} <= lengths, "prompts have the wanted tokens, though a word has two"
    engine = tomllib.loads(Path("engine.toml").read_text())["cluster"]["engine"]
    assert engine["roofline"]["iteration_seconds"] + engine["roofline"]["sequence_seconds"] == pytest.approx(
        2e-3, rel=0.5
    )
    config = load("areal-eta4", on="osworld+engine.toml")
    assert config.cluster.engine.overhead_seconds == engine["overhead_seconds"]
    assert config.cluster.engine.roofline.iteration_seconds == engine["roofline"]["iteration_seconds"]


def test_a_server_that_cannot_be_measured_gets_one_sentence(dartsim, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Server() as server, pytest.raises(ConfigError, match="serves tiny: give --model"):
        asyncio.run(Completions(server.url, "other").__aenter__())
    with Server(usage=False) as server:
        assert dartsim("cluster", "measure", "--engine", server.url) == 2
    assert "does not count tokens" in " ".join(capsys.readouterr().err.split())
    assert dartsim("cluster", "measure", "--engine", server.url) == 2, "it is gone"
    assert "gave no answer" in " ".join(capsys.readouterr().err.split())
    assert dartsim("cluster", "measure") == dartsim("cluster", "measure", "RUN", "--engine", server.url) == 2
    assert not Path("engine.toml").exists()
