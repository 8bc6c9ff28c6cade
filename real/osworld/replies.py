"""Parses the server's answers: JSON, text, bytes, and the outcome of a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dartsim.real.osworld.errors import TOO_LARGE, VmBadReply, VmMissing

if TYPE_CHECKING:
    import httpx


MAX_REPLY_BYTES = 128 * 2**20
"""Largest reply of a desktop: a file, a screenshot, a tree."""
MAX_JSON_BYTES = 8 * 2**20
"""Largest answer that is an object of texts: an accessibility tree, the output of a command."""
MAX_TREE_BYTES = 2**18
"""Largest answer with nested lists and objects. Parsing 8 MiB of these would block the event loop for a second."""
_TEXT = r'"(?:[^"\\]++|\\.)*+"'
_FIELD = rf"\s*+{_TEXT}\s*+:\s*+(?:{_TEXT}|null|true|false|-?[0-9.eE+-]{{1,40}}+)\s*+"
_FLAT = re.compile(rf"\s*+\{{(?:{_FIELD}(?:,{_FIELD}){{0,31}}+)?+\}}\s*+", re.DOTALL)
"""An object of at most 32 texts and numbers. It never goes back, so its time grows with the length alone."""


class Executed(NamedTuple):
    """The outcome of a command on the desktop; ``returncode`` is negative for a signal."""

    output: str
    error: str
    returncode: int


def ok(response: httpx.Response) -> httpx.Response:
    """Return an answer of status 200.

    Raises:
        VmMissing: If it says that a file is not there.
        VmBadReply: If it has another status.
    """
    if response.status_code == 200:
        return response
    message = message_of(response)
    page = _is_page(response)
    kind = VmMissing if response.status_code == 404 and not page else VmBadReply
    words = " ".join(re.sub(r"<[^>]*>", " ", message).split()) if page else message
    raise kind(
        f"{_request_line(response)}: found status {response.status_code} ({words[:300]}), wanted 200",
        status=response.status_code,
        body=message,
    )


def text(response: httpx.Response) -> str:
    """Return an answer as text."""
    return ok(response).text


def content(response: httpx.Response) -> bytes:
    """Return an answer as bytes: a file, never a page in its place."""
    named = "Content-Disposition" in ok(response).headers
    if "text/html" in response.headers.get("Content-Type", "") and not named:
        raise bad_reply(response, "a page", "a file")
    return response.content


def json_object(response: httpx.Response) -> dict[str, Any]:
    """Return an answer that is a JSON object."""
    return as_object(response, _json(ok(response)))


def executed(response: httpx.Response) -> Executed:
    """Return the outcome of a command; OSWorld's routes write its return code in two ways."""
    found = json_object(response)
    code = found.get("returncode", found.get("return_code"))
    output, error = found.get("output") or "", found.get("error") or ""
    if isinstance(code, bool) or not isinstance(code, int) or not isinstance(output, str) or not isinstance(error, str):
        raise bad_reply(response, found, "an object with output, error and returncode")
    return Executed(output, error, code)


def field(name: str, *kinds: type) -> Callable[[httpx.Response], Any]:
    """Return a reader of one field of a JSON object; a missing field or another type is a ``VmBadReply``."""

    def read(response: httpx.Response) -> Any:
        found = json_object(response)
        if name not in found or not isinstance(found[name], kinds):
            raise bad_reply(response, found, f"an object with {name!r}")
        return found[name]

    return read


def as_object(response: httpx.Response, found: Any) -> dict[str, Any]:
    """Return a JSON value that must be an object."""
    if not isinstance(found, dict):
        raise bad_reply(response, found, "an object")
    return found


def message_of(response: httpx.Response) -> str:
    """Return the message of an answer: the text in its JSON, or its beginning."""
    try:
        found = response.json() if len(response.content) <= MAX_TREE_BYTES else None
    except (ValueError, RecursionError):
        return response.text[:2000]
    if isinstance(found, Mapping):
        return str(found.get("message") or found.get("error") or dict(found))
    return str(found)


def bad_reply(response: httpx.Response, found: Any, wanted: str) -> VmBadReply:
    """Return the error for an answer of the wrong shape."""
    return VmBadReply(
        f"{_request_line(response)}: found {str(found)[:200]}, wanted {wanted}", status=200, body=response.text
    )


def _json(response: httpx.Response) -> Any:
    size = len(response.content)
    if size > MAX_JSON_BYTES:
        raise VmBadReply(
            f"{_request_line(response)}: found {size:,} bytes, wanted {MAX_JSON_BYTES:,} at most", status=TOO_LARGE
        )
    try:
        if size > MAX_TREE_BYTES and not _FLAT.fullmatch(response.content.decode()):
            raise VmBadReply(
                f"{_request_line(response)}: found {size:,} bytes, wanted an object of texts and numbers",
                status=TOO_LARGE,
            )
        return response.json()
    except (ValueError, RecursionError):
        raise bad_reply(response, response.text[:2000], "JSON") from None


def _is_page(response: httpx.Response) -> bool:
    """Whether it is an error page: a missing file is reported in JSON or a few words, an unknown route by a page."""
    start = response.content[:100].lstrip().lower()
    return start.startswith((b"<!doctype", b"<html"))


def _request_line(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url.path}"
