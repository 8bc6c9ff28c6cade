"""Secrets that are never written: passwords in URLs, tokens, and variables of such names.

Secrets stay in the environment; a configuration that holds one is refused (``rules``), and error messages pass through
``hidden``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_NAME = re.compile(r"(?i)(^|_)(token|password|passwd|pgpassword|secrets?|api_?keys?|credentials?)($|_)")
_IN_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^\s/:@'\"]*):(?P<password>[^\s/@'\"]+)@")
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{16,}|AKIA[A-Z0-9]{16})\b"
)
_ASSIGNED = re.compile(
    r"(?i)(?P<name>\b[A-Za-z0-9_]*(?:_|\b)(?:token|password|secret|api[_-]?key)|--api-key|--token)"
    r"(?P<middle>\s*[=:]\s*|(?<=-key)\s+|(?<=--token)\s+)(?P<value>[^\s,;&'\"]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_SHORTEST = 6
"""Shorter values may be ordinary words."""


def is_secret_name(name: str) -> bool:
    """Whether a variable or a setting of this name holds a secret."""
    return bool(_NAME.search(name)) or name.upper() in ("HF_TOKEN", "PGPASSWORD")


def hidden(text: str) -> str:
    """Return a text without secrets of the environment, or anything that looks like a secret."""
    for name, value in os.environ.items():
        if is_secret_name(name) and len(value) >= _SHORTEST:
            text = text.replace(value, HIDDEN)
    text = _IN_URL.sub(rf"\g<scheme>\g<user>:{HIDDEN}@", text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    return _ASSIGNED.sub(rf"\g<name>\g<middle>{HIDDEN}", text)


def has_secret(text: str) -> bool:
    """Whether a text holds a password in a URL, or a token of a known shape."""
    return bool(_IN_URL.search(text) or _SHAPES.search(text))


def hidden_tree(tree: Any) -> Any:
    """Return a tree of plain values without secrets, by names of keys and in texts."""
    if isinstance(tree, Mapping):
        return {
            name: HIDDEN if is_secret_name(str(name)) and isinstance(value, str) and value else hidden_tree(value)
            for name, value in tree.items()
        }
    if isinstance(tree, (list, tuple)):
        words = list(tree)
        for place, word in enumerate(words[1:], 1):
            if words[place - 1] in ("--api-key", "--token"):
                words[place] = HIDDEN if isinstance(word, str) else word
        return [hidden_tree(word) for word in words]
    return hidden(tree) if isinstance(tree, str) else tree


def secret_settings(tree: Any, path: str = "") -> list[str]:
    """Return the keys of a configuration whose values hold a secret."""
    if isinstance(tree, str):
        return [path] if has_secret(tree) else []
    if isinstance(tree, (list, tuple)):
        return [key for value in tree for key in secret_settings(value, path)]
    if isinstance(tree, Mapping):
        return [key for name, value in tree.items() for key in secret_settings(value, f"{path}.{name}".lstrip("."))]
    return []
