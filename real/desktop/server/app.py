"""The Flask application: access control and error pages."""

from __future__ import annotations

import hmac
import ipaddress
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Flask, abort, request
from waitress.server import BaseWSGIServer, MultiSocketServer, create_server
from werkzeug.exceptions import HTTPException, InternalServerError

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue

View = Callable[[], "ResponseReturnValue"]
"""Answers one request."""

MAX_BODY_BYTES = 2**30
NUM_THREADS = 16
"""Concurrent requests; one client sends them one after another, but some take minutes."""


def make_app(views: Mapping[tuple[str, str], View], *, siblings: bool = False, token: str = "") -> Flask:
    """Return the application."""
    app = Flask("dartsim-desktop", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    for (method, path), view in views.items():
        app.add_url_rule(path, f"{method} {path}", view, methods=[method])
    network, gateway = (None, None) if siblings else own_network()
    welcome = {gateway, own_address()}

    @app.before_request
    def refuse_strangers() -> None:
        """Refuse other containers; a published port is reached through the gateway or from outside."""
        peer = ipaddress.IPv4Address(request.remote_addr or "127.0.0.1")
        if network is not None and peer in network and peer not in welcome:
            abort(403)
        if token and not hmac.compare_digest(
            request.headers.get("Authorization", "").encode(), f"Bearer {token}".encode()
        ):
            abort(401, "This desktop wants its token.")

    @app.errorhandler(Exception)
    def explain(error: Exception) -> HTTPException:
        if isinstance(error, HTTPException):
            return error
        app.logger.error("%s %s failed", request.method, request.path, exc_info=error)
        return InternalServerError(f"{type(error).__name__}: {error}")

    return app


def json_body() -> dict[str, Any]:
    """Return the JSON object in the request's body; anything else ends the request with an error page."""
    value = request.get_json()
    if not isinstance(value, dict):
        abort(400, f"The body is a JSON {type(value).__name__}; an object was wanted.")
    return value


def serve(app: Flask, host: str, port: int) -> BaseWSGIServer | MultiSocketServer:
    """Return a server that listens and keeps connections open; port 0 takes a free one."""
    return create_server(app, host=host, port=port, threads=NUM_THREADS, max_request_body_size=MAX_BODY_BYTES)


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
