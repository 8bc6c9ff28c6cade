"""A stand-in engine: a server of the vLLM routes that a worker asks, with replies that were written before.

    python -m dartsim.real.rehearsal.engine --model FOLDER --replies REPLIES.json --seconds 4

Prompts are not computed, only counted: each screenshot has as many tokens as the model's image rules say, and one that
was sent before may be named only. Weights are read and hashed as an engine would, and not used.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from dartsim.core.image_size import resize_rules
from dartsim.real.engines.ledger import read_folder
from dartsim.real.rehearsal.serving import serve

_SIZE_CHARACTERS = 44
"""Of a PNG in base64: enough for width and height, which are bytes 16 to 23."""


class StandInEngine:
    """One engine."""

    def __init__(self, model: Path, replies: Sequence[Sequence[int]], *, seconds: float = 0.0) -> None:
        self._rules = resize_rules(model)
        self._images: dict[str, int] = {}
        self._replies = replies
        self._seconds = seconds
        self._answers: dict[tuple[int, int], str] = {}
        self._chance = np.random.default_rng(0)
        self._version = "default"
        self._digests: Mapping[str, str] = read_folder(model).digests
        self._running = asyncio.Event()
        self._running.set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**30)
        routes: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "/inference/v1/generate": self._generate,
            "/pause": self._pause,
            "/resume": self._resume,
            "/is_paused": self._is_paused,
            "/collective_rpc": self._reload,
            "/update_weight_version": self._label,
            "/weight_info": self._info,
            "/weight_checker": self._checksums,
        }
        for path, handler in routes.items():
            app.router.add_route("*", path, handler)
        app.router.add_route("*", "/{path:.*}", self._done)
        return app

    async def _generate(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        try:
            images = [self._image_tokens(part) for part in body.get("content_parts") or ()]
        except KeyError as missing:
            error = {"message": f"Cache miss for image {missing}, but data is not provided.", "type": "BadRequestError"}
            return web.json_response({"error": error}, status=400)
        prompt_tokens = len(body["token_ids"]) + sum(images) - len(images)
        await self._running.wait()
        await asyncio.sleep(self._seconds)
        number = int(self._chance.integers(len(self._replies)))
        count = len(self._replies[number])
        head = {
            "request_id": body["request_id"],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": count,
                "total_tokens": prompt_tokens + count,
            },
        }
        span = json.dumps([{"version": self._version, "start": 0, "end": count}])
        choice = self._choice(number, body["sampling_params"].get("logprobs") or 0)
        text = f'{json.dumps(head)[:-1]}, "choices": [{{{choice}, "weight_versions": {span}}}]}}'
        return web.Response(text=text, content_type="application/json")

    def _choice(self, number: int, top: int) -> str:
        """Return what is the same in all answers with a reply, as JSON without braces."""
        known = self._answers.get((number, top))
        if known is None:
            tokens = self._replies[number]
            others = [{"token_id": other, "logprob": -4.0, "rank": 2 + other} for other in range(top)]
            places = [{"token_id": token, "logprob": -0.3, "rank": 1, "top_logprobs": others} for token in tokens]
            choice = {"finish_reason": "stop", "token_ids": list(tokens), "logprobs": {"content": places}}
            known = self._answers[number, top] = json.dumps(choice)[1:-1]
        return known

    def _image_tokens(self, part: Mapping[str, Any]) -> int:
        """Return the tokens of an image, which may be one that was sent before, under a name.

        Raises:
            KeyError: If none of that name was sent.
        """
        name, url = str(part.get("uuid")), part["url"]
        if url is None:
            return self._images[name]
        start = url.index(",") + 1
        width, height = struct.unpack_from(">II", base64.b64decode(url[start : start + _SIZE_CHARACTERS]), 16)
        tokens = self._images[name] = self._rules.num_tokens(width, height)
        return tokens

    async def _pause(self, request: web.Request) -> web.Response:
        self._running.clear()
        return web.json_response({"status": "paused"})

    async def _resume(self, request: web.Request) -> web.Response:
        self._running.set()
        return web.json_response({"status": "resumed"})

    async def _is_paused(self, request: web.Request) -> web.Response:
        return web.json_response({"is_paused": not self._running.is_set()})

    async def _reload(self, request: web.Request) -> web.Response:
        path = Path((await request.json())["kwargs"]["weights_path"])
        try:
            self._digests = (await asyncio.to_thread(read_folder, path)).digests
        except Exception as error:  # any is the client's to hear
            return web.json_response({"error": {"message": str(error)}}, status=500)
        return web.json_response({"results": [None]})

    async def _label(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read() or b"{}")
        self._version = body.get("new_version") or self._version
        return web.json_response({"success": True})

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({"weight_version": self._version})

    async def _checksums(self, request: web.Request) -> web.Response:
        return web.json_response({"checksums": dict(self._digests)})

    async def _done(self, request: web.Request) -> web.Response:
        return web.json_response({})


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}", description=str(__doc__), formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--replies", type=Path, required=True, help="JSON list of lists of tokens")
    parser.add_argument("--seconds", type=float, default=0.0, help="time of a reply")
    parser.add_argument("--ports", type=int, nargs="+", default=[0], help="one for each engine; 0 is any")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    asked = parser.parse_args()
    replies = json.loads(asked.replies.read_text(encoding="utf-8"))

    async def run() -> None:
        apps = [StandInEngine(asked.model, replies, seconds=asked.seconds).app() for _ in asked.ports]
        await serve(apps, asked.host, asked.ports)

    asyncio.run(run())


if __name__ == "__main__":
    main()
