import asyncio
import zipfile
from dataclasses import replace

import pytest

from dartsim.core.errors import TaskFileError
from dartsim.real.osworld.errors import FetchFailed, VmBadReply, VmLost
from dartsim.real.osworld.getters import GETTERS, check_getter
from dartsim.real.osworld.replies import Executed
from dartsim.real.scoring import FileInput, ScoreFault


def given(tmp_path, name):
    return FileInput(tmp_path / "attempt" / name, name)


def get(fakes, tmp_path, kind, client=None, **config):
    where = fakes.folder(tmp_path, sources=[tmp_path / "tasks"])
    return asyncio.run(GETTERS[kind](client or fakes.FakeClient(), where, {"type": kind, **config}))


def test_a_file_of_the_desktop(fakes, tmp_path):
    client = fakes.FakeClient(files={"/a.txt": b"text"})
    path = get(fakes, tmp_path, "vm_file", client, path="/a.txt", dest="a.txt")
    assert path == given(tmp_path, "a.txt")
    assert (tmp_path / "attempt/a.txt").read_bytes() == b"text"


def test_a_file_that_is_gone_is_none_and_leaves_no_old_one(fakes, tmp_path):
    client = fakes.FakeClient(files={"/a.txt": b"text"})
    get(fakes, tmp_path, "vm_file", client, path="/a.txt", dest="a.txt")
    del client.files["/a.txt"]
    assert get(fakes, tmp_path, "vm_file", client, path="/a.txt", dest="a.txt") is None
    assert not (tmp_path / "attempt/a.txt").exists()


def test_several_files_and_those_that_are_given(fakes, tmp_path):
    client = fakes.FakeClient(files={"/a": b"1", "/c": b"3"})
    config = {"path": ["/a", "/b", "/c"], "dest": ["a", "b", "c"], "multi": True}
    # Metrics of spreadsheets read the text of a sheet beside its book.
    alone = replace(given(tmp_path, "a"), beside=(given(tmp_path, "c"),))
    assert get(fakes, tmp_path, "vm_file", client, **config) == alone
    several = [given(tmp_path, "a"), None, given(tmp_path, "c")]
    assert get(fakes, tmp_path, "vm_file", client, gives=[0, 1, 2], **config) == several


def test_a_file_may_be_named_after_the_time(fakes, tmp_path):
    client = fakes.FakeClient(files={"/a.txt": b"text"})
    config = {"path": "/a.txt", "dest": "sub/a.txt", "time_suffix": True, "time_format": "T%%"}
    assert get(fakes, tmp_path, "vm_file", client, **config) == given(tmp_path, "sub/a_T%.txt")


def test_gold_comes_from_the_web_or_the_task_folder(fakes, tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/gold.txt").write_text("gold")
    url = (tmp_path / "tasks/gold.txt").as_uri()
    path = get(fakes, tmp_path, "cloud_file", path=url, dest="mine.txt")
    assert path == given(tmp_path, "mine.txt")
    with pytest.raises(FetchFailed):
        get(fakes, tmp_path, "cloud_file", path="file:///etc/passwd", dest="other.txt")


def test_a_file_that_a_step_has_kept(fakes, tmp_path):
    with pytest.raises(ScoreFault, match="no step has made it"):
        get(fakes, tmp_path, "cache_file", path="list")
    (tmp_path / "attempt").mkdir()
    (tmp_path / "attempt/list").touch()
    assert get(fakes, tmp_path, "cache_file", path="list") == given(tmp_path, "list")


def test_commands(fakes, tmp_path):
    client = fakes.FakeClient(outputs={"ls": Executed("a\n", "warning", 1)})
    assert get(fakes, tmp_path, "vm_command_line", client, command=["ls"]) == "a\n"
    assert get(fakes, tmp_path, "vm_command_error", client, command="ls", shell=True) == "warning"
    assert client.calls[-1] == ("execute", "ls", True)


def test_a_program_that_is_not_there_is_the_agents_doing_and_a_time_limit_is_not(fakes, tmp_path):
    gone = VmBadReply("x", status=500, body="[Errno 2] No such file or directory: 'x'")
    assert get(fakes, tmp_path, "vm_command_line", fakes.FakeClient(outputs={"x": gone}), command=["x"]) is None
    slow = VmBadReply("x", status=500, body="timed out after 120 seconds")
    with pytest.raises(VmBadReply):
        get(fakes, tmp_path, "vm_command_line", fakes.FakeClient(outputs={"x": slow}), command=["x"])


def test_folders(fakes, tmp_path):
    assert get(fakes, tmp_path, "list_directory", path="/there")["children"][0]["name"] == "a.jpg"
    assert get(fakes, tmp_path, "list_directory", path="/gone") is None
    with pytest.raises(VmLost):
        get(fakes, tmp_path, "list_directory", fakes.FakeClient(fails={"list_directory": VmLost("x")}), path="/there")


def test_an_archive_of_the_desktop_is_not_unpacked(fakes, tmp_path):
    # A link in an archive, or a name that leads out of it, has nowhere to lead to.
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../../evil.txt", "x")
    client = fakes.FakeClient(files={"/evil.zip": (tmp_path / "evil.zip").read_bytes()})
    get(fakes, tmp_path, "vm_file", client, path="/evil.zip", dest="evil.zip")
    assert [path.name for path in (tmp_path / "attempt").iterdir()] == ["evil.zip"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "googledrive_file"}, "googledrive_file"),
        ({"type": "vm_file", "path": "/a", "dest": "../a"}, "'../a'"),
        ({"type": "vm_file", "path": ["/a"], "dest": ["/etc/a"], "multi": True}, "'/etc/a'"),
        ({"type": "cache_file", "path": "../../secret"}, "'../../secret'"),
        ({"type": "cloud_file", "path": "gopher://a/b", "dest": "a"}, "gopher://a/b"),
        ({"type": "history", "dest": "a/../../b"}, "'a/../../b'"),
    ],
)
def test_bad_getters_are_refused(config, message):
    with pytest.raises(TaskFileError, match=message):
        check_getter(config)
