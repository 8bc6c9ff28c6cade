"""Replies of given lengths from any server of OpenAI's ``/v1/completions``, to measure it."""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any, Self

import aiohttp

from dartsim.core.errors import ConfigError

REPLY_SECONDS = 600.0
"""Time limit of one reply."""
CALIBRATION_WORDS = 200


class Completions:
    """A server, asked with prompts of random numbers, of which no cache of prefixes knows any.

    Args:
        url: Such as ``http://127.0.0.1:8000``.
        model: Name of its model; None: the only one that it serves.
        seed: Of the prompts.
    """

    def __init__(self, url: str, model: str | None = None, seed: int = 0) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        self._random = random.Random(seed)
        self._tokens_per_word, self._extra = 1.0, 0.0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Find the model, and how many tokens a word has.

        Raises:
            ConfigError: If the server cannot be reached, or does not serve the model.
        """
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(REPLY_SECONDS))
        try:
            served = [each["id"] for each in (await self._ask("GET", "/v1/models"))["data"]]
            if self.model is None and len(served) == 1:
                self.model = served[0]
            if self.model not in served:
                raise ConfigError(f"{self.url} serves {', '.join(served) or 'no model'}: give --model with one of them")
            few, many = [await self._words(count, 1) for count in (1, CALIBRATION_WORDS)]
        except BaseException:
            await self._session.close()
            raise
        self._tokens_per_word = (many[0] - few[0]) / (CALIBRATION_WORDS - 1)
        self._extra = few[0] - self._tokens_per_word
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def send(self, prompt_tokens: int, reply_tokens: int) -> tuple[int, int]:
        """Ask for a reply; return the tokens of prompt and reply as the server counted them.

        Raises:
            ConfigError: If the server refuses the request or counts no tokens.
        """
        return await self._words(max(1, round((prompt_tokens - self._extra) / self._tokens_per_word)), reply_tokens)

    async def _words(self, count: int, reply_tokens: int) -> tuple[int, int]:
        body = {
            "model": self.model,
            "prompt": " ".join(str(self._random.randrange(100, 1000)) for _ in range(count)),
            "max_tokens": reply_tokens,
            "min_tokens": reply_tokens,
            "ignore_eos": True,
            "temperature": 1.0,
        }
        usage = (await self._ask("POST", "/v1/completions", body)).get("usage") or {}
        counts = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        if min(counts) < 1:
            raise ConfigError(f"{self.url} does not count tokens: its reply has usage {usage}")
        return counts

    async def _ask(self, method: str, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        assert self._session is not None
        try:
            async with self._session.request(method, self.url + route, json=body) as response:
                if response.status != 200:
                    message = (await response.text())[:300]
                    raise ConfigError(f"{self.url}{route} answered {response.status}: {message}")
                found: dict[str, Any] = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ConfigError(f"{self.url}{route} gave no answer: {str(error) or type(error).__name__}") from None
        return found
