"""``VlmPolicy``: the replies of a model, by the version of the weights.

During a rolling weight sync several versions are served at the same time by one model: the tensors of a version are put
in place, not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dartsim.core.errors import WorkerFault
from dartsim.core.types import Content, Request, Version, Weights
from dartsim.real.vlm.export import read_weights
from dartsim.real.vlm.lora import PREFIX, is_adapter
from dartsim.real.vlm.model import Snapshot, Vlm
from dartsim.real.vlm.sampling import FirstTokens, sample


class VlmPolicy:
    """Answers requests."""

    def __init__(self, vlm: Vlm, *, keep_versions: int = 8, greedy: bool = False) -> None:
        if keep_versions < 1:
            raise ValueError(f"keep_versions must be at least 1, got {keep_versions}")
        self.vlm = vlm
        self._keep = keep_versions
        self._greedy = greedy
        self._versions: dict[Version, Snapshot] = {0: vlm.snapshot()}
        self._firsts: dict[Version, FirstTokens] = {}
        self._in_place: Version | None = None

    @property
    def versions(self) -> tuple[Version, ...]:
        return tuple(sorted(self._versions))

    def add(self, weights: Weights) -> None:
        """Add a version: a snapshot, or a folder or file of safetensors. Adding it again changes nothing.

        Raises:
            WorkerFault: If there is nothing to load.
        """
        if weights.version in self._versions:
            return
        self._versions[weights.version] = complete(weights, self._versions[min(self._versions)])
        while len(self._versions) > self._keep:
            oldest = min(self._versions)
            del self._versions[oldest]
            self._firsts.pop(oldest, None)

    def compute(self, requests: Sequence[Request], version: Version) -> list[Content]:
        """Answer requests with the weights of a version, all in one batch.

        Raises:
            WorkerFault: If the version is not here.
        """
        if version != self._in_place:
            if version not in self._versions:
                raise WorkerFault(
                    f"version {version} was asked for, here are {self.versions}; add it first, or raise keep_versions"
                )
            self.vlm.use(self._versions[version])
            self._in_place = version
        prompts = [self.vlm.prompts.build(request.observation, request.history) for request in requests]
        seeds = [(request.attempt.seed, request.turn) for request in requests]
        firsts = self._firsts.setdefault(version, FirstTokens())
        replies = sample(self.vlm, prompts, seeds, greedy=self._greedy, firsts=firsts)
        decode = self.vlm.vocabulary.decode
        return [Content(decode(reply.tokens.tolist()), *reply) for reply in replies]

    def prompt_tokens(self, request: Request) -> int:
        """Return the length of a request's prompt, including its pictures."""
        return len(self.vlm.prompts.build(request.observation, request.history).tokens)


def complete(weights: Weights, like: Snapshot) -> Snapshot:
    """Return published weights as a snapshot of a model; an adapter is put beside the model's own.

    Args:
        weights: A snapshot, an adapter, or a path to one of them.
        like: A snapshot of the model, whose weights the adapter is for.

    Raises:
        WorkerFault: If there is nothing to load.
    """
    source = weights.source
    if source is None:
        raise WorkerFault(f"version {weights.version} came without weights; wanted a snapshot or a path")
    own = {name: tensor for name, tensor in like.items() if not name.startswith(PREFIX)}
    if not isinstance(source, dict):
        try:
            source = read_weights(Path(source), own)
        except FileNotFoundError as error:
            raise WorkerFault(f"version {weights.version} should be where there is no file: {error}") from None
    return {**own, **source} if is_adapter(source) else source
