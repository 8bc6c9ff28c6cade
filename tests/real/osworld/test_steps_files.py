"""Where files of tasks come from and where they may go."""

import asyncio

import pytest

from dartsim.real.osworld.errors import FetchFailed
from dartsim.real.osworld.fetch import Downloads, check_name, local_file

httpx = pytest.importorskip("httpx")


def fetch(url, **downloads):
    return asyncio.run(Downloads(**downloads).fetch(url))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("dartsim.real.osworld.fetch.BETWEEN_SECONDS", 0.0)


def serve(*replies):
    """Return a transport that gives these replies, and the list of URLs it was asked for."""
    left, asked = list(replies), []

    async def handle(request):
        asked.append(str(request.url))
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return httpx.MockTransport(handle), asked


@pytest.mark.parametrize("name", ["a", "a/b.txt", "a b", "..a", "a..", "Übung.xlsx", "a/./b"])
def test_names_that_stay_inside_are_taken(name):
    check_name(name)


def test_a_file_is_downloaded_once(tmp_path):
    transport, asked = serve(httpx.Response(200, content=b"abc"))
    downloads = Downloads(tmp_path, transport=transport)

    async def many():
        return await asyncio.gather(*(downloads.fetch("https://a/b?x=1") for _ in range(5)))

    paths = asyncio.run(many())
    assert set(paths) == {tmp_path / Downloads.name("https://a/b?x=1")}
    assert paths[0].read_bytes() == b"abc"
    assert asked == ["https://a/b?x=1"]


def test_files_are_kept_by_hash_and_fetched_again_if_they_changed(tmp_path):
    transport, asked = serve(*(httpx.Response(200, content=b"abc") for _ in range(3)))
    downloads = Downloads(tmp_path, transport=transport)
    both = [asyncio.run(downloads.verified(url)) for url in ("https://a/b", "https://a/c")]
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert [path.resolve() for path in both] == [tmp_path / "sha256" / digest] * 2
    assert asyncio.run(downloads.verified("https://a/b")).read_bytes() == b"abc"
    assert len(asked) == 2
    (tmp_path / "sha256" / digest).write_bytes(b"abX")
    assert asyncio.run(downloads.verified("https://a/b")).read_bytes() == b"abc"
    assert len(asked) == 3


def test_a_file_put_there_beforehand_is_taken(tmp_path):
    (tmp_path / Downloads.name("https://a/b")).write_bytes(b"staged")
    transport, asked = serve()
    assert fetch("https://a/b", folder=tmp_path, transport=transport).read_bytes() == b"staged"
    assert asked == []


def test_redirects_are_followed_and_tries_repeated(tmp_path):
    transport, asked = serve(
        httpx.ConnectError("down"),
        httpx.Response(503),
        httpx.Response(302, headers={"location": "https://c/d"}),
        httpx.Response(200, content=b"abc"),
    )
    assert fetch("https://a/b", folder=tmp_path, transport=transport).read_bytes() == b"abc"
    assert asked == ["https://a/b", "https://a/b", "https://a/b", "https://c/d"]


@pytest.mark.parametrize(
    ("replies", "asked"),
    [
        ([httpx.Response(404)], 1),
        ([httpx.ReadTimeout("slow")] * 3, 3),
    ],
)
def test_a_download_that_fails_leaves_nothing(tmp_path, replies, asked):
    transport, urls = serve(*replies)
    with pytest.raises(FetchFailed, match="https://a/b"):
        fetch("https://a/b", folder=tmp_path, transport=transport)
    assert len(urls) == asked
    assert list(tmp_path.iterdir()) == []


def test_a_download_has_a_largest_size(tmp_path):
    transport, _ = serve(httpx.Response(200, content=b"12345"))
    with pytest.raises(FetchFailed, match="more than 4 bytes"):
        fetch("https://a/b", folder=tmp_path, transport=transport, max_bytes=4)
    assert list(tmp_path.iterdir()) == []


def test_local_files_come_from_the_task_folders_only(tmp_path):
    inside, secret = tmp_path / "tasks", tmp_path / "secret.txt"
    inside.mkdir()
    secret.write_text("secret")
    (inside / "a b.txt").write_text("mine")
    (inside / "link").symlink_to(secret)
    (inside / "folder").mkdir()
    places = {"folder": tmp_path / "d", "sources": [tmp_path / "nowhere", inside]}
    assert fetch((inside / "a b.txt").as_uri(), **places).read_text() == "mine"
    assert local_file("a b.txt", places["sources"]).read_text() == "mine"
    for name in ("../secret.txt", str(secret), "link", "folder", "/etc/passwd", "none"):
        with pytest.raises(FetchFailed):
            local_file(name, places["sources"])
    (inside / "a b.txt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    with pytest.raises(FetchFailed, match="git lfs pull"):
        local_file("a b.txt", places["sources"])
    for url in (secret.as_uri(), "file:///etc/passwd", (inside / "x/../../secret.txt").as_uri()):
        with pytest.raises(FetchFailed):
            fetch(url, **places)


def test_each_attempt_has_its_own_copy(fakes, tmp_path):
    transport, asked = serve(httpx.Response(200, content=b"gold"))
    where = fakes.folder(tmp_path, transport=transport)
    path = asyncio.run(where.fetch("https://a/gold.xlsx", "gold.xlsx"))
    path.write_bytes(b"changed")
    assert (where.downloads.folder / Downloads.name("https://a/gold.xlsx")).read_bytes() == b"gold"
    assert asyncio.run(where.fetch("https://a/gold.xlsx", "gold.xlsx")).read_bytes() == b"gold"
    assert len(asked) == 1
