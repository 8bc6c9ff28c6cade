"""Serves the pages of runs on this machine: documents, screenshots, and a stream of what has changed.

    GET /                the page, whole
    GET /api/PATH        a document, with ETag
    GET /api/ID/events   server-sent events: {name: revision}

It only reads, and looks at the times of files rather than at the run, which never waits for its viewers. A request must
name this machine as its host; a page of another origin gets nothing. Any address but loopback needs the token.
"""

from __future__ import annotations

import gzip
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import RLock
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import override

from dartsim.core.errors import DartsimError
from dartsim.observe.page.file import page_file
from dartsim.observe.page.runs import Site

LOOK_SECONDS = 0.5
"""Time between two looks at the files of a run that somebody watches."""
BEAT_SECONDS = 15.0
"""Time after which a stream without changes sends a comment, so that a viewer who is gone is noticed."""
MAX_ENCODED = 64
"""Documents, the last ones asked for, that are kept as they were sent."""
COOKIE = "dartsim_token"
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself says the rest
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves a site until it is shut down.

    Args:
        site: What it serves.
        host: The address to listen on.
        port: 0: any that is free.
        token: What a viewer must know; needed unless the address is loopback.

    Raises:
        ValueError: If an address other than loopback has no token.
        OSError: If the address cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 64
    block_on_close = False

    def __init__(self, site: Site, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        if token is None and not is_loopback(host):
            raise ValueError(f"{host} can be reached from other machines, so viewers need a token")
        self.site = site
        self.token = token
        self.host = host
        self.closing = False
        self._lock = RLock()
        self._looked: dict[str, tuple[float, Mapping[str, str]]] = {}
        self._encoded: dict[str, tuple[str, bytes]] = {}
        super().__init__((host, port), Handler)

    @property
    def url(self) -> str:
        """The address of the page, with the token if there is one."""
        query = "" if self.token is None else f"?token={self.token}"
        return f"http://{self.host}:{self.server_address[1]}/{query}"

    def revisions(self, parts: Sequence[str]) -> Mapping[str, str]:
        """Return the revisions of a run's documents; all its viewers share one look at its files."""
        path = "/".join(parts)
        with self._lock:
            looked = self._looked.get(path)
            if looked is None or time.monotonic() - looked[0] >= LOOK_SECONDS / 2:
                looked = self._looked[path] = time.monotonic(), self.site.revisions(parts)
            return looked[1]

    def document(self, parts: Sequence[str]) -> tuple[str, bytes]:
        """Return the revision of a document, and it as compressed JSON, which is made once for all viewers."""
        path = "/".join(parts)
        with self._lock:
            revision = self.site.revision(parts)
            known = self._encoded.pop(path, None)
            if known is None or known[0] != revision:
                known = revision, gzip.compress(json_bytes(self.site.get(parts)), compresslevel=5)
            self._encoded[path] = known  # the last ones asked for come last
            if len(self._encoded) > MAX_ENCODED:
                del self._encoded[next(iter(self._encoded))]
            return known

    def close(self) -> None:
        """Stop listening, and end the streams."""
        self.closing = True
        self.server_close()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of viewers that hang up."""


class Handler(BaseHTTPRequestHandler):
    """Answers one viewer."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "dartsim", ""
    timeout: ClassVar[float] = 60.0

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if not self._is_for_us():
            self._send_error(HTTPStatus.FORBIDDEN, "this page is served to this machine's own browser only")
            return
        known = self._knows_token(address.query)
        if not known:
            self._send_error(HTTPStatus.UNAUTHORIZED, "the address is not complete: it ends with ?token=…")
        elif address.path == "/" and self.server.token is not None and "token=" in address.query:
            cookie = f"{COOKIE}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(b"", "text/plain", status=HTTPStatus.SEE_OTHER, headers={"Location": "/", "Set-Cookie": cookie})
        elif address.path.startswith("/api/"):
            self._api([unquote(part, errors="replace") for part in address.path.split("/")[2:]])
        elif address.path == "/":
            page = gzip.compress(page_file().encode(), compresslevel=5)
            self._send(page, "text/html; charset=utf-8", headers={"Cache-Control": "no-cache"}, packed=True)
        else:
            self._send_error(HTTPStatus.NOT_FOUND, "there is no such page")

    def _api(self, parts: list[str]) -> None:
        site = self.server.site
        try:
            if parts[-1] == "events":
                self._stream(parts[:-1])
            elif len(parts) == 3 and parts[1] == "screen":
                self._send(site.screen(parts[0], parts[2]), "image/png", headers={"Cache-Control": "max-age=31536000"})
            else:
                revision, packed = self.server.document(parts)
                headers = {"ETag": f'"{revision}"', "Cache-Control": "no-cache"}
                self._send(packed, "application/json", headers=headers, packed=True)
        except KeyError:
            self._send_error(HTTPStatus.NOT_FOUND, "there is no such document")
        except (DartsimError, OSError) as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        except Exception as error:  # files may hold anything; the viewer gets a sentence, and the server goes on
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, f"the run's files are damaged: {type(error).__name__}")

    def _stream(self, parts: Sequence[str]) -> None:
        """Send what has changed, everything at first, until the viewer is gone."""
        known = self.server.revisions(parts)
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        for name, value in {**HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self._event(known)
        sent = time.monotonic()
        while not self.server.closing:
            time.sleep(LOOK_SECONDS)
            try:
                current = self.server.revisions(parts)
            except (DartsimError, OSError, KeyError):
                continue  # the folder is being written, or gone; a viewer asks again and gets the sentence
            changed = {name: revision for name, revision in current.items() if known.get(name) != revision}
            known = current
            if changed or time.monotonic() - sent > BEAT_SECONDS:
                self._event(changed)
                sent = time.monotonic()

    def _event(self, changed: Mapping[str, str]) -> None:
        self.wfile.write(f"data: {json.dumps(changed)}\n\n".encode() if changed else b": \n\n")
        self.wfile.flush()

    def _is_for_us(self) -> bool:
        """Whether a request names this server as its host, and comes from no other site.

        A page elsewhere may have its name resolve to this machine (DNS rebinding), or request images and scripts.
        """
        port = self.server.server_address[1]
        hosts = {f"{name}:{port}" for name in (self.server.host, "localhost", "127.0.0.1", "[::1]")}
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        reached_by_name = self.server.token is not None and not is_loopback(self.server.host)
        return (
            (host in hosts or reached_by_name)
            and (origin is None or origin == f"http://{host}")
            and self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        )

    def _knows_token(self, query: str) -> bool:
        token = self.server.token
        if token is None:
            return True
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        shown = [*parse_qs(query).get("token", ()), *([] if cookie is None else [cookie.value])]
        return any(hmac.compare_digest(each.encode(), token.encode()) for each in shown)

    def _send(
        self,
        content: bytes,
        kind: str,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
        packed: bool = False,
    ) -> None:
        if packed and "gzip" not in self.headers.get("Accept-Encoding", ""):
            content, packed = gzip.decompress(content), False
        self.send_response(status)
        for name, value in {**HEADERS, **(headers or {}), "Content-Type": kind}.items():
            self.send_header(name, value)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_error(self, status: HTTPStatus, sentence: str) -> None:
        self._send(json_bytes({"error": sentence}), "application/json", status=status)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the run."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def json_bytes(document: Any) -> bytes:
    """Return a document as compact JSON; texts with half of a surrogate pair are escaped."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
