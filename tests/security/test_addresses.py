"""URLs of task files: schemes, redirections, private addresses, names with two answers, sizes."""

from __future__ import annotations

import asyncio

import pytest

from dartsim.real.osworld.addresses import resolve
from dartsim.real.osworld.errors import FetchFailed
from dartsim.real.osworld.fetch import Downloads, check_url

httpx = pytest.importorskip("httpx")

PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[2002:7f00:1::]",
    "224.0.0.1",
    "255.255.255.255",
    "localhost",
    "LOCALHOST",
]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("dartsim.real.osworld.fetch.BETWEEN_SECONDS", 0.0)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


class Web:
    """A web of made-up hosts: names with addresses, and replies by URL; it keeps who was asked."""

    def __init__(self, names, replies):
        self.names, self.replies = names, replies
        self.asked = []

    async def look_up(self, host):
        return self.names[host] if host in self.names else await resolve(host)

    async def handle(self, request):
        self.asked.append(request.url.host)
        return self.replies.pop(0)

    def fetch(self, url, folder, **more):
        transport = httpx.MockTransport(self.handle)
        return asyncio.run(Downloads(folder, transport=transport, look_up=self.look_up, **more).fetch(url))


def moved(to):
    return httpx.Response(302, headers={"location": to})


@pytest.mark.parametrize(
    "url",
    [
        "file://host/etc/passwd",
        "ftp://a/b",
        "gopher://a/b",
        "data:text/plain,x",
        "javascript:alert(1)",
        "dict://a/b",
        "jar:http://a/b",
        "//a/b",
        "/etc/passwd",
        "http:///b",
        "https://a",
        "",
    ],
)
def test_other_schemes_are_refused_before_anything_is_done(url):
    with pytest.raises(FetchFailed):
        check_url(url)


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_are_never_asked(tmp_path, host):
    web = Web({}, [])
    with pytest.raises(FetchFailed, match="Invalid IPv4 address" if host == "0177.0.0.1" else "public internet"):
        web.fetch(f"http://{host}/latest/meta-data", tmp_path)
    assert web.asked == []


@pytest.mark.parametrize("host", PRIVATE)
def test_redirections_to_private_addresses_are_not_followed(tmp_path, host):
    web = Web({"a.org": ["93.184.216.34"]}, [moved(f"http://{host}/latest") for _ in range(3)])
    # httpx itself does not take 0177.0.0.1 for a host.
    with pytest.raises(FetchFailed, match="Invalid IPv4 address" if host == "0177.0.0.1" else "public internet"):
        web.fetch("https://a.org/b", tmp_path)
    assert set(web.asked) == {"a.org"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://a.org/b", "gopher://a.org/b"])
def test_redirections_to_other_schemes_are_not_followed(tmp_path, to):
    web = Web({"a.org": ["93.184.216.34"]}, [moved(to)])
    with pytest.raises(FetchFailed):
        web.fetch("https://a.org/b", tmp_path)
    assert len(web.asked) == 1


@pytest.mark.parametrize("found", [["10.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["169.254.169.254"], ["::1"]])
def test_a_public_name_of_a_private_address_is_refused(tmp_path, found):
    web = Web({"evil.org": found}, [])
    with pytest.raises(FetchFailed, match="public internet"):
        web.fetch("https://evil.org/b", tmp_path)
    assert web.asked == []


def test_redirections_keep_to_names_and_are_judged_each(tmp_path):
    web = Web(
        {"a.org": ["93.184.216.34"], "b.org": ["93.184.216.35"]},
        [moved("/c"), moved("https://b.org/d"), httpx.Response(200, content=b"abc")],
    )
    assert web.fetch("https://a.org/b", tmp_path).read_bytes() == b"abc"
    assert web.asked == ["a.org", "a.org", "b.org"]


def test_allowed_hosts_may_be_private(tmp_path):
    web = Web({"other.internal": ["10.0.0.1"]}, [httpx.Response(200, content=b"abc")])
    assert web.fetch("http://mirror.internal/b", tmp_path, allowed=["mirror.internal"]).read_bytes() == b"abc"
    assert web.asked == ["mirror.internal"]
    with pytest.raises(FetchFailed, match="public internet"):
        web.fetch("http://other.internal/b", tmp_path, allowed=["mirror.internal"])


def test_endless_redirections_end(tmp_path):
    web = Web({"a.org": ["93.184.216.34"]}, [moved("https://a.org/b") for _ in range(100)])
    with pytest.raises(FetchFailed, match="TooManyRedirects"):
        web.fetch("https://a.org/b", tmp_path)


def test_a_file_that_unpacks_on_its_way_is_counted_unpacked(tmp_path):
    import gzip

    bomb = gzip.compress(b"\0" * 2**22, mtime=0)
    web = Web({"a.org": ["93.184.216.34"]}, [httpx.Response(200, headers={"content-encoding": "gzip"}, content=bomb)])
    with pytest.raises(FetchFailed, match="more than 1,048,576 bytes"):
        web.fetch("https://a.org/b", tmp_path, max_bytes=2**20)
    assert list(tmp_path.iterdir()) == []


def test_behind_a_proxy_names_are_still_judged(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    for host in ("169.254.169.254", "localhost"):
        with pytest.raises(FetchFailed, match="public internet"):
            asyncio.run(Downloads(tmp_path).fetch(f"http://{host}/a"))
