"""A stand-in for a vLLM server: the routes and fields that are used, a model of a few lines, and faults by switch.

Runs in the tests' own loop (``async with StandIn(...)``), or as a process with vLLM's command line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import math
import sys
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PREFIX, BLOCK = "generate-tokens-", 32
MASKED = -9999.0
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Parameters that vLLM makes of several tensors."""


@dataclass
class Faults:
    """What goes wrong from now on.

    Attributes:
        hang: Requests are never answered.
        status: Generation answers this status instead.
        drop: So many requests lose their connection before an answer.
        refuse_loads: So many loads fail with 500.
        silent_loads: So many loads say that they worked, and change nothing.
        partial_loads: So many loads say that they worked, and change about half of the tensors.
        wrong_loads: So many loads read ``elsewhere`` instead.
        elsewhere: A folder.
        lie: Tokens are not those that were allowed.
        forgetful: So many images are kept at most.
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
    forgetful: int = 1_000


@dataclass
class Live:
    """A request that is being answered."""

    task: asyncio.Task[Any]
    tokens: list[int] = field(default_factory=list)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)


class HttpError(Exception):
    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.more = more


class StandIn:
    """The server.

    Args:
        model: A model folder: tensors, vocabulary size and image rules are read from there.
        release: ``0.32`` lets new requests wait while it is paused, ``0.33`` refuses them with 503 in two modes.
        token_seconds: Time of a token.
        port: It listens on; 0 takes a free one.
        host: Address it listens on.
        load_seconds: Time of a load of weights.
    """

    def __init__(
        self,
        model: Path,
        *,
        release: str = "0.32",
        token_seconds: float = 0.001,
        port: int = 0,
        host: str = "127.0.0.1",
        load_seconds: float = 0.0,
    ) -> None:
        self.model = model
        self.release = release
        self.token_seconds = token_seconds
        self.port = port
        self.host = host
        self.load_seconds = load_seconds
        self.faults = Faults()
        self.live: dict[str, Live] = {}
        self.seen: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.script: list[list[int]] = []
        """Tokens of the next replies; the requests after them are answered by chance."""
        self.paused: str | None = None
        self.version = "default"
        self.fused = False
        """Whether checksums are over vLLM's parameters, or over the tensors of the files."""
        self.cache: set[bytes] = set()
        self.images: dict[str, str] = {}
        """URLs by the names that came with them, the newest last."""
        self.counts = dict.fromkeys(("prompt", "generation", "queries", "hits", "images"), 0)
        settings = json.loads((model / "config.json").read_text(encoding="utf-8"))
        self.vocabulary = int(settings["text_config"]["vocab_size"])
        self.image = int(settings["image_token_id"])
        rules = json.loads((model / "preprocessor_config.json").read_text(encoding="utf-8"))
        self.unit = rules["patch_size"] * rules["merge_size"]
        self.edges = rules["size"]["shortest_edge"], rules["size"]["longest_edge"]
        self.tensors = read_tensors(model)
        self._going = asyncio.Event()
        self._going.set()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> StandIn:
        self._server = await asyncio.start_server(self._accept, self.host, self.port, limit=2**26)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    # ---- HTTP

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        parts = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(parts.query))
        self.seen.append((method, parts.path))
        work = asyncio.ensure_future(self._route(method, parts.path, query, json.loads(raw) if raw else {}))
        gone = asyncio.ensure_future(reader.read(1))  # returns when the client hangs up
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return False
            status, payload = work.result() if not isinstance(work.exception(), HttpError) else _refusal(work)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.wait([work, gone])
        text = payload if isinstance(payload, str) else json.dumps(payload)
        body = text.encode()
        keep = status < 500  # as uvicorn does after an exception
        writer.write(
            f"HTTP/1.1 {status} x\r\ncontent-length: {len(body)}\r\ncontent-type: application/json\r\n"
            f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        return keep

    async def _route(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        routes: dict[tuple[str, str], Callable[[dict[str, str], dict[str, Any]], Awaitable[Any]]] = {
            ("GET", "/health"): self._nothing,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/inference/v1/generate"): self._generate,
            ("POST", "/abort_requests"): self._abort,
            ("POST", "/pause"): self._pause,
            ("POST", "/resume"): self._resume,
            ("GET", "/is_paused"): self._is_paused,
            ("POST", "/reset_prefix_cache"): self._reset_prefix,
            ("POST", "/reset_encoder_cache"): self._nothing,
            ("POST", "/collective_rpc"): self._rpc,
            ("POST", "/update_weight_version"): self._label,
            ("GET", "/weight_info"): self._info,
            ("POST", "/weight_checker"): self._check,
        }
        if (method, path) not in routes:
            return 404, {"detail": "Not Found"}
        return 200, await routes[method, path](query, body)

    async def _nothing(self, query: dict[str, str], body: dict[str, Any]) -> str:
        return ""

    # ---- generation

    async def _generate(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        params = body["sampling_params"]
        if self.faults.status:
            raise HttpError(self.faults.status, "a fault by switch", type="InternalServerError")
        if self.faults.drop:
            self.faults.drop -= 1
            raise ConnectionResetError
        if bad := [t for t in params.get("allowed_token_ids") or () if not 0 <= t < self.vocabulary]:
            raise HttpError(400, f"allowed_token_ids contains out-of-vocab token id {bad[0]}", type="BadRequestError")
        if self.release >= "0.33" and self.paused in ("abort", "wait"):
            raise HttpError(503, "Generation is paused. Please retry after it resumes.", type="engine_paused")
        task = asyncio.current_task()
        assert task is not None
        request_id = PREFIX + body["request_id"]
        live = self.live[request_id] = Live(task)
        try:
            return await self._tokens(request_id, body, live)
        finally:
            self.live.pop(request_id, None)

    async def _tokens(self, request_id: str, body: dict[str, Any], live: Live) -> dict[str, Any]:
        params = body["sampling_params"]
        shown = [self._image(number, part) for number, part in enumerate(body.get("content_parts") or ())]
        prompt, places = self._expand(body, shown)
        cached = self._look_up(prompt, body, shown)
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
            if scripted is not None:
                token = scripted[len(live.tokens)]
            else:
                token = int(rng.choice(len(logprobs), p=np.exp(logprobs) / np.exp(logprobs).sum()))
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
        self.counts["generation"] += len(live.tokens)
        usage = {
            "prompt_tokens": len(prompt),
            "total_tokens": len(prompt) + len(live.tokens),
            "completion_tokens": len(live.tokens),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        choice = {
            "index": 0,
            "finish_reason": reason,
            "stop_reason": live.tokens[-1] if reason == "stop" else None,
            "token_ids": live.tokens,
            "weight_versions": spans or None,
            "logprobs": {"content": contents} if params.get("logprobs") is not None else None,
        }
        answer = {"request_id": request_id, "model": "policy", "created": 0, "usage": usage, "choices": [choice]}
        if body.get("return_token_ids"):
            answer |= {"prompt_token_ids": prompt, "mm_placeholders": {"image": places}}
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

    def _image(self, number: int, part: dict[str, Any]) -> str:
        """Return the URL of an image, which may only be named."""
        url, name = part["url"], part.get("uuid")
        if url is None:
            url = self.images.get(name)
            if url is None:
                error = f"Cache miss for image at index {number} but data is not provided."
                raise HttpError(400, error, type="BadRequestError")
        elif name is not None:
            self.images[name] = url
            while len(self.images) > self.faults.forgetful:
                self.images.pop(next(iter(self.images)))
        return url

    def _expand(self, body: dict[str, Any], shown: list[str]) -> tuple[list[int], list[dict[str, int]]]:
        """Put as many image tokens in the place of one as the picture has."""
        pictures = [smart_resize(*_size(url), self.unit, *self.edges) for url in shown]
        self.counts["images"] += len(pictures)
        prompt: list[int] = []
        places: list[dict[str, int]] = []
        for token in body["token_ids"]:
            if token != self.image:
                prompt.append(token)
                continue
            width, height = pictures[len(places)]
            count = (width // self.unit) * (height // self.unit)
            places.append({"offset": len(prompt), "length": count})
            prompt += [token] * count
        if len(places) != len(pictures):
            raise HttpError(400, f"{len(pictures)} images for {len(places)} places", type="BadRequestError")
        return prompt, places

    def _look_up(self, prompt: list[int], body: dict[str, Any], shown: list[str]) -> int:
        """Count the tokens of whole blocks that were computed before, under the same salt and with the same images."""
        starts = [i for i, t in enumerate(prompt) if t == self.image and prompt[i - 1] != self.image]
        keys, salt = [], str(body.get("cache_salt"))
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            images = "".join(url for url, start in zip(shown, starts, strict=True) if start < end)
            keys.append(hashlib.sha256(f"{salt}{images}{prompt[:end]}".encode()).digest())
        hits = next((i for i, key in enumerate(keys) if key not in self.cache), len(keys))
        self.cache.update(keys)
        self.counts["prompt"] += len(prompt)
        self.counts["queries"] += len(prompt)
        self.counts["hits"] += hits * BLOCK
        return hits * BLOCK

    def _distribution(self, tokens: list[int], params: dict[str, Any]) -> np.ndarray:
        """Return log-probabilities as sampled: of the weights, the last token, the masks and the temperature."""
        weights = int.from_bytes(hashlib.sha256("".join(sorted(self.tensors.values())).encode()).digest()[:8])
        logits = np.random.default_rng([weights, tokens[-1], len(tokens)]).normal(size=self.vocabulary)
        if params.get("allowed_token_ids"):
            allowed = np.full(self.vocabulary, -np.inf)
            allowed[params["allowed_token_ids"]] = 0.0
            logits += allowed
        for token, bias in (params.get("logit_bias") or {}).items():
            logits[int(token)] += bias
        logits /= params.get("temperature") or 1.0
        top = logits.max()
        return logits - top - np.log(np.exp(logits - top).sum())

    async def _abort(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        chosen = body.get("request_ids") or list(self.live)
        for request_id in chosen:
            if request_id in self.live:
                self.live[request_id].aborted.set()
        return {"status": "aborted", "aborted": len(chosen)}

    # ---- pauses

    async def _pause(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        mode = query.get("mode", "abort")
        self.paused = mode
        self._going.clear()
        if mode == "abort":
            await self._abort({}, {})
        if mode == "wait":
            begun = {key for key, live in self.live.items() if live.tokens}
            while begun & set(self.live):  # noqa: ASYNC110 - as simple as can be
                await asyncio.sleep(self.token_seconds)
        return {"status": "paused"}

    async def _resume(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        self.paused = None
        self._going.set()
        return {"status": "resumed"}

    async def _is_paused(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        return {"is_paused": self.paused is not None}

    async def _reset_prefix(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        held = any(live.tokens for live in self.live.values())
        if not held:
            self.cache.clear()
        return {"success": not held}

    # ---- weights

    def _take(self, path: Path) -> None:
        if self.faults.refuse_loads:
            self.faults.refuse_loads -= 1
            raise HttpError(500, "Worker failed with error 'a fault by switch'", type="InternalServerError")
        if self.faults.silent_loads:
            self.faults.silent_loads -= 1
            return
        if self.faults.wrong_loads:
            self.faults.wrong_loads -= 1
            path = self.faults.elsewhere
        try:
            found = read_tensors(path)
        except (OSError, ValueError) as error:
            raise HttpError(500, f"Worker failed with error '{error}'", type="InternalServerError") from error
        if self.faults.partial_loads:
            self.faults.partial_loads -= 1
            found = dict(list(found.items())[::2])
        self.tensors = self.tensors | found

    async def _rpc(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        if body["method"] != "reload_weights":
            raise HttpError(500, f"no method {body['method']}", type="InternalServerError")
        await asyncio.sleep(self.load_seconds)
        self._take(Path(body["kwargs"]["weights_path"]))
        return {"results": [None]}

    async def _label(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        self.version = body["new_version"]
        return {"success": True, "new_version": self.version}

    async def _info(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        return {"weight_version": self.version}

    async def _check(self, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        if body["action"] == "reset":
            self.tensors = dict.fromkeys(self.tensors, "zeros")
            return {"status": "reset"}
        values = dict(self.tensors)
        for whole, parts in FUSED.items() if self.fused else ():
            for name in [name for name in values if f".{parts[0]}." in name]:
                made = [values.pop(name.replace(parts[0], part)) for part in parts]
                values[name.replace(parts[0], whole)] = hashlib.sha256("".join(made).encode()).hexdigest()
        return {"checksums": {f"dp0:pp0:pcp0:tp0:{name}": value for name, value in values.items()}}

    async def _metrics(self, query: dict[str, str], body: dict[str, Any]) -> str:
        waiting = sum(not live.tokens for live in self.live.values()) if self.paused else 0
        values = {
            "num_requests_running": len(self.live) - waiting,
            "num_requests_waiting": waiting,
            "kv_cache_usage_perc": 0.0,
            "prompt_tokens_total": self.counts["prompt"],
            "generation_tokens_total": self.counts["generation"],
            "prefix_cache_queries_total": self.counts["queries"],
            "prefix_cache_hits_total": self.counts["hits"],
            "mm_cache_queries_total": self.counts["images"],
            "mm_cache_hits_total": 0,
            "num_preemptions_total": 0,
        }
        lines = ["# HELP vllm:num_requests_running Number of requests in model execution batches."]
        lines += [f'vllm:{name}{{engine="0",model_name="policy"}} {float(value)}' for name, value in values.items()]
        lines.append('vllm:num_requests_waiting_by_reason{engine="0",reason="a b"} 0.0')
        return "\n".join(lines) + "\n"


def read_tensors(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each tensor of a folder or file of safetensors."""
    found = {}
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"Cannot find any model weights with `{path}`")
    for file in files:
        raw = file.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        header.pop("__metadata__", None)
        body = raw[8 + length :]
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if end > len(body):
                raise ValueError("Error while deserializing header: incomplete metadata, file not fully covered")
            found[name] = hashlib.sha256(body[begin:end]).hexdigest()
    return found


def _place(token: int, logprobs: np.ndarray, count: int) -> dict[str, Any]:
    def entry(each: int) -> dict[str, Any]:
        rank = int((logprobs > logprobs[each]).sum()) + 1
        return {"token_id": int(each), "logprob": max(float(logprobs[each]), MASKED), "rank": rank}

    likeliest = [int(each) for each in np.argsort(-logprobs, kind="stable")[:count]] if count else []
    listed = [token, *(each for each in likeliest if each != token)][: max(count, 1)]
    return {**entry(token), "top_logprobs": [entry(each) for each in listed]}


def smart_resize(width: int, height: int, unit: int, fewest: int, most: int) -> tuple[int, int]:
    """Return the size that Qwen's processor resizes an image to; importing that takes each server six seconds."""
    wide, high = round(width / unit) * unit, round(height / unit) * unit
    if wide * high > most:
        shrink = math.sqrt(width * height / most)
        wide, high = (max(unit, math.floor(edge / shrink / unit) * unit) for edge in (width, height))
    elif wide * high < fewest:
        grow = math.sqrt(fewest / (width * height))
        wide, high = (math.ceil(edge * grow / unit) * unit for edge in (width, height))
    return wide, high


def _size(url: str) -> tuple[int, int]:
    import base64
    import io

    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return image.size


def _refusal(work: asyncio.Future[Any]) -> tuple[int, dict[str, Any]]:
    error = work.exception()
    assert isinstance(error, HttpError)
    return error.status, {"error": {"message": str(error), "param": None, "code": error.status, **error.more}}


def main() -> None:
    """Run as a process, with the arguments that a vLLM server gets."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--start-seconds", type=float, default=0.0)
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--token-seconds", type=float, default=0.001)
    parser.add_argument("--fail-start", action="store_true")
    known, _ = parser.parse_known_args()
    print("loading the model", flush=True)
    time.sleep(known.start_seconds)
    if known.fail_start:
        print("ValueError: a fault by switch", flush=True)
        sys.exit(3)

    async def serve() -> None:
        options = {name: getattr(known, name) for name in ("host", "port", "load_seconds", "token_seconds")}
        async with StandIn(known.model, **options):
            await asyncio.get_running_loop().create_future()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
