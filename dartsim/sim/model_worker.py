"""``ModelWorker``: a worker in virtual time whose replies come from a real model."""

from __future__ import annotations

from typing import Any, NamedTuple

from dartsim.core.ports import ContentModel
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Content, Reply, Request, Version, Weights
from dartsim.sim.worker import SimWorker


class _WrittenReply(NamedTuple):
    content: Content
    version: Version


class ModelWorker(SimWorker):
    """A ``SimWorker`` whose replies are computed by a model: content is real, time is modeled.

    When the first reply falls due, all requests in flight are computed as one batch: the model computes a few large
    batches instead of many small ones, without any effect on simulated time.

    Invariant: every reply is computed by one version, which the worker serves at that time.
    """

    def __init__(self, *arguments: Any, model: ContentModel, **options: Any) -> None:
        super().__init__(*arguments, policy=_NoPolicy(), **options)
        self._model = model
        self._open: dict[tuple[int, int], Request] = {}
        self._written: dict[tuple[int, int], _WrittenReply] = {}

    async def generate(self, request: Request) -> Reply:
        key = (request.attempt.id, request.turn)
        self._open[key] = request
        try:
            return await super().generate(request)
        finally:
            self._open.pop(key, None)
            self._written.pop(key, None)

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        await super().load(weights, mode)
        self._model.add(weights)
        if self.engine.atomic:
            self._written.clear()  # waiting requests use the weights at the time of their batch

    def _reply(self, request: Request, version: Version, prompt: int, tokens: int, cached: int | None) -> Reply:
        key = (request.attempt.id, request.turn)
        if key not in self._written:
            self._compute()
        content, made_by = self._written[key]
        num_tokens = len(content.tokens)
        return Reply(content.action, made_by, made_by, self.index, prompt, num_tokens, *content[1:], cached)

    def _compute(self) -> None:
        keys = [key for key in self._open if key not in self._written]
        contents = self._model.compute([self._open[key] for key in keys], self.version)
        self._written.update(
            (key, _WrittenReply(content, self.version)) for key, content in zip(keys, contents, strict=True)
        )


class _NoPolicy:
    def act(self, request: Request) -> str:
        raise AssertionError("a ModelWorker has no policy")
