"""The cost of a request: pool, router, worker and client, against a bare httpx loop and openai's client.

    python -m experiments.router            three rounds: a quarter of an hour, most of it httpx with 1,000 turns
    python -m experiments.router --quick    the same keys in a minute

All ask the same server (``experiments.fast_server``, a process of its own), from this process, with the same prompt
and screenshot, in alternating rounds, so that what else the machine does falls on all of them alike:

- ``ours``: ``RolloutService`` over four ``VllmWorker``: prompt built, PNG cached, engine asked, answer checked;
- ``httpx``: one ``AsyncClient`` that posts the finished body and parses the JSON, nothing else;
- ``pooled``: the same loop over 64 of them, in turn: httpx at its best with many connections;
- ``openai``: vLLM's own client, the openai package, ``completions.create`` with a prompt of as many tokens.

*CPU*: of this process, a request, with a server that answers at once; the median of the rounds. *Overhead*: ours less
that of a bare loop (of the two httpx loops, the cheaper one). *Kept*: throughput, ours as a share of the faster bare
loop's in the same round, the median of the rounds: ``kept_at_once`` with a server that answers at once, where a client
is all there is and any of its CPU shows; ``kept`` with one that takes ``reply_seconds`` for a reply, as an engine does.
*Share*: requests a second of that server, of turns at once / ``reply_seconds``, which no client could exceed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dartsim.config.schema import RolloutConfig
from dartsim.core.types import Attempt, Observation, Request, Task, Weights
from dartsim.observe import Recorder
from dartsim.real.engines.sent_images import image_part
from dartsim.rollout.routers.session_affine import SessionAffine
from dartsim.rollout.service import RolloutService
from experiments.study import Experiment, Figures, Options, rows_of, short_commit, table

if TYPE_CHECKING:
    from dartsim.real.engines.request_codec import EncodedRequest, RequestCodec

LIVE = (1, 16, 256, 1_000)
"""Turns at once."""
WORKERS = 4
POOLS = 64
"""httpx clients of the loop ``pooled``."""
MOST_OVERHEAD_MS = 1.0
LEAST_KEPT = 0.95
"""What is aimed at: less than a millisecond, and less than 5 % of the throughput of a bare loop."""
REPLY_SECONDS = {True: 2.0, False: 4.0}
"""Of the server in the throughput part, quick and full; 104 tokens at 40 ms are 4 s."""
QUICK_RIVALS = 16
"""Turns at once up to which a quick run measures one pool of httpx, and openai: 1,000 at once take minutes."""
BARE = ("httpx", "pooled")
"""Loops that do nothing but ask."""
INSTRUCTION = "press the red button"

Ask = Callable[[int], Awaitable[Any]]
"""Carries out the turn of a number."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The request codec, an encoded request, and the reply of the server."""

    codec: RequestCodec
    asked: EncodedRequest

    @classmethod
    def make(cls) -> Turns:
        from dartsim.real.engines.request_codec import RequestCodec
        from dartsim.real.vlm import build, tiny

        codec = RequestCodec(build(tiny()))
        return cls(codec, codec.encode(request(0)))

    def body(self) -> Figures:
        parts = [json.loads(image_part(picture)) for picture in self.asked.pictures]
        return {**self.asked.body, "content_parts": parts}

    def answer(self) -> bytes:
        """Return what a vLLM server would say."""
        token = self.asked.body["sampling_params"]["allowed_token_ids"][0]
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": "length",
            "token_ids": [token],
            "weight_versions": [{"version": "0", "start": 0, "end": 1}],
            "logprobs": {"content": [{"token": f"token_id:{token}", "token_id": token, "logprob": -2.2, "rank": 1}]},
            "text": "x",
        }
        usage = {"prompt_tokens": self.asked.prompt_tokens, "completion_tokens": 1, "total_tokens": 1}
        more = {"id": "x", "object": "text_completion", "created": 0, "model": "policy"}
        choice["logprobs"] |= {"tokens": ["x"], "token_logprobs": [-2.2], "top_logprobs": None, "text_offset": [0]}
        return json.dumps({**more, "request_id": "x", "choices": [choice], "usage": usage}).encode()


def request(number: int) -> Request:
    """Return the first turn of an attempt; all see the same screen."""
    return Request(
        Attempt(number, Task("turn", INSTRUCTION), 0, 0, number, 1, 0), 0, Observation(SCREEN, INSTRUCTION), []
    )


SCREEN = np.kron(
    np.random.default_rng(0).integers(0, 256, (14, 14, 3), dtype=np.uint8), np.ones((8, 8, 1), dtype=np.uint8)
)
"""A screenshot as compressible as a plain desktop's."""


