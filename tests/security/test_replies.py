"""Answers of a desktop, which an agent may have written, neither stop the event loop nor fill the memory."""

import gzip
import json

import pytest

from dartsim.real.osworld import replies
from dartsim.real.osworld.chrome import Tabs
from dartsim.real.osworld.errors import SetupFailed, VmBadReply

httpx = pytest.importorskip("httpx")


def reply(content):
    return httpx.Response(200, content=content, request=httpx.Request("POST", "http://vm/execute"))


def test_a_long_answer_is_read_only_if_it_is_flat():
    """Eight megabytes of lists would stop the event loop for a second; as many of text take milliseconds."""
    text = 'a "quoted" \\ text\n' * 100_000
    long = json.dumps({"output": text, "error": "", "returncode": -9, "status": None})
    assert replies.executed(reply(long.encode())) == (text, "", -9)
    assert replies.json_object(reply(b" {}")) == {}
    for hostile in (
        b"[" + b"[]," * 200_000 + b"1]",
        b'{"output": [' + b"1," * 200_000 + b"1]}",
        b'{"a": ' * 100_000,
        b'{"output": "' + b"x" * 300_000,
        b'{"output": "' + b"x" * 300_000 + b'"} trailing',
        b"{" + b",".join(b'"%d": 1' % number for number in range(50_000)) + b"}",
        b"\xff" * 300_000,
        b'{"output": "' + b"x" * 9 * 2**20 + b'"}',
    ):
        with pytest.raises(VmBadReply):
            replies.executed(reply(hostile))


async def test_what_listens_at_chromes_port_cannot_fill_the_memory():
    for headers, content in (({"Content-Encoding": "gzip"}, gzip.compress(bytes(2**20))), ({}, b"[" * 2**20)):
        web = httpx.MockTransport(lambda _, h=headers, c=content: httpx.Response(200, headers=h, content=c))
        with pytest.raises(SetupFailed):
            await Tabs("http://vm:9222", transport=web).close(["http://a"])
