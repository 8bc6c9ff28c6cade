"""A server that speaks OpenAI's chat protocol on the loopback, strictly, and misbehaves by a script."""

import base64
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dartsim.core.png import check_png

Answer = Callable[[list[dict[str, Any]]], str]
"""Returns the reply to a conversation."""


class Endpoint:
    """The server.

    Attributes:
        bodies: Requests that were answered, oldest first.
        script: What happens to the next requests, instead of an answer: a status, a status with headers, raw bytes of
            an answer, or ``close`` (the connection is closed midway).
        answer: The reply to all others.
        finish_reason: Why replies end.
        broken: The status of all requests from now on.
    """

    def __init__(self, url: str, *, model: str, key: str | None, answer: Answer):
        self.url = url
        self.model = model
        self.key = key
        self.answer = answer
        self.finish_reason = "stop"
        self.bodies: list[dict[str, Any]] = []
        self.script: deque[Any] = deque()
        self.broken: int | None = None

    def respond(self, path: str, key: str | None, content: bytes) -> tuple[int, bytes, dict[str, str]] | None:
        """Return status, body and headers; None closes the connection midway."""
        if path != "/v1/chat/completions":
            return _error(404, f"no route {path}")
        if self.key is not None and key != f"Bearer {self.key}":
            return _error(401, f"Incorrect API key provided: {key}")
        if self.broken is not None:
            return _error(self.broken, "broken")
        body = json.loads(content)
        if body["model"] != self.model:
            return _error(404, f"The model `{body['model']}` does not exist")
        check_messages(body["messages"])
        if self.script:
            done = self.script.popleft()
            if done == "close":
                return None
            if isinstance(done, bytes):
                return 200, done, {}
            status, headers = done if isinstance(done, tuple) else (done, {})
            return (*_error(status, "try later")[:2], headers)
        self.bodies.append(body)
        message = {"role": "assistant", "content": self.answer(body["messages"])}
        usage = {
            "prompt_tokens": 1000 + len(self.bodies),
            "completion_tokens": 7,
            "total_tokens": 1007 + len(self.bodies),
        }
        choices = [{"index": 0, "message": message, "finish_reason": self.finish_reason}]
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": self.model,
            "choices": choices,
            "usage": usage,
        }
        return 200, json.dumps(answer).encode(), {}


def _error(status: int, text: str) -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps({"error": {"message": text, "type": "invalid_request_error"}}).encode(), {}


def check_messages(messages: list[dict[str, Any]]):
    """Fail for messages that OpenAI's API would refuse."""
    assert messages[0]["role"] in ("system", "user")
    assert messages[-1]["role"] == "user"
    for message in messages:
        assert set(message) == {"role", "content"}
        assert message["role"] in ("system", "user", "assistant")
        parts = message["content"]
        for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts:
            if part["type"] == "text":
                assert part["text"]
            else:
                check_png(picture(part))


def picture(part: dict[str, Any]) -> bytes:
    """Return the PNG in a part of a message."""
    assert part["type"] == "image_url"
    head, _, data = part["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    return base64.b64decode(data, validate=True)


@contextmanager
def endpoint(answer: Answer, *, model: str = "agent-1", key: str | None = None) -> Iterator[Endpoint]:
    """Serve in a thread."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            found = served.respond(self.path, self.headers.get("Authorization"), content)
            status, body, headers = found or (200, b'{"choices": [', {})
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "application/json"}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) + (found is None)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = found is None

        def log_message(self, *args):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Endpoint(f"http://127.0.0.1:{server.server_port}/v1", model=model, key=key, answer=answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
