"""An OpenAI-compatible endpoint, whose model acts and is not trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from typing_extensions import override

from dartsim.core.ports import PolicyWorker
from dartsim.core.registry import register
from dartsim.run.backends import BackendContext, EngineBackend

if TYPE_CHECKING:
    from dartsim.config import Config


@register("engine", "endpoint")
class EndpointEngines(EngineBackend):
    """Clients of an endpoint."""

    loads_weights = False
    packages = ("aiohttp", "httpx")

    @override
    def problems(self, config: Config) -> Iterator[str]:
        url, model = config.endpoint.url, config.endpoint.model
        if url is None or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            yield f"endpoint.url = {url!r} is no address of an endpoint; wanted https://HOST/v1 or http://HOST:PORT/v1."
        if not model:
            yield "endpoint.model is missing: the model, by the name that the endpoint gives it."
        if config.policy.grammar != "ui_tars":
            yield (
                f'policy.grammar = "{config.policy.grammar}" is made of tokens of a model of ours; an endpoint writes '
                'text. Set policy.grammar = "ui_tars".'
            )

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"the model {config.endpoint.model} at {config.endpoint.url}"}

    @override
    async def open(self, context: BackendContext) -> Sequence[PolicyWorker]:
        from dartsim.real.engines.endpoint import EndpointWorker

        config = context.prepared.config
        workers = [
            await context.stack.enter_async_context(EndpointWorker(index, config))
            for index in range(config.rollout.num_workers)
        ]
        await workers[0].check()
        return workers
