import asyncio
import zipfile

import pytest

from dartsim.core.errors import TaskFileError
from dartsim.real.osworld.errors import FetchFailed, Unscored, VmBadReply, VmLost, VmMissing
from dartsim.real.osworld.getters import KNOWN, NATIVE, check_getter
from dartsim.real.osworld.getters.apps import VIDEO_TYPES
from dartsim.real.osworld.replies import Executed

TREE = """<desktop-frame xmlns:st="https://accessibility.ubuntu.example.org/ns/state">
<application name="a"><frame name="Behind" st:active="false"/><frame name="Front" st:active="true"/></application>
</desktop-frame>"""


def get(fakes, tmp_path, kind, client=None, **config):
    where = fakes.folder(tmp_path, sources=[tmp_path / "tasks"])
    return asyncio.run(NATIVE[kind](client or fakes.FakeClient(), where, {"type": kind, **config}))


def test_a_file_of_the_desktop(fakes, tmp_path):
    client = fakes.FakeClient(files={"/a.txt": b"text"})
    path = get(fakes, tmp_path, "vm_file", client, path="/a.txt", dest="a.txt")
    assert path == str(tmp_path / "attempt/a.txt")
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
    folder = str(tmp_path / "attempt")
    assert get(fakes, tmp_path, "vm_file", client, **config) == f"{folder}/a"
    assert get(fakes, tmp_path, "vm_file", client, gives=[0, 1, 2], **config) == [f"{folder}/a", None, f"{folder}/c"]


def test_a_file_may_be_named_after_the_time(fakes, tmp_path):
    client = fakes.FakeClient(files={"/a.txt": b"text"})
    config = {"path": "/a.txt", "dest": "sub/a.txt", "time_suffix": True, "time_format": "T%%"}
    assert get(fakes, tmp_path, "vm_file", client, **config) == str(tmp_path / "attempt/sub/a_T%.txt")


