"""What only exists in real time, refused by name: sockets, subprocesses, signals.

An ``AbstractEventLoop`` would answer with a bare NotImplementedError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from dartsim.core.errors import Forbidden

_NETWORK = "put the simulated model behind the port, or run on a real loop with a BridgeEnvironment"
_PROCESS = "use a simulated part in its place, or run the program with asyncio.run"
_SIGNAL = "simulate() already turns the first Ctrl-C into a cancellation of the main task"


def _refusal(name: str, advice: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
        raise Forbidden(f"loop.{name}() is real I/O and does not exist in virtual time: {advice}")

    refuse.__name__ = name
    refuse.__doc__ = f"Refuse {name}."
    return refuse


class NoRealIO(asyncio.AbstractEventLoop):
    """An event loop that refuses all real I/O with ``Forbidden``."""

    add_reader = _refusal("add_reader", _NETWORK)  # type: ignore[assignment]
    add_writer = _refusal("add_writer", _NETWORK)  # type: ignore[assignment]
    remove_reader = _refusal("remove_reader", _NETWORK)
    remove_writer = _refusal("remove_writer", _NETWORK)
    connect_accepted_socket = _refusal("connect_accepted_socket", _NETWORK)
    create_connection = _refusal("create_connection", _NETWORK)
    create_datagram_endpoint = _refusal("create_datagram_endpoint", _NETWORK)
    create_server = _refusal("create_server", _NETWORK)
    create_unix_connection = _refusal("create_unix_connection", _NETWORK)
    create_unix_server = _refusal("create_unix_server", _NETWORK)
    getaddrinfo = _refusal("getaddrinfo", _NETWORK)
    getnameinfo = _refusal("getnameinfo", _NETWORK)
    sendfile = _refusal("sendfile", _NETWORK)
    sock_accept = _refusal("sock_accept", _NETWORK)
    sock_connect = _refusal("sock_connect", _NETWORK)
    sock_recv = _refusal("sock_recv", _NETWORK)
    sock_recv_into = _refusal("sock_recv_into", _NETWORK)
    sock_recvfrom = _refusal("sock_recvfrom", _NETWORK)
    sock_recvfrom_into = _refusal("sock_recvfrom_into", _NETWORK)
    sock_sendall = _refusal("sock_sendall", _NETWORK)
    sock_sendfile = _refusal("sock_sendfile", _NETWORK)
    sock_sendto = _refusal("sock_sendto", _NETWORK)
    start_tls = _refusal("start_tls", _NETWORK)
    connect_read_pipe = _refusal("connect_read_pipe", _PROCESS)
    connect_write_pipe = _refusal("connect_write_pipe", _PROCESS)
    subprocess_exec = _refusal("subprocess_exec", _PROCESS)
    subprocess_shell = _refusal("subprocess_shell", _PROCESS)
    add_signal_handler = _refusal("add_signal_handler", _SIGNAL)  # type: ignore[assignment]
    remove_signal_handler = _refusal("remove_signal_handler", _SIGNAL)
