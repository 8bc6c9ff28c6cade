"""How long to wait before retrying something that failed."""

from __future__ import annotations

import math

_MAX_DOUBLINGS = 60
"""More would overflow a float, after days of failures."""


def backoff_seconds(failures: int, *, first_seconds: float, max_seconds: float = math.inf) -> float:
    """Return the wait after this many failures in a row: doubled each time, at most ``max_seconds``."""
    return min(first_seconds * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS), max_seconds)
