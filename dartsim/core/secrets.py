"""Secrets that are never written: passwords in URLs, tokens, and variables whose names say so.

Secrets stay in the environment; a configuration that holds one is refused (``rules``), and error messages pass through
``redact``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
_NAME = re.compile(r"(?i)(^|_|-)(token|password|passwd|secrets?|api[_-]?keys?|credentials?)($|_|-)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"<>]+")
_USER = re.compile(r"(?P<before>://[^/:@?]*:)(?P<password>.+)@")
"""A password in a URL: everything up to the last ``@``."""
_PORT = re.compile(r"://[^/:@?]*:\d{0,5}([^\w.@%~+-]|$)")
"""A port follows the colon, so an ``@`` after it belongs to the path."""
_QUERY = re.compile(r"(?P<name>(?<=[?&;])[^=&;\s]+)=(?P<value>[^&;\s]*)")
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{16,}|AKIA[A-Z0-9]{16})\b"
)
_ASSIGNED = re.compile(
    r"(?i)(?P<name>\b[A-Za-z0-9_]*(?:_|\b)(?:token|password|secret|api[_-]?key)|--api-key|--token)"
    r"(?P<middle>\s*[=:]\s*|(?<=-key)\s+|(?<=--token)\s+)(?P<value>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&'\"]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_SHORTEST = 6
"""Shorter values may be ordinary words."""
_given: set[str] = set()


def keep_secret(value: str) -> None:
    """Redact a value from now on that neither a name nor its form reveals as a secret."""
    if len(value) >= _SHORTEST:
        _given.add(value)


def is_secret_name(name: str) -> bool:
    """Return whether a variable, setting or URL query key with this name holds a secret."""
    return bool(_NAME.search(unquote(name)))


def redact(text: str) -> str:
    """Return text without the environment's secrets or anything that looks like a secret."""
    named = {value for name, value in os.environ.items() if is_secret_name(name) and len(value) >= _SHORTEST}
    for value in sorted(named | _given, key=len, reverse=True):
        for form in (value, quote(value, safe=""), quote_plus(value)):
            text = text.replace(form, HIDDEN)
    text = _URL.sub(lambda found: _without_secrets(found[0]), text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    return _ASSIGNED.sub(rf"\g<name>\g<middle>{HIDDEN}", text)


def _without_secrets(url: str) -> str:
    """Return a URL without its password and the secrets in its query."""
    if not _PORT.search(url):
        url = _USER.sub(rf"\g<before>{HIDDEN}@", url, count=1)
    return _QUERY.sub(lambda part: f"{part['name']}={HIDDEN}" if is_secret_name(part["name"]) else part[0], url)


def has_secret(text: str) -> bool:
    """Return whether text contains a password in a URL, or a token of a known form."""
    return bool(_SHAPES.search(text)) or any(_without_secrets(url) != url for url in _URL.findall(text))


def redact_tree(tree: Any) -> Any:
    """Return a tree of plain values without secrets, recognized by key or in text."""
    if isinstance(tree, Mapping):
        return {
            name: HIDDEN if is_secret_name(str(name)) and isinstance(value, str) and value else redact_tree(value)
            for name, value in tree.items()
        }
    if isinstance(tree, (list, tuple)):
        words = list(tree)
        for place, word in enumerate(words[1:], 1):
            if words[place - 1] in ("--api-key", "--token"):
                words[place] = HIDDEN if isinstance(word, str) else word
        return [redact_tree(word) for word in words]
    return redact(tree) if isinstance(tree, str) else tree


def secret_settings(tree: Any, path: str = "") -> list[str]:
    """Return the keys of a configuration whose values contain a secret."""
    if isinstance(tree, str):
        return [path] if has_secret(tree) else []
    if isinstance(tree, (list, tuple)):
        hides = redact_tree(tree) != list(tree) and any(str(word).startswith("--") for word in tree)  # options
        return [path] if hides else [key for value in tree for key in secret_settings(value, path)]
    if not isinstance(tree, Mapping):
        return []
    keys: list[str] = []
    for name, value in tree.items():
        place = f"{path}.{name}".lstrip(".")
        named = is_secret_name(str(name)) and isinstance(value, str)
        keys += [place] if named else secret_settings(value, place)
    return keys
