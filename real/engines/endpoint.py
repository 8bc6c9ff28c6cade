"""``EndpointWorker``: an OpenAI-compatible endpoint behind the port ``PolicyWorker``.

    request --conversation--> messages --POST /chat/completions--> text --> reply

It gets the prompts of ``PromptStyle`` as messages, with screenshots as PNG in data URLs, and its replies are read like
those of our own models. It provides no tokens or log-probabilities to train on, and loads no weights.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from dartsim.config.schema import Config
from dartsim.config.sections.endpoint import KEY_VARIABLE
from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import ConfigError, DartsimError, WorkerFault
from dartsim.core.png import png_of
from dartsim.core.secrets import keep_secret
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Observation, Reply, Request, Task, Weights
from dartsim.core.words import clean
from dartsim.envs.actions.ui_tars import UiTars
from dartsim.real.engines.client import connection_faults, json_object
from dartsim.real.engines.errors import EngineBadReply, EngineHung, EngineLost, EngineRefused
from dartsim.real.vlm.conversation import conversation, earlier_reply
from dartsim.real.vlm.plan import vlm_config
from dartsim.real.vlm.vocabulary import Parts

TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed later."""
REFUSALS = frozenset({401, 402, 403, 404})
"""Statuses that all later requests would get too: no key, no credit, no permission, unknown model."""
OWN_ENDINGS = frozenset({"stop", "length", "tool_calls", "function_call"})
"""Finish reasons caused by the model; an empty text is then the model's own failure."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Between two tries of a request, seconds; an endpoint may say how long to wait instead."""
REQUEST_SECONDS = 300.0
"""Longest time of one request."""
DOWN_SECONDS = 300.0
"""How long a request is repeated while the endpoint is unreachable, overloaded or failing."""


class EndpointRefused(DartsimError):
    """The endpoint will refuse all requests: wrong key, address or model. It ends the evaluation."""


