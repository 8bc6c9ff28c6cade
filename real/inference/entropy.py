"""Entropies from the likeliest tokens: what vLLM's log-probabilities say of a distribution they show a part of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def lower_bound(sampled: float, others: Sequence[float], num_allowed: int) -> float:
    """Return a lower bound of a distribution's entropy, nats.

    Exact if the tokens given are all that can come. Otherwise no token that is missing is likelier than the least
    likely of the others, so each adds at least its share times minus that log-probability.

    Args:
        sampled: Log-probability of the token that came, nats.
        others: Those of the likeliest tokens beside it, nats.
        num_allowed: Tokens that can come at all.
    """
    known = [x for x in (sampled, *others) if x > -1_000.0]  # masked tokens come as -9999
    entropy = -sum(math.exp(x) * x for x in known)
    if others and len(known) < num_allowed and len(known) == 1 + len(others):
        rest = max(0.0, 1.0 - sum(math.exp(x) for x in known))
        entropy -= rest * min(others)
    return entropy


def lower_bounds(
    places: Sequence[Mapping[str, Any]], num_allowed: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the lower bound at each place of a reply.

    Args:
        places: vLLM's ``logprobs.content``: a sampled token, and ``top_logprobs`` that begin with it.
        num_allowed: Tokens that could come, at each place.
    """
    bounds = []
    for place, count in zip(places, num_allowed, strict=True):
        others = {int(entry["token_id"]): float(entry["logprob"]) for entry in place["top_logprobs"]}
        others.pop(int(place["token_id"]), None)
        bounds.append(lower_bound(float(place["logprob"]), list(others.values()), count))
    return np.asarray(bounds, dtype=np.float32)
