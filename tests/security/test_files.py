"""Task files, archives and stored files cannot reach out of their folder, nor fill the memory."""

from __future__ import annotations

import asyncio
import json

import pytest

from dartsim.core.errors import TaskFileError, TornFile
from dartsim.envs.tasks import load_suite
from dartsim.real.osworld.fetch import DesktopAddress, Downloads, TaskFolder, check_name, local_file
from dartsim.store.blobs import BlobStore

OUT = [
    "../x",
    "a/../../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a\\..\\..\\x",
    "C:\\x",
    "C:x",
    "\\\\server\\share",
    "a\0b",
    "//x",
    "./../x",
]


def suite(folder, listed):
    (folder / "examples").mkdir(parents=True, exist_ok=True)
    (folder / "list.json").write_text(json.dumps(listed))
    return folder


@pytest.mark.parametrize("name", [*OUT, "a/b", "%2e%2e", "~root", "a b"])
def test_lists_name_no_file_outside_of_the_suite(tmp_path, name):
    for listed in ({name: ["id"]}, {"os": [name]}):
        with pytest.raises(TaskFileError):
            load_suite(suite(tmp_path / "s", listed), "list")
    with pytest.raises(TaskFileError):
        load_suite(tmp_path / "s", name)


def test_links_in_a_suite_lead_nowhere_else(tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "id.json").write_text(json.dumps({"id": "id", "instruction": "x", "evaluator": {"func": "f"}}))
    folder = suite(tmp_path / "s", {"os": ["id"]})
    (folder / "examples" / "os").symlink_to(secret)
    with pytest.raises(TaskFileError, match="leads out of"):
        load_suite(folder, "list")
    (folder / "examples" / "os").unlink()
    (folder / "examples" / "os").mkdir()
    (folder / "examples" / "os" / "id.json").symlink_to(secret / "id.json")
    with pytest.raises(TaskFileError, match="leads out of"):
        load_suite(folder, "list")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"os": ["' + "a" * 5000 + '"]}', "{", "\\ud800"])
def test_lists_that_are_nonsense_are_told_so(tmp_path, text):
    folder = suite(tmp_path / "s", {})
    (folder / "list.json").write_text(text)
    with pytest.raises((TaskFileError, OSError)):
        load_suite(folder, "list")


@pytest.mark.parametrize("name", OUT)
def test_no_file_name_of_a_task_leads_out_of_its_folder(tmp_path, name):
    where = TaskFolder(
        tmp_path / "t", address=DesktopAddress(server_url="http://vm"), downloads=Downloads(tmp_path / "d")
    )
    for attempt in (check_name, where.inside):
        with pytest.raises(TaskFileError):
            attempt(name)
    for coroutine in (where.write(name, b"x"), where.fetch("https://a.org/b", name)):
        with pytest.raises(TaskFileError):
            asyncio.run(coroutine)
    assert not list(tmp_path.iterdir())


def test_a_link_left_in_the_folder_is_replaced_not_followed(tmp_path):
    where = TaskFolder(
        tmp_path / "t", address=DesktopAddress(server_url="http://vm"), downloads=Downloads(tmp_path / "d")
    )
    where.path.mkdir()
    (where.path / "real").write_text("mine")
    (where.path / "link").symlink_to(where.path / "real")
    asyncio.run(where.write("link", b"new"))
    assert (where.path / "real").read_text() == "mine"
    assert not (where.path / "link").is_symlink()
    (where.path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TaskFileError, match="links lead out"):
        asyncio.run(where.write("out", b"new"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link", "folder/../../secret"])
def test_local_files_of_a_task_come_from_its_sources(tmp_path, name):
    from dartsim.real.osworld.errors import FetchFailed

    (tmp_path / "secret").write_text("secret")
    (tmp_path / "s" / "folder").mkdir(parents=True)
    (tmp_path / "s" / "link").symlink_to(tmp_path / "secret")
    downloads = Downloads(tmp_path / "d", sources=[tmp_path / "s"])
    with pytest.raises(FetchFailed):
        local_file(name, downloads.sources)
    with pytest.raises(FetchFailed):
        asyncio.run(downloads.fetch(f"file://{tmp_path}/secret"))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a" * 64, "A" * 64 + ".png", "../" + "a" * 61, ""])
def test_files_of_a_store_or_a_pool_are_named_by_hashes_only(tmp_path, name):
    blobs = BlobStore(tmp_path)
    for use in (blobs.get, lambda name: blobs.remove([name])):
        with pytest.raises(TornFile, match="files are named by hashes"):
            use(name)
