"""Numbers in sentences."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 GPU``, ``2 GPUs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def significant(value: float, digits: int, *, signed: bool = False) -> str:
    """Return a number with so many significant digits, written out: ``310``, where ``.2g`` writes ``3.1e+02``."""
    return f"{float(f'{value:.{digits}g}'):{'+' if signed else ''}.10g}"
