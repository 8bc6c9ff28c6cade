"""``ModelWorker``: a simulated worker whose replies are computed for real, by a model that sees and acts.

Content is real, time is modelled: the modelled latency passes, and at the first reply that falls due all
requests in flight on the worker are computed as one batch. A model is so asked a few large questions instead of
many small ones, and simulated time does not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Content, Reply, Request, Version, Weights
from dartsim.sim.worker import SimWorker


class ContentModel(Protocol):
    """What computes replies, shared by the workers of a pool, which may serve different versions at once."""

    def add(self, weights: Weights) -> None:
        """Take the weights of a version."""
        ...

    def compute(self, requests: Sequence[Request], version: Version) -> list[Content]:
        """Answer requests with the weights of a version."""
        ...


class _WrittenReply(NamedTuple):
    content: Content
    version: Version


class ModelWorker(SimWorker):
    """A ``SimWorker`` that asks a model.

    Invariant: every reply was computed whole by one version, which the worker served then.
    """

    def __init__(self, *arguments: Any, model: ContentModel, **options: Any) -> None:
        super().__init__(*arguments, policy=_NoPolicy(), **options)
        self._model = model
        self._open: dict[tuple[int, int], Request] = {}
        self._written: dict[tuple[int, int], _WrittenReply] = {}

    async def generate(self, request: Request) -> Reply:
        """Answer one request after its modelled latency."""
        key = (request.attempt.id, request.turn)
        self._open[key] = request
        try:
            return await super().generate(request)
        finally:
            self._open.pop(key, None)
            self._written.pop(key, None)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Take new weights after the modelled time."""
        await super().load(weights, mode)
        self._model.add(weights)
        if self.engine.atomic:
            self._written.clear()  # what still waits is computed by the weights that its batch finds

    def _reply(self, request: Request, version: Version, prompt: int, tokens: int, cached: int | None) -> Reply:
        key = (request.attempt.id, request.turn)
        if key not in self._written:
            self._compute()
        content, made_by = self._written[key]
        said = len(content.tokens)
        return Reply(content.action, made_by, made_by, self.index, prompt, said, *content[1:], cached)

    def _compute(self) -> None:
        """Compute everything in flight that is not computed yet."""
        keys = [key for key in self._open if key not in self._written]
        contents = self._model.compute([self._open[key] for key in keys], self.version)
        self._written.update(
            (key, _WrittenReply(content, self.version)) for key, content in zip(keys, contents, strict=True)
        )


class _NoPolicy:
    def act(self, request: Request) -> str:
        raise AssertionError("a worker that asks a model has no policy of its own")