@contextmanager
def server(turns: Turns) -> Iterator[str]:
    """Run the server as a process; yield its address."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        file.write_bytes(turns.answer())
        command = [sys.executable, "-m", "experiments.fast_server", str(file)]
        root = Path(__file__).resolve().parent.parent
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@asynccontextmanager
async def ours(url: str, turns: Turns) -> Any:
    """The pool as a run has it."""
    from dartsim.real.engines.launcher import AttachedEngine
    from dartsim.real.engines.options import WorkerSettings
    from dartsim.real.engines.worker import VllmWorker

    settings = WorkerSettings(warm_up=False)  # the server has one answer, for one prompt
    recorder = Recorder(asyncio.get_running_loop().time, num_envs=max(LIVE), num_engines=WORKERS)
    async with AsyncExitStack() as stack:
        workers = []
        for index in range(WORKERS):
            worker = VllmWorker(index, AttachedEngine(url), turns.codec, weights=Weights(0), settings=settings)
            workers.append(await stack.enter_async_context(worker))
        pool = RolloutService(
            workers, weights=Weights(0), router=SessionAffine(), config=RolloutConfig(), recorder=recorder
        )
        track = recorder.desktops.tracks[0]

        async def ask(number: int) -> Any:
            asked = request(number)
            return await pool.session(asked.attempt, track).generate(asked)

        yield ask


@asynccontextmanager
async def bare(url: str, turns: Turns, *, pools: int = 1) -> Any:
    """Clients of httpx, in turn, and nothing else."""
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    context = ssl.create_default_context()  # one for all: each takes 20 ms to make
    async with AsyncExitStack() as stack:
        options: Any = {"base_url": url, "timeout": None, "limits": limits, "trust_env": False, "verify": context}
        clients = [await stack.enter_async_context(httpx.AsyncClient(**options)) for _ in range(pools)]
        body = {**turns.body(), "request_id": "x", "cache_salt": "x"}

        async def ask(number: int) -> Any:
            response = await clients[number % pools].post("/inference/v1/generate", json=body)
            return response.raise_for_status().json()

        yield ask


@asynccontextmanager
async def openai(url: str, turns: Turns) -> Any:
    """The client that vLLM's documentation uses."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    tokens = [1] * turns.asked.prompt_tokens
    limits: Any = {"trust_env": False}
    async with AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", timeout=600.0, http_client=DefaultAsyncHttpxClient(**limits)
    ) as client:

        async def ask(number: int) -> Any:
            return await client.completions.create(
                model="policy", prompt=tokens, max_tokens=1, logprobs=1, seed=number, extra_body={"request_id": "x"}
            )

        yield ask


CLIENTS: dict[str, Callable[[str, Turns], Any]] = {
    "ours": ours,
    "httpx": bare,
    "pooled": partial(bare, pools=POOLS),
    "openai": openai,
}


async def many(ask: Ask, live: int, count: int, seconds: float = 20.0) -> int:
    """Carry out ``count`` turns, ``live`` at once, and return how many; none starts after ``seconds``.

    Each place asks its next one when it has its answer.
    """
    numbers, done, end = iter(range(count)), 0, time.perf_counter() + seconds

    async def place() -> None:
        nonlocal done
        for number in numbers:
            await ask(number)
            done += 1
            if time.perf_counter() > end:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(live):
            group.create_task(place())
    return done


class RouterSample(NamedTuple):
    """One measurement: CPU seconds per request, and requests per second with a fast and with a slow server."""

    cpu_seconds: float
    fast: float
    slow: float


async def once(
    name: str, url: str, turns: Turns, live: int, counts: tuple[int, int], reply_seconds: float
) -> RouterSample:
    """Measure one client with a server that answers at once, and with a slow one."""
    async with CLIENTS[name](url, turns) as ask:
        await many(ask, live, live)  # connections are opened before
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        done = await many(ask, live, counts[0])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        await set_seconds(url, reply_seconds)
        began = time.perf_counter()
        slow = await many(ask, live, counts[1]) / (time.perf_counter() - began)
        await set_seconds(url, 0.0)
    return RouterSample(cpu / done, done / wall, slow)


async def set_seconds(url: str, seconds: float) -> None:
    """Set how long the server takes for a reply."""
    import httpx

    async with httpx.AsyncClient(trust_env=False) as client:
        (await client.get(f"{url}/seconds/{seconds}")).raise_for_status()


def clients() -> list[str]:
    """Return those that are installed."""
    try:
        import openai  # noqa: F401 - looked for
    except ModuleNotFoundError:
        return ["ours", *BARE]
    return list(CLIENTS)


