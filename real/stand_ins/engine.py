"""A stand-in engine: a server of the vLLM routes that a worker asks, with faults by switch.

    python -m dartsim.real.stand_ins.engine --model FOLDER --replies REPLIES.json --seconds 4 --ports 0 0

Prompts are counted, not computed: each screenshot has as many tokens as the model's image rules say, and one that was
sent before may be named only. Weights are read and hashed as an engine would. Replies are drawn from a distribution
that depends on the weights and the last token, or written before. The tests hold it to the contract of the real server.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler
from numpy.typing import NDArray

from dartsim.core.image_size import resize_rules
from dartsim.real.engines.client import REQUEST_PREFIX
from dartsim.real.engines.ledger import read_folder
from dartsim.real.stand_ins.serving import runner_of, serve

BLOCK = 32
"""Tokens of a block of the prefix cache."""
MASKED = -9999.0
"""vLLM's log-probability of a token that is not allowed."""
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Parameters that vLLM makes of several tensors."""
_SIZE_CHARACTERS = 44
"""Of a PNG in base64: enough for width and height, which are bytes 16 to 23."""


@dataclass
class Faults:
    """Faults from now on; a number counts the affected requests or loads.

    Attributes:
        hang: Requests are never answered.
        status: Generation answers with this status.
        drop: Requests that lose their connection before an answer.
        refuse_loads: Loads that fail with 500.
        silent_loads: Loads that report success and change nothing.
        partial_loads: Loads that report success and change about half of the tensors.
        wrong_loads: Loads that read ``elsewhere`` instead.
        elsewhere: A folder of other weights.
        lie: Tokens that were not allowed are returned.
        forgetful: Largest number of cached images.
    """

    hang: bool = False
    status: int = 0
    drop: int = 0
    refuse_loads: int = 0
    silent_loads: int = 0
    partial_loads: int = 0
    wrong_loads: int = 0
    elsewhere: Path = Path()
    lie: bool = False
    forgetful: int = 100_000


@dataclass
class Live:
    """A request that is being answered."""

    tokens: list[int] = field(default_factory=list)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)


class RequestRefused(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, message: str, kind: str = "InternalServerError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class StandInEngine:
    """One engine. Use it as ``async with``, or serve its ``app``.

    Args:
        model: A model folder: tensors, vocabulary size and image rules are read from there.
        replies: Tokens of the replies, drawn at random; none: tokens are drawn one by one.
        seconds: Time of one of the ``replies``.
        release: ``0.32`` lets new requests wait while it is paused, ``0.33`` refuses them with 503 in two modes.
        token_seconds: Time of a token.
        load_seconds: Time of a load of weights.
        port: It listens on; 0 takes a free one.
    """

    def __init__(
        self,
        model: Path,
        *,
        replies: Sequence[Sequence[int]] = (),
        seconds: float = 0.0,
        release: str = "0.32",
        token_seconds: float = 0.001,
        load_seconds: float = 0.0,
        port: int = 0,
    ) -> None:
        self.release = release
        self.token_seconds = token_seconds
        self.port = port
        self.faults = Faults()
        self.live: dict[str, Live] = {}
        self.seen: list[tuple[str, str]] = []
        """Method and path of each request."""
        self.bodies: list[dict[str, Any]] = []
        """Of the requests for tokens; none are kept of those that are answered by ``replies``."""
        self.script: list[list[int]] = []
        """Tokens of the next replies; the requests after them are answered by chance."""
        self.paused: str | None = None
        self.version = "default"
        self.fused = False
        """Whether checksums are over vLLM's parameters, or over the tensors of the files."""
        self.tensors = read_tensors(model)
        self._replies = replies
        self._seconds = seconds
        self._load_seconds = load_seconds
        self._rules = resize_rules(model)
        text = json.loads((model / "config.json").read_text(encoding="utf-8"))
        self._vocabulary, self._image = int(text["text_config"]["vocab_size"]), int(text["image_token_id"])
        self._images: dict[str, int] = {}
        """Tokens of the images that were sent, by name, the newest last."""
        self._blocks: set[bytes] = set()
        self._choices: dict[tuple[int, int], str] = {}
        self._chance = np.random.default_rng(0)
        self._going = asyncio.Event()
        self._going.set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._runner, self.port = await runner_of(self.app(), "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**30, middlewares=[self._answered])
        for path, handler in {
            "/health": self._nothing,
            "/metrics": self._metrics,
            "/inference/v1/generate": self._generate,
            "/abort_requests": self._abort,
            "/pause": self._pause,
            "/resume": self._resume,
            "/is_paused": self._is_paused,
            "/reset_prefix_cache": self._reset_prefix,
            "/reset_encoder_cache": self._nothing,
            "/collective_rpc": self._rpc,
            "/update_weight_version": self._label,
            "/weight_info": self._info,
            "/weight_checker": self._check,
        }.items():
            app.router.add_route("*", path, handler)
        return app

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note a request; answer its refusal as vLLM does, which closes the connection after an error of its own."""
        self.seen.append((request.method, request.path))
        try:
            return await handler(request)
        except RequestRefused as error:
            body = {"message": str(error), "type": error.kind, "param": None, "code": error.status}
            response = web.json_response({"error": body}, status=error.status)
            if error.status >= 500:
                response.force_close()
            return response

    async def _nothing(self, request: web.Request) -> web.Response:
        return web.Response()

    # ---- generation

    async def _generate(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if self._replies:
            return await self._written(body)
        self.bodies.append(body)
        if self.faults.status:
            raise RequestRefused(self.faults.status, "a fault by switch")
        if self.faults.drop:
            self.faults.drop -= 1
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        allowed = body["sampling_params"].get("allowed_token_ids") or ()
        if bad := [token for token in allowed if not 0 <= token < self._vocabulary]:
            raise RequestRefused(400, f"allowed_token_ids contains out-of-vocab token id {bad[0]}", "BadRequestError")
        if self.release >= "0.33" and self.paused in ("abort", "wait"):
            raise RequestRefused(503, "Generation is paused. Please retry after it resumes.", "engine_paused")
        request_id = REQUEST_PREFIX + body["request_id"]
        live = self.live[request_id] = Live()
        try:
            return web.json_response(await self._sampled(request_id, body, live))
        finally:
            self.live.pop(request_id, None)

    async def _written(self, body: dict[str, Any]) -> web.Response:
        """Answer with one of the replies."""
        images = self._image_tokens(body)
        await self._going.wait()
        await asyncio.sleep(self._seconds)
        number = int(self._chance.integers(len(self._replies)))
        count, prompt = len(self._replies[number]), len(body["token_ids"]) + sum(images) - len(images)
        usage = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
        head = json.dumps({"request_id": body["request_id"], "usage": usage})[:-1]
        span = json.dumps([{"version": self.version, "start": 0, "end": count}])
        choice = self._choice(number, body["sampling_params"].get("logprobs") or 0)
        text = f'{head}, "choices": [{{{choice}, "weight_versions": {span}}}]}}'
        return web.Response(text=text, content_type="application/json")

    def _choice(self, number: int, top: int) -> str:
        """Return what is the same in all answers with a reply, as JSON without braces."""
        text = self._choices.get((number, top))
        if text is None:
            tokens = list(self._replies[number])
            others = [{"token_id": other, "logprob": -4.0, "rank": 2 + other} for other in range(top)]
            places = [{"token_id": token, "logprob": -0.3, "rank": 1, "top_logprobs": others} for token in tokens]
            choice = {"finish_reason": "stop", "token_ids": tokens, "logprobs": {"content": places}}
            text = self._choices[number, top] = json.dumps(choice)[1:-1]
        return text

    async def _sampled(self, request_id: str, body: dict[str, Any], live: Live) -> dict[str, Any]:
        params = body["sampling_params"]
        prompt, places = self._expanded(body)
        cached = self._look_up(prompt, body, places)
        rng = np.random.default_rng(params.get("seed"))
        scripted = self.script.pop(0) if self.script else None
        contents: list[dict[str, Any]] = []
        spans: list[dict[str, Any]] = []
        reason = "length"
        while len(live.tokens) < params.get("max_tokens", 16):
            await self._turn(live)
            if live.aborted.is_set():
                reason = "abort"
                break
            logprobs = self._distribution([*prompt, *live.tokens], params)
            token = int(rng.choice(len(logprobs), p=np.exp(logprobs) / np.exp(logprobs).sum()))
            if scripted is not None:
                token = scripted[len(live.tokens)]
            if self.faults.lie:
                token = int(np.argmin(logprobs))
            if not spans or spans[-1]["version"] != self.version:
                spans.append({"version": self.version, "start": len(live.tokens), "end": 0})
            live.tokens.append(token)
            spans[-1]["end"] = len(live.tokens)
            contents.append(_place(token, logprobs, params.get("logprobs") or 0))
            if token in (params.get("stop_token_ids") or ()):
                reason = "stop"
                break
        answer: dict[str, Any] = {
            "request_id": request_id,
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(live.tokens),
                "total_tokens": len(prompt) + len(live.tokens),
                "prompt_tokens_details": {"cached_tokens": cached},
            },
            "choices": [
                {
                    "finish_reason": reason,
                    "stop_reason": live.tokens[-1] if reason == "stop" else None,
                    "token_ids": live.tokens,
                    "weight_versions": spans or None,
                    "logprobs": {"content": contents} if params.get("logprobs") is not None else None,
                }
            ],
        }
        if body.get("return_token_ids"):
            placeholders = [{"offset": start, "length": count} for start, count, _ in places]
            answer |= {"prompt_token_ids": prompt, "mm_placeholders": {"image": placeholders}}
        return answer

    async def _turn(self, live: Live) -> None:
        """Wait for the time of one token, and while paused."""
        if self.faults.hang:
            await live.aborted.wait()
            return
        if self.paused and not (self.paused == "wait" and live.tokens):
            ends = [asyncio.ensure_future(self._going.wait()), asyncio.ensure_future(live.aborted.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
        await asyncio.sleep(self.token_seconds)

    def _image_tokens(self, body: Mapping[str, Any]) -> list[int]:
        """Return the tokens of each image, which may be one that was sent before, under a name."""
        counts = []
        for number, part in enumerate(body.get("content_parts") or ()):
            name, url = str(part.get("uuid")), part["url"]
            if url is not None:
                start = url.index(",") + 1
                size = struct.unpack_from(">II", base64.b64decode(url[start : start + _SIZE_CHARACTERS]), 16)
                self._images[name] = self._rules.num_tokens(*size)
                while len(self._images) > self.faults.forgetful:
                    self._images.pop(next(iter(self._images)))
            elif name not in self._images:
                message = f"Cache miss for image at index {number} but data is not provided."
                raise RequestRefused(400, message, "BadRequestError")
            counts.append(self._images[name])
        return counts

    def _expanded(self, body: Mapping[str, Any]) -> tuple[list[int], list[tuple[int, int, str]]]:
        """Return the prompt, with as many image tokens in place of one as each image has; and where and which it is."""
        counts, parts = self._image_tokens(body), body.get("content_parts") or ()
        prompt: list[int] = []
        places: list[tuple[int, int, str]] = []
        for token in body["token_ids"]:
            count = 1
            if token == self._image:
                count = counts[len(places)]
                places.append((len(prompt), count, str(parts[len(places)].get("uuid"))))
            prompt += [token] * count
        if len(places) != len(counts):
            raise RequestRefused(400, f"{len(counts)} images for {len(places)} places", "BadRequestError")
        return prompt, places

    def _look_up(self, prompt: Sequence[int], body: Mapping[str, Any], places: Sequence[tuple[int, int, str]]) -> int:
        """Count the tokens of whole blocks that were computed before, under the same salt and with the same images."""
        keys = []
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            images = "".join(name for start, _, name in places if start < end)
            keys.append(hashlib.sha256(f"{body.get('cache_salt')}{images}{prompt[:end]}".encode()).digest())
        hits = next((number for number, key in enumerate(keys) if key not in self._blocks), len(keys))
        self._blocks.update(keys)
        return hits * BLOCK

    def _distribution(self, tokens: Sequence[int], params: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return log-probabilities as sampled: of the weights, the last token, the masks and the temperature."""
        weights = int.from_bytes(hashlib.sha256("".join(sorted(self.tensors.values())).encode()).digest()[:8])
        logits = np.random.default_rng([weights, tokens[-1], len(tokens)]).normal(size=self._vocabulary)
        if params.get("allowed_token_ids"):
            refused = np.ones(self._vocabulary, dtype=bool)
            refused[params["allowed_token_ids"]] = False
            logits[refused] = -np.inf
        for token, bias in (params.get("logit_bias") or {}).items():
            logits[int(token)] += bias
        logits /= params.get("temperature") or 1.0
        top = logits.max()
        scores: NDArray[np.float64] = logits - top - np.log(np.exp(logits - top).sum())
        return scores

    async def _abort(self, request: web.Request) -> web.Response:
        request_ids = (await request.json()).get("request_ids") or list(self.live)
        self._end(request_ids)
        return web.json_response({"status": "aborted", "aborted": len(request_ids)})

    def _end(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            if request_id in self.live:
                self.live[request_id].aborted.set()

    # ---- pauses

    async def _pause(self, request: web.Request) -> web.Response:
        self.paused = request.query.get("mode", "abort")
        self._going.clear()
        if self.paused == "abort":
            self._end(list(self.live))
        if self.paused == "wait":
            begun = {key for key, live in self.live.items() if live.tokens}
            while begun & set(self.live):  # noqa: ASYNC110 - as simple as can be
                await asyncio.sleep(self.token_seconds)
        return web.json_response({"status": "paused"})

    async def _resume(self, request: web.Request) -> web.Response:
        self.paused = None
        self._going.set()
        return web.json_response({"status": "resumed"})

    async def _is_paused(self, request: web.Request) -> web.Response:
        return web.json_response({"is_paused": self.paused is not None})

    async def _reset_prefix(self, request: web.Request) -> web.Response:
        used = any(live.tokens for live in self.live.values())
        if not used:
            self._blocks.clear()
        return web.json_response({"success": not used})

    async def _metrics(self, request: web.Request) -> web.Response:
        waiting = sum(not live.tokens for live in self.live.values()) if self.paused else 0
        return web.Response(text=f'vllm:num_requests_running{{engine="0"}} {float(len(self.live) - waiting)}\n')

    # ---- weights

    async def _rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["method"] != "reload_weights":
            raise RequestRefused(500, f"no method {body['method']}")
        await asyncio.sleep(self._load_seconds)
        await self._load(Path(body["kwargs"]["weights_path"]))
        return web.json_response({"results": [None]})

    async def _load(self, folder: Path) -> None:
        faults = self.faults
        if faults.refuse_loads:
            faults.refuse_loads -= 1
            raise RequestRefused(500, "Worker failed with error 'a fault by switch'")
        if faults.silent_loads:
            faults.silent_loads -= 1
            return
        if faults.wrong_loads:
            faults.wrong_loads -= 1
            folder = faults.elsewhere
        try:
            found = await asyncio.to_thread(read_tensors, folder)
        except Exception as error:  # any is the client's to hear
            raise RequestRefused(500, f"Worker failed with error '{error}'") from error
        if faults.partial_loads:
            faults.partial_loads -= 1
            found = dict(list(found.items())[::2])
        self.tensors = self.tensors | found

    async def _label(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["new_version"]
        return web.json_response({"success": True, "new_version": self.version})

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version})

    async def _check(self, request: web.Request) -> web.Response:
        if (await request.json())["action"] == "reset":
            self.tensors = dict.fromkeys(self.tensors, "zeros")
            return web.json_response({"status": "reset"})
        values = dict(self.tensors)
        for whole, parts in FUSED.items() if self.fused else ():
            for name in [name for name in values if f".{parts[0]}." in name]:
                made = [values.pop(name.replace(parts[0], part)) for part in parts]
                values[name.replace(parts[0], whole)] = hashlib.sha256("".join(made).encode()).hexdigest()
        return web.json_response({"checksums": {f"dp0:pp0:pcp0:tp0:{name}": value for name, value in values.items()}})


def read_tensors(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each small tensor of a folder or file of safetensors."""
    return dict(read_folder(folder).digests)


def _place(token: int, logprobs: NDArray[np.float64], count: int) -> dict[str, Any]:
    def entry(each: int) -> dict[str, Any]:
        rank = int((logprobs > logprobs[each]).sum()) + 1
        return {"token_id": int(each), "logprob": max(float(logprobs[each]), MASKED), "rank": rank}

    likeliest = [int(each) for each in np.argsort(-logprobs, kind="stable")[:count]] if count else []
    listed = [token, *(each for each in likeliest if each != token)][: max(count, 1)]
    return {**entry(token), "top_logprobs": [entry(each) for each in listed]}


def main() -> None:
    """Serve until the process ends; also with the arguments that a vLLM server gets."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}",
        description=str(__doc__),
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--replies", type=Path, help="JSON list of lists of tokens; none: tokens by chance")
    parser.add_argument("--seconds", type=float, default=0.0, help="time of a reply")
    parser.add_argument("--ports", "--port", type=int, nargs="+", default=[0], help="one for each engine; 0 is any")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--start-seconds", type=float, default=0.0, help="time of the start")
    parser.add_argument("--load-seconds", type=float, default=0.0, help="time of a load of weights")
    parser.add_argument("--token-seconds", type=float, default=0.001, help="time of a token")
    parser.add_argument("--fail-start", action="store_true", help="end with an error in place of a start")
    asked, _ = parser.parse_known_args()
    print("loading the model", file=sys.stderr, flush=True)  # noqa: T201 - the engine's log
    time.sleep(asked.start_seconds)
    if asked.fail_start:
        print("ValueError: a fault by switch", file=sys.stderr, flush=True)  # noqa: T201 - the engine's log
        sys.exit(3)
    replies = [] if asked.replies is None else json.loads(asked.replies.read_text(encoding="utf-8"))

    async def run() -> None:
        times = {"seconds": asked.seconds, "load_seconds": asked.load_seconds, "token_seconds": asked.token_seconds}
        engines = [StandInEngine(asked.model, replies=replies, **times) for _ in asked.ports]
        await serve([engine.app() for engine in engines], asked.host, asked.ports)

    asyncio.run(run())


if __name__ == "__main__":
    main()