class EndpointWorker:
    """One client of an endpoint; use it as ``async with``."""

    def __init__(self, index: int, config: Config) -> None:
        endpoint, policy = config.endpoint, config.policy
        assert endpoint.url is not None, "checked by the backend's rules"
        self.index = index
        self.url = f"{base_url(endpoint.url)}/chat/completions"
        self._settings = endpoint
        self._style = vlm_config(config).prompts
        self._readable = UiTars(config.desktop.width, config.desktop.height).readable
        self._tries = policy.malformed_tries
        limit = {} if "max_completion_tokens" in endpoint.options else {"max_tokens": policy.max_new_tokens}
        self._body = {"model": endpoint.model, "temperature": policy.temperature, **limit, **endpoint.options}
        self._key = os.environ.get(KEY_VARIABLE, "")
        keep_secret(self._key)  # the variable may have any name
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=30.0),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
        )

    async def __aenter__(self) -> EndpointWorker:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def check(self) -> None:
        """Ask one question about a blank screen.

        Raises:
            ConfigError: If the answer is not one of a chat model with vision.
        """
        screen = np.full((112, 112, 3), 255, dtype=np.uint8)
        attempt = Attempt(-1, Task("check", "Wait."), 0, 0, 0, 1, 0)
        messages = self._messages(Request(attempt, 0, Observation(screen, "Wait."), []))
        try:
            message(self.url, await self._post({**self._body, "messages": messages}))
        except (WorkerFault, EndpointRefused) as fault:
            raise ConfigError(f"the endpoint cannot be used: {fault}") from None

    async def generate(self, request: Request) -> Reply:
        """Answer one request; repeat it if the reply is unreadable, as often as ``policy.malformed_tries`` says.

        Raises:
            WorkerFault: If there was no answer from the model.
            EndpointRefused: If there will never be one.
        """
        body = {**self._body, "messages": await asyncio.to_thread(self._messages, request)}
        tries = 1
        while True:
            answer = await self._ask(body)
            text = message(self.url, answer)
            if not text and answer["choices"][0].get("finish_reason") not in OWN_ENDINGS:
                raise EngineBadReply(f"{self.url} answered without a text: {str(answer)[:300]}")
            if tries >= self._tries or self._readable(text):
                break
            tries += 1
            body["temperature"] = body["temperature"] or 1.0
        usage = answer.get("usage")
        counts: Mapping[str, Any] = usage if isinstance(usage, Mapping) else {}
        prompt, replied = (_count(counts.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        return Reply(text, request.attempt.version, request.attempt.version, self.index, prompt, replied)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        raise WorkerFault(f"{self.url} serves {self._settings.model} and loads no weights")

    async def _ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer; repeat the request for ``DOWN_SECONDS`` while it may succeed later."""
        loop = asyncio.get_running_loop()
        ends, failures = loop.time() + DOWN_SECONDS, 0
        while True:
            try:
                return await self._post(body)
            except (EngineRefused, EngineLost, EngineHung, EngineBadReply) as fault:
                if isinstance(fault, EngineBadReply) and fault.status not in TRANSIENT:
                    raise
                failures += 1
                wait = backoff_seconds(failures, first_seconds=FIRST_WAIT, max_seconds=LONGEST_WAIT)
                wait = max(wait, fault.retry_after if isinstance(fault, EngineBadReply) else 0.0)
                if loop.time() + wait > ends:
                    raise
                await asyncio.sleep(wait)

    async def _post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        async with connection_faults(self.url, REQUEST_SECONDS):
            answer = await self._client.post(self.url, json=body)
        if answer.status_code == httpx.codes.OK:
            return json_object(self.url, answer.content)
        text = self._hidden(answer.text[:500])
        if answer.status_code in REFUSALS:
            raise EndpointRefused(
                f"{self.url} answered {answer.status_code} for the model {self._settings.model!r}: {text}; check the "
                f"address, the model's name, and the key in {KEY_VARIABLE} "
                f"({'set' if self._key else 'not set'})"
            )
        fault = EngineBadReply(f"{self.url} answered {answer.status_code}: {text}", status=answer.status_code)
        fault.retry_after = _seconds(answer.headers.get("retry-after"))
        raise fault

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        """Return a request's messages; it may run in several threads."""
        messages: list[dict[str, Any]] = []
        for role, parts, screenshot, turn in conversation(self._style, request.observation, request.history):
            text = as_text(parts if turn is None else earlier_reply(self._style, turn.reply.action))
            if screenshot is None:
                messages.append({"role": role, "content": text})
            else:
                image = {"type": "image_url", "image_url": {"url": data_url(screenshot)}}
                messages.append({"role": role, "content": [{"type": "text", "text": text}, image] if text else [image]})
        return messages


_CONTROL = re.compile(
    r"<(?=[|｜][^<>\s]{1,64}[|｜]>)"
    r"|<(?=/?(?:s|unk|pad|bos|eos|think|tool_call|tool_response|(?:start|end)_of_(?:turn|image)|image_soft_token"
    r"|image|video|audio|IMG_CONTEXT)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|IMG|IMG_BREAK|IMG_END|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])"
)
"""Beginnings of the control tokens of common chat templates."""


def as_text(parts: Parts) -> str:
    """Return parts as one text in which servers find no control tokens but those of the parts.

    Servers put messages into a chat template and read control tokens in the result. So a zero-width space goes into
    text that spells one.
    """
    return "".join(part if place % 2 else _CONTROL.sub("\\g<0>\u200b", part) for place, part in enumerate(parts))


def data_url(screenshot: Any) -> str:
    """Return a screenshot as a data URL; that of a real desktop is a PNG file already."""
    return "data:image/png;base64," + base64.b64encode(png_of(screenshot)).decode("ascii")


def base_url(url: str) -> str:
    """Return an endpoint's base address; without a path it is OpenAI's, /v1."""
    return url.rstrip("/") if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1"


def message(url: str, answer: Mapping[str, Any]) -> str:
    """Return the text of an answer's first choice, of whole characters; empty if it has none.

    Raises:
        EngineBadReply: If the answer is not a chat completion.
    """
    try:
        content = answer["choices"][0]["message"].get("content")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineBadReply(f"{url} answered {str(answer)[:200]}, wanted a chat completion ({error!r})") from error
    if isinstance(content, list):  # of parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return clean(content) if isinstance(content, str) else ""


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int) and value >= 0 else 0


def _seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 without one, or if it is a date."""
    try:
        return max(0.0, min(float(text or 0.0), 600.0))
    except ValueError:
        return 0.0
