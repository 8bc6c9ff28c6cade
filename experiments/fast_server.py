"""A server that answers every turn with the same reply after a set time, to measure the client's own cost.

    python -m experiments.fast_server ANSWER.json

It prints its port, and answers at once until ``GET /seconds/2.5`` sets another time. It is as small as a server of
HTTP/1.1 can be in Python, so that it is not what is measured; it is no vLLM: only what a turn, and a worker's first
questions, need is answered.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

TURNS = (b"/inference/v1/generate", b"/v1/completions")
CONTROL = b'{"is_paused": false, "weight_version": "0"}'


class Answering(asyncio.Protocol):
    """One connection."""

    seconds = 0.0

    def __init__(self, answer: bytes) -> None:
        self._turn = _response(answer)
        self._control = _response(CONTROL)
        self._read = bytearray()
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once a request is whole; clients send one at a time on a connection."""
        self._read += data
        if not self._wanted:
            head = self._read.find(b"\r\n\r\n")
            if head < 0:
                return
            self._wanted = head + 4 + _length(bytes(self._read[:head]).lower())
        if len(self._read) < self._wanted:
            return
        path = bytes(self._read[:128]).split(b" ", 2)[1].split(b"?")[0]
        self._read.clear()
        self._wanted = 0
        if path.startswith(b"/seconds/"):
            Answering.seconds = float(path[9:])
        if path not in TURNS:
            self._transport.write(self._control)
        elif self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, self._say)
        else:
            self._say()

    def _say(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._turn)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


async def serve(answer: bytes) -> None:
    """Serve on a free port of the loopback until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(answer), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until the process ends."""
    about = str(__doc__).splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.fast_server", description=about)
    parser.add_argument("answer", type=Path, metavar="ANSWER.json", help="the body of every reply")
    asyncio.run(serve(parser.parse_args().answer.read_bytes()))


if __name__ == "__main__":
    main()
