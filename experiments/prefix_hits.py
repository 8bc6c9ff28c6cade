"""What a prefix cache could find of a run's prompts at most, and what took away the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from typing_extensions import override

from dartsim.core.types import Reply, Trajectory
from dartsim.observe import Instrument
from dartsim.sim.prompts import PromptModel

CAUSES = ("moved", "new_weights", "forgotten")
"""Why a turn did not find the turn before: that was on another worker; its worker has been given other weights since;
or neither, so that the worker had no room for it, or was down."""


BOUND = "bound_prefix_hit_share"
FIGURES = (BOUND, *(f"prefix_lost_{cause}_share" for cause in CAUSES))
"""Shares of all prompt tokens: the most that could be found, and what was not found of that, by cause."""


@dataclass
class PrefixHits(Instrument):
    """Adds up the prompt tokens of ended attempts."""

    prompts: PromptModel
    prompt_tokens: int = 0
    most_tokens: int = 0
    lost_tokens: Counter[str] = field(default_factory=Counter)

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        replies = [turn.reply for turn in trajectory.turns]
        self.prompt_tokens += sum(reply.prompt_tokens for reply in replies)
        for number, (last, reply) in enumerate(pairwise(replies), 1):
            most = self.prompts.prompt(number, warm=True).cached_tokens
            self.most_tokens += most
            if reply.cached_tokens is not None and reply.cached_tokens < most:
                self.lost_tokens[_cause(last, reply)] += most - reply.cached_tokens

    def figures(self) -> dict[str, float | None]:
        tokens = (self.most_tokens, *(self.lost_tokens[cause] for cause in CAUSES))
        total = self.prompt_tokens
        return {name: number / total if total else None for name, number in zip(FIGURES, tokens, strict=True)}


def _cause(last: Reply, reply: Reply) -> str:
    if reply.worker != last.worker:
        return "moved"
    return "new_weights" if reply.version != last.oldest_version else "forgotten"
