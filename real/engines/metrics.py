"""What an engine says of its load and its caches: the few numbers of its ``/metrics`` that are used here."""

from __future__ import annotations

from typing import NamedTuple

_NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "response_tokens",
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "vllm:mm_cache_queries_total": "image_queries",
    "vllm:mm_cache_hits_total": "image_hits",
    "vllm:num_preemptions_total": "preemptions",
}


class EngineLoad(NamedTuple):
    """One reading. All but the first three count from the engine's start.

    ``running`` and ``waiting`` are requests, ``kv_usage`` a share in [0, 1]; prefix queries and hits are tokens,
    image queries and hits screenshots.
    """

    running: float = 0.0
    waiting: float = 0.0
    kv_usage: float = 0.0
    prompt_tokens: float = 0.0
    response_tokens: float = 0.0
    prefix_queries: float = 0.0
    prefix_hits: float = 0.0
    image_queries: float = 0.0
    image_hits: float = 0.0
    preemptions: float = 0.0

    def since(self, earlier: EngineLoad) -> EngineLoad:
        """Return this reading with what was counted up to an earlier one taken off."""
        counted = (new - old for new, old in zip(self[3:], earlier[3:], strict=True))
        return EngineLoad(*self[:3], *counted)

    @property
    def prefix_hit_share(self) -> float | None:
        """Share of the prompt tokens looked up that were in the prefix cache; None if none was looked up."""
        return self.prefix_hits / self.prefix_queries if self.prefix_queries else None


def parse_metrics(text: str) -> EngineLoad:
    """Return a reading of a page in Prometheus' text format; series of several engines are added up.

    Source: the text exposition format, of which only ``name{labels} value`` lines matter here.
    """
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        name = line.partition("{")[0].partition(" ")[0]
        field = _NAMES.get(name)
        if field is not None:
            # Labels may hold spaces; after them come the value and perhaps a time.
            value = line.rpartition("}")[2].split()[0] if "{" in line else line.split()[1]
            sums[field] = sums.get(field, 0.0) + float(value)
    return EngineLoad(**sums)
