"""Numbers in sentences, and text that can be encoded."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 GPU``, ``2 GPUs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def significant(value: float, digits: int, *, signed: bool = False) -> str:
    """Return a number with this many significant digits, written out: ``310``, where ``.2g`` writes ``3.1e+02``."""
    return f"{float(f'{value:.{digits}g}'):{'+' if signed else ''}.10g}"


def is_clean(text: str) -> bool:
    """Return whether text can be encoded: it contains no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str) -> str:
    """Return text with surrogate pairs joined and each unpaired half replaced by U+FFFD."""
    return text if is_clean(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