def test_gold_comes_from_the_web_or_the_task_folder(fakes, tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/gold.txt").write_text("gold")
    url = (tmp_path / "tasks/gold.txt").as_uri()
    path = get(fakes, tmp_path, "cloud_file", path=url, dest="mine.txt")
    assert path == str(tmp_path / "attempt/mine.txt")
    with pytest.raises(FetchFailed):
        get(fakes, tmp_path, "cloud_file", path="file:///etc/passwd", dest="other.txt")


def test_a_file_that_a_step_has_kept(fakes, tmp_path):
    with pytest.raises(Unscored, match="no step has made it"):
        get(fakes, tmp_path, "cache_file", path="list")
    (tmp_path / "attempt").mkdir()
    (tmp_path / "attempt/list").touch()
    assert get(fakes, tmp_path, "cache_file", path="list") == str(tmp_path / "attempt/list")


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


def test_sizes_and_texts(fakes, tmp_path):
    client = fakes.FakeClient(tree=TREE)
    client.windows["vlc"] = (640, 480)
    client.terminal_text = "$ "
    assert get(fakes, tmp_path, "vm_screen_size", client) == {"width": 1920, "height": 1080}
    assert get(fakes, tmp_path, "vm_window_size", client, app_class_name="vlc") == {"width": 640, "height": 480}
    assert get(fakes, tmp_path, "vm_window_size", client, app_class_name="gimp") is None
    assert get(fakes, tmp_path, "vm_terminal_output", client) == "$ "
    assert get(fakes, tmp_path, "accessibility_tree", client) == TREE
    assert get(fakes, tmp_path, "active_window", client) == "Front"
    assert get(fakes, tmp_path, "active_window", fakes.FakeClient()) is None
    assert get(fakes, tmp_path, "rule", client, rules={"expected": 1}) == {"expected": 1}
    assert get(fakes, tmp_path, "time_diff_range", client, diff_range_in_minutes="5") == "5"


def test_folders(fakes, tmp_path):
    assert get(fakes, tmp_path, "list_directory", path="/there")["children"][0]["name"] == "a.jpg"
    assert get(fakes, tmp_path, "list_directory", path="/gone") is None
    with pytest.raises(VmLost):
        get(fakes, tmp_path, "list_directory", fakes.FakeClient(fails={"list_directory": VmLost("x")}), path="/there")


def test_the_wallpaper_may_be_missing(fakes, tmp_path):
    get(fakes, tmp_path, "vm_wallpaper", dest="paper.png")
    assert (tmp_path / "attempt/paper.png").read_bytes() == b"picture"
    client = fakes.FakeClient(fails={"wallpaper": VmMissing("none", status=404)})
    get(fakes, tmp_path, "vm_wallpaper", client, dest="paper.png")
    assert (tmp_path / "attempt/paper.png").read_bytes() == b""


def test_settings_of_applications(fakes, tmp_path):
    files = {"~/.config/vlc/vlcrc": b"x=1", "~/.config/GIMP/2.10/gimprc": b"", "/v.json": b"{}"}
    client = fakes.FakeClient(files=files)
    assert get(fakes, tmp_path, "vlc_config", client, dest="vlcrc") == str(tmp_path / "attempt/vlcrc")
    assert get(fakes, tmp_path, "gimp_config_file", client, file_name="gimprc", dest="g") is None
    assert get(fakes, tmp_path, "gimp_config_file", client, file_name="none", dest="g") is None


def test_vscode_writes_what_is_asked_for(fakes, tmp_path, monkeypatch):
    monkeypatch.setattr("dartsim.real.osworld.getters.apps.VSCODE_SECONDS", 0.0)
    client = fakes.FakeClient(files={"/v.json": b"{}"})
    config = {"path": "/v.json", "dest": "v.json", "vscode_extension_command": "Say 'it'"}
    assert get(fakes, tmp_path, "vscode_config", client, **config) == str(tmp_path / "attempt/v.json")
    code = client.calls[0][1][2]
    compile(code, "typed", "exec")
    assert "typewrite(\"Say 'it'\")" in code


def test_the_default_player_is_the_most_frequent_one(fakes, tmp_path):
    asks = [f"xdg-mime query default video/{kind}" for kind in VIDEO_TYPES]
    outputs = {ask: Executed("vlc.desktop\n" if number else "mpv.desktop\n", "", 0) for number, ask in enumerate(asks)}
    client = fakes.FakeClient(outputs=outputs)
    assert get(fakes, tmp_path, "default_video_player", client) == "vlc.desktop\n"
    assert get(fakes, tmp_path, "default_video_player") == "unknown"


def test_vlc_that_was_closed_plays_nothing(fakes, tmp_path):
    pytest.importorskip("httpx")
    with pytest.raises(Unscored, match="publishes no web interface"):
        get(fakes, tmp_path, "vlc_playing_info", dest="status.xml")

    async def ask():
        closed = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = closed.sockets[0].getsockname()[1]
        closed.close()
        await closed.wait_closed()
        where = fakes.folder(tmp_path, vlc_url=f"http://127.0.0.1:{port}")
        return await NATIVE["vlc_playing_info"](fakes.FakeClient(), where, {"dest": "status.xml"})

    assert asyncio.run(ask()) is None


def test_vlc_says_what_it_plays(fakes, tmp_path):
    pytest.importorskip("httpx")
    asked = []

    async def vlc(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n<root/>")
        await writer.drain()
        writer.close()

    async def ask():
        server = await asyncio.start_server(vlc, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        where = fakes.folder(tmp_path, vlc_url=url, vlc_password="pw")
        async with server:
            return await NATIVE["vlc_playing_info"](fakes.FakeClient(), where, {"dest": "status.xml"})

    assert asyncio.run(ask()) == str(tmp_path / "attempt/status.xml")
    assert "GET /requests/status.xml" in asked[0]
    assert "Authorization: Basic OnB3" in asked[0]  # ":pw"


def test_the_last_row_of_a_sheet(fakes, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["name", "n"], ["a", 1.0], ["b", 2.5], [None, None]):
        book.active.append(row)
    book.save(tmp_path / "book.xlsx")
    client = fakes.FakeClient(files={"/x/book.xlsx": (tmp_path / "book.xlsx").read_bytes()})
    config = {"path": "/x/book.xlsx", "file_type": "xlsx", "file_content": "last_row"}
    assert get(fakes, tmp_path, "content_from_vm_file", client, **config) == ["b", "2.5"]
    assert get(fakes, tmp_path, "content_from_vm_file", **config) is None
    with pytest.raises(Unscored, match="wanted the last_row of an xlsx"):
        get(fakes, tmp_path, "content_from_vm_file", client, **config | {"file_content": "first_row"})


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
        ({"type": "nothing"}, "the getter 'nothing' is unknown; known are accessibility_tree, "),
        ({"type": "googledrive_file"}, "reads the files of a Google account; leave the task out"),
        ({"type": "vm_file", "path": "/a", "dest": "../a"}, "found the file name '../a'"),
        ({"type": "vm_file", "path": ["/a"], "dest": ["/etc/a"], "multi": True}, "found the file name '/etc/a'"),
        ({"type": "cache_file", "path": "../../secret"}, "found the file name '../../secret'"),
        ({"type": "cloud_file", "path": "gopher://a/b", "dest": "a"}, "found the URL 'gopher://a/b'"),
        ({"type": "history", "dest": "a/../../b"}, "found the file name 'a/../../b'"),
    ],
)
def test_bad_getters_are_refused(config, message):
    with pytest.raises(TaskFileError, match=message):
        check_getter(config)


def test_all_getters_of_osworld_are_known():
    # 54 in desktop-env 1.0.2, 42 of which tasks use; one more that later tasks use; one of our own.
    assert len(KNOWN) == 56
    assert set(NATIVE) - {"active_window"} < KNOWN