def measure(options: Options) -> Figures:
    """Measure all clients at every number of turns at once, taking turns."""
    turns, names = Turns.make(), clients()
    rows = []
    reply_seconds = REPLY_SECONDS[options.quick]
    with server(turns) as url:
        for live in LIVE:
            counts = (min(256, max(100, live)), live) if options.quick else (max(500, live), 2 * live)
            found: dict[str, list[RouterSample]] = {name: [] for name in names}
            measured = ["ours", "pooled"] if options.quick and live > QUICK_RIVALS else names
            for number in range(options.seeds):
                for name in measured if number % 2 == 0 else reversed(measured):  # none is always the first
                    found[name].append(asyncio.run(once(name, url, turns, live, counts, reply_seconds)))
            rows.append(figures_of(live, found, reply_seconds))
            options.console.print(f"{live} at once: done")
    return {
        "rows": rows,
        "wanted": {"overhead_ms": MOST_OVERHEAD_MS, "kept": LEAST_KEPT},
        "not_met": [missed for row in rows for missed in not_met(row)],
        "reply_seconds": reply_seconds,
        "missing": sorted(set(CLIENTS) - set(names)),
        "body_bytes": len(json.dumps(turns.body())),
        "load_average": os.getloadavg()[0],
        "config": {"workers": WORKERS, "live": list(LIVE), "quick": options.quick},
    }


def figures_of(live: int, found: Mapping[str, Sequence[RouterSample]], reply_seconds: float) -> Figures:
    """Return the medians of what was measured with ``live`` turns at once."""
    row: Figures = {"live": live}
    for name, times in found.items():
        if not times:
            row |= dict.fromkeys((f"{name}_cpu_ms", f"{name}_requests_per_second", f"{name}_throughput_share"))
            continue
        row[f"{name}_cpu_ms"] = round(1e3 * median(one.cpu_seconds for one in times), 3)
        row[f"{name}_requests_per_second"] = round(median(one.fast for one in times), 1)
        row[f"{name}_throughput_share"] = round(median(one.slow for one in times) * reply_seconds / live, 4)
    loops = [name for name in BARE if found.get(name)]
    row["overhead_ms"] = round(row["ours_cpu_ms"] - min(row[f"{name}_cpu_ms"] for name in loops), 3)
    rounds = list(zip(found["ours"], *(found[name] for name in loops), strict=True))
    row["kept_at_once"] = round(median(ours.fast / max(one.fast for one in rest) for ours, *rest in rounds), 4)
    row["kept"] = round(median(ours.slow / max(one.slow for one in rest) for ours, *rest in rounds), 4)
    return row


def not_met(row: Figures) -> list[Figures]:
    """Return where a row misses what is aimed at, with the figure that was found."""
    wrong = {"overhead_ms": row["overhead_ms"] > MOST_OVERHEAD_MS}
    wrong |= {name: row[name] < LEAST_KEPT for name in ("kept_at_once", "kept")}
    return [{"live": row["live"], "figure": name, "value": row[name]} for name, missed in wrong.items() if missed]


def clients_table(figures: Figures) -> str:
    """The cost of a turn by client and turns at once, and where the aim is missed."""
    names = {"ours": "ours", "httpx": "`httpx`", "pooled": "64 `httpx`", "openai": "openai"}
    there = [name for name in names if f"{name}_cpu_ms" in figures["rows"][0]]
    columns = {
        "turns": "{live:,}",
        **{f"{names[name]}, CPU ms": f"{{{name}_cpu_ms:.2f}}" for name in there},
        "over a bare loop, ms": "{overhead_ms:+.2f}",
        "kept at once": "{kept_at_once:.2f}x",
        f"kept, {figures['reply_seconds']:g} s": "{kept:.2f}x",
        "share": "{ours_throughput_share:.0%}",
    }
    missed = [f"{one['figure']} = {one['value']:g} at {one['live']:,} turns" for one in figures["not_met"]]
    about = (
        f"Not met: {', '.join(missed) or 'nowhere'}. Recorded at commit {short_commit(figures)}, "
        f"{len(figures['seeds'])} rounds, load {figures['load_average']:.1f}.\n"
    )
    return f"{table(*rows_of(columns, figures['rows']))}\n{about}"


def router_found(figures: Figures) -> str:
    """Say in one sentence what a request costs beside other clients."""
    rows = figures["rows"]
    costs = "; ".join(
        f"{row['live']:,} at once: {row['ours_cpu_ms']:.2f} ms, `httpx` "
        f"{min(row['httpx_cpu_ms'], row['pooled_cpu_ms']):.2f} ms at best, vLLM's own client "
        f"{row['openai_cpu_ms']:.2f} ms"
        for row in (rows[0], rows[-1])
    )
    return f"CPU of a request to an engine, {costs}. Recorded at commit {short_commit(figures)}.\n"


STUDY = Experiment(
    name="router",
    about=str(__doc__),
    measure=measure,
    tables={"router": clients_table, "router-found": router_found},
)

if __name__ == "__main__":
    STUDY.run()
