"""HTTP for the routes: requests with JSON and forms, replies, error pages, and who may connect.

Status codes and content types are those that Flask gives OSWorld's server: 415 without a JSON content type, 400 for bad
JSON, 404 and 405 with a small HTML page, HEAD and OPTIONS answered, an unexpected error is a 500 page.
"""

from __future__ import annotations

import hmac
import html
import ipaddress
import json
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

MAX_BODY_BYTES = 2**30
TEXT = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. ``headers`` holds what goes beside content type and length."""

    body: bytes
    status: int = 200
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(value: object, status: int = 200) -> Reply:
    """Return ``value`` as a JSON reply."""
    return Reply((json.dumps(value) + "\n").encode(), status, "application/json")


def as_text(text: str, status: int = 200) -> Reply:
    """Return a text reply; its content type is HTML's, as in the original."""
    return Reply(text.encode(errors="surrogateescape"), status)


def as_page(status: int, explanation: str) -> Reply:
    """Return the HTML page of an error."""
    phrase = HTTPStatus(status).phrase
    text = html.escape(explanation)
    page = f"<!doctype html>\n<html lang=en>\n<title>{status} {phrase}</title>\n<h1>{phrase}</h1>\n<p>{text}</p>\n"
    return Reply(page.encode(), status)


class HttpError(Exception):
    """Ends a request with an error page."""

    def __init__(self, status: int, explanation: str) -> None:
        super().__init__(explanation)
        self.reply = as_page(status, explanation)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, its body read."""

    method: str
    path: str
    content_type: str
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the JSON object in the body.

        Raises:
            HttpError: 415 without a JSON content type, 400 for anything but a JSON object.
        """
        kind = self.content_type.partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise HttpError(415, f"The content type is {kind or 'missing'}; this route takes application/json.")
        try:
            value = json.loads(self.body)
        except ValueError as exc:
            raise HttpError(400, f"The body is no JSON: {exc}") from exc
        if not isinstance(value, dict):
            raise HttpError(400, f"The body is a JSON {type(value).__name__}; an object was wanted.")
        return value

    def form(self) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return the fields and the files of a form; both empty if the body is none."""
        kind = self.content_type.partition(";")[0].strip().lower()
        if kind == "application/x-www-form-urlencoded":
            return dict(parse_qsl(self.body.decode(errors="replace"), keep_blank_values=True)), {}
        if kind == "multipart/form-data":
            return _multipart(self.content_type, self.body)
        return {}, {}


def _multipart(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, bytes]]:
    """Split a multipart body at its boundary; the parts' bytes are kept as they are."""
    header = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode(), headersonly=True)
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise HttpError(400, "The form has no boundary.")
    fields: dict[str, str] = {}
    files: dict[str, bytes] = {}
    # The first piece is before the first boundary, the last one after the closing boundary.
    for piece in (b"\r\n" + body).split(b"\r\n--" + boundary.encode())[1:-1]:
        head, found, content = piece.partition(b"\r\n\r\n")
        part = BytesParser(policy=HTTP).parsebytes(head.lstrip(b"\r\n") + b"\r\n\r\n", headersonly=True)
        name = part.get_param("name", header="content-disposition")
        if not found or not isinstance(name, str):
            continue
        if part.get_param("filename", header="content-disposition") is not None:
            files[name] = content
        else:
            fields[name] = content.decode(errors="replace")
    return fields, files


Route = Callable[[Request], Reply]


class Server(ThreadingHTTPServer):
    """Serves a table of routes, a thread per connection.

    Args:
        address: Host and port to listen on; port 0 takes a free one.
        routes: Function by (method, path).
        siblings: Whether other members of the container's network may connect.
        token: What every request has to bring, as ``Authorization: Bearer TOKEN``; "" for none.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        routes: Mapping[tuple[str, str], Route],
        *,
        siblings: bool = False,
        token: str = "",
    ) -> None:
        self.routes = routes
        self._token = token
        self._network, self._gateway = (None, None) if siblings else own_network()
        self._welcome = {self._gateway, own_address()}
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse what comes from another container; a published port comes from the gateway or from outside."""
        peer = ipaddress.IPv4Address(client_address[0])
        return self._network is None or peer not in self._network or peer in self._welcome

    def admits(self, authorization: str) -> bool:
        """Whether a request with this header may be answered."""
        wanted = f"Bearer {self._token}"
        return not self._token or hmac.compare_digest(authorization.encode(), wanted.encode())

    def methods_of(self, path: str) -> list[str]:
        """Return the methods that a path takes, sorted; empty for an unknown path."""
        methods = {method for method, known in self.routes if known == path}
        return sorted(methods | ({"HEAD"} if "GET" in methods else set()) | ({"OPTIONS"} if methods else set()))

    def answer(self, request: Request) -> Reply:
        """Route one request; no error leaves this function."""
        allowed = self.methods_of(request.path)
        if not allowed:
            return as_page(404, f"There is no route {request.path}.")
        allow = {"Allow": ", ".join(allowed)}
        if request.method not in allowed:
            page = as_page(405, f"{request.path} takes {allow['Allow']}, not {request.method}.")
            return Reply(page.body, page.status, page.content_type, allow)
        if request.method == "OPTIONS":
            return Reply(b"", headers=allow)
        try:
            return self.routes["GET" if request.method == "HEAD" else request.method, request.path](request)
        except HttpError as exc:
            return exc.reply
        except Exception as exc:
            traceback.print_exc(file=sys.stderr)
            return as_page(500, f"{type(exc).__name__}: {exc}")


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "dartsim-desktop"
    # Otherwise the last small packet of a reply waits for the client's acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1

    def _serve(self) -> None:
        if not self.server.admits(self.headers.get("Authorization", "")):
            self.close_connection = True  # nothing of the body is read
            self._send(as_page(401, "This desktop wants its token."))
            return
        try:
            body = self._body()
        except HttpError as exc:
            self.close_connection = True
            self._send(exc.reply)
            return
        path = self.path.partition("?")[0]
        request = Request(self.command, path, self.headers.get("Content-Type", ""), body)
        self._send(self.server.answer(request))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._chunks()
        try:
            num_bytes = int(self.headers.get("Content-Length", "0"))
        except ValueError as exc:
            raise HttpError(400, f"Content-Length is {self.headers['Content-Length']!r}; a number was wanted.") from exc
        if not 0 <= num_bytes <= MAX_BODY_BYTES:
            raise HttpError(413, f"The body has {num_bytes} bytes; at most {MAX_BODY_BYTES} are taken.")
        return self.rfile.read(num_bytes)

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            try:
                num_bytes = int(self.rfile.readline().partition(b";")[0], 16)
            except ValueError as exc:
                raise HttpError(400, "A chunk of the body has no length.") from exc
            if len(body) + num_bytes > MAX_BODY_BYTES:
                raise HttpError(413, f"The body has more than {MAX_BODY_BYTES} bytes.")
            body += self.rfile.read(num_bytes)
            self.rfile.readline()
            if not num_bytes:
                return bytes(body)

    def _send(self, reply: Reply) -> None:
        try:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)
            self.wfile.flush()
        except OSError:  # the client is gone: nobody is left to tell
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: the client logs what it asked for."""


def own_address() -> ipaddress.IPv4Address:
    """Return the address that this machine is known by under its host name."""
    try:
        return ipaddress.IPv4Address(socket.gethostbyname(socket.gethostname()))
    except (OSError, ValueError):
        return ipaddress.IPv4Address("127.0.0.1")


def own_network(
    table: Path = Path("/proc/net/route"),
) -> tuple[ipaddress.IPv4Network | None, ipaddress.IPv4Address | None]:
    """Return the network of the default route's interface and its gateway; None without a default route."""
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return None, None
    gateways = [(row[0], _address(row[2])) for row in rows if row[1] == "00000000" and row[2] != "00000000"]
    for interface, gateway in gateways:
        for row in rows:
            if row[0] == interface and row[1] != "00000000":
                return ipaddress.IPv4Network(f"{_address(row[1])}/{_address(row[7])}", strict=False), gateway
    return None, None


def _address(written: str) -> ipaddress.IPv4Address:
    """Read an address of the kernel's table: hexadecimal, in the machine's byte order."""
    return ipaddress.IPv4Address(struct.pack("=I", int(written, 16)))
