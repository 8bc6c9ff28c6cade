import asyncio
import sqlite3
from contextlib import closing

import pytest

from dartsim.core.errors import EnvBroken, TaskFileError
from dartsim.real.osworld.chrome import write_history
from dartsim.real.osworld.errors import ActionUncertain, SetupFailed, VmBadReply, VmHung, VmLost, VmMissing, VmRefused
from dartsim.real.osworld.fetch import EMPTY_HISTORY_URL
from dartsim.real.osworld.replies import Executed
from dartsim.real.osworld.steps import REFUSED_STEPS, STEPS, run_steps


def step(kind, **parameters):
    return {"type": kind, "parameters": parameters}


def run(fakes, tmp_path, *steps, client=None, **folder):
    client = client or fakes.FakeClient()
    asyncio.run(run_steps(steps, client, fakes.folder(tmp_path, **folder)))
    return client.calls


@pytest.mark.parametrize(
    ("given", "calls"),
    [
        (step("launch", command=["app", "x y"]), [("launch", ["app", "x y"], False)]),
        (step("launch", command="app --new x"), [("launch", ["app", "--new", "x"], False)]),
        (step("launch", command="app --new x", shell=True), [("launch", "app --new x", True)]),
        (step("open", path="/home/user/a.xlsx"), [("open_file", "/home/user/a.xlsx")]),
        (step("activate_window", window_name="A", strict=True), [("activate_window", "A", True, False)]),
        (step("close_window", window_name="A", by_class=True), [("close_window", "A", False, True)]),
        (step("change_wallpaper", path="/a.png"), [("change_wallpaper", "/a.png")]),
        (step("command", command=["true"]), [("execute", ["true"], False)]),
        (step("execute", command="echo a", shell=True), [("execute", "echo a", True)]),
        (
            step("execute_with_verification", command=["app"], verification={"window_exists": "A"}, max_wait_time=3),
            [("execute_with_verification", ["app"], {"window_exists": "A"}, False, 3, 1.0)],
        ),
    ],
)
def test_each_step_asks_the_desktop(fakes, tmp_path, given, calls):
    assert run(fakes, tmp_path, given) == calls


def test_placeholders_are_filled(fakes, tmp_path):
    words = ["{CLIENT_PASSWORD}", "{SCREEN_WIDTH_HALF},{SCREEN_HEIGHT_HALF}", "{SCREEN_WIDTH}x{SCREEN_HEIGHT}"]
    calls = run(fakes, tmp_path, step("execute", command=words), width=1280, height=721, password="s3")
    assert calls == [("execute", ["s3", "640,360", "1280x721"], False)]


async def test_sleep_takes_its_time(fakes, tmp_path):
    loop = asyncio.get_running_loop()
    await run_steps([step("sleep", seconds=20)], fakes.FakeClient(), fakes.folder(tmp_path))
    assert loop.time() == 20.0


def test_output_is_kept(fakes, tmp_path):
    client = fakes.FakeClient(outputs={"ls": Executed("a\nb\n", "warning", 2)})
    run(fakes, tmp_path, step("execute", command=["ls"], stdout="out/list", stderr="errors"), client=client)
    assert (tmp_path / "attempt/out/list").read_text() == "a\nb\n"
    assert (tmp_path / "attempt/errors").read_text() == "warning"


async def test_until_repeats_until_one_condition_holds(fakes, tmp_path):
    outputs = {"probe": [Executed("", "", 1), Executed("not yet", "", 1), Executed("ready", "", 1)]}
    client = fakes.FakeClient(outputs=outputs)
    until = {"returncode": 0, "stdout": "ready"}
    await run_steps([step("execute", command=["probe"], until=until)], client, fakes.folder(tmp_path))
    assert len(client.calls) == 3
    assert asyncio.get_running_loop().time() == pytest.approx(0.6)


async def test_until_gives_up(fakes, tmp_path):
    client = fakes.FakeClient(outputs={"probe": Executed("no", "", 1)})
    with pytest.raises(SetupFailed, match="did not come to") as caught:
        await run_steps([step("execute", command="probe", until={"stdout": "yes"})], client, fakes.folder(tmp_path))
    assert caught.value.cause == "setup_until_never_met"


async def test_until_bears_four_failures(fakes, tmp_path):
    outputs = {"probe": [*[VmBadReply("busy", status=500)] * 4, Executed("", "", 0)]}
    client = fakes.FakeClient(outputs=outputs)
    await run_steps([step("execute", command="probe", until={"returncode": 0})], client, fakes.folder(tmp_path))
    assert len(client.calls) == 5


def test_files_are_uploaded(fakes, tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/gold.txt").write_bytes(b"gold")
    url = (tmp_path / "tasks/gold.txt").as_uri()
    calls = run(
        fakes,
        tmp_path,
        step("download", files=[{"url": url, "path": "/home/user/a.txt"}]),
        step("upload_file", files=[{"local_path": "gold.txt", "path": "/home/user/b.txt"}]),
        sources=[tmp_path / "tasks"],
    )
    assert calls == [("upload", "/home/user/a.txt", b"gold"), ("upload", "/home/user/b.txt", b"gold")]


@pytest.mark.parametrize("fault", [VmBadReply("no such program", status=500), VmMissing("no file", status=404)])
def test_what_the_desktop_refuses_fails_the_set_up(fakes, tmp_path, fault):
    client = fakes.FakeClient(fails={"launch": fault})
    with pytest.raises(SetupFailed, match=r"step 2 of 2 \(launch\): no ") as caught:
        run(fakes, tmp_path, step("sleep", seconds=0), step("launch", command="x"), client=client)
    assert caught.value.cause == "setup_failed"
    assert isinstance(caught.value, EnvBroken)


@pytest.mark.parametrize("fault", [VmHung("hung"), VmRefused("refused"), VmLost("lost"), ActionUncertain("sent")])
def test_a_desktop_that_fails_keeps_its_cause(fakes, tmp_path, fault):
    client = fakes.FakeClient(fails={"launch": fault})
    with pytest.raises(type(fault)):
        run(fakes, tmp_path, step("launch", command="x"), client=client)


def test_a_return_code_is_no_failure(fakes, tmp_path):
    client = fakes.FakeClient(outputs={"pkill x": Executed("", "", 1)})
    run(fakes, tmp_path, step("execute", command=["pkill", "x"]), client=client)


@pytest.mark.parametrize(
    ("bad", "key"),
    [
        ({"type": "lunch", "parameters": {}}, "lunch"),
        ({"type": "launch"}, "command"),
        (step("launch", command=[]), "command"),
        (step("launch", command=[1]), "command"),
        (step("launch", command="x", nice=1), "nice"),
        (step("sleep", seconds=-1), "seconds"),
        (step("sleep", seconds=float("nan")), "seconds"),
        (step("sleep", seconds=1e9), "seconds"),
        (step("sleep", seconds=True), "seconds"),
        (step("open", path=""), "path"),
        (step("execute", command="x", stdout="../../etc/passwd"), "passwd"),
        (step("execute", command="x", until={"exit": 0}), "until"),
        (step("download", files="x"), "files"),
        (step("download", files=[{"url": "https://a/b"}]), "path"),
        (step("download", files=[{"url": "ftp://a/b", "path": "/x"}]), "ftp"),
        (step("download", files=[{"url": "file://host/b", "path": "/x"}]), "host"),
        (step("download", files=[{"url": "http://[bad/b", "path": "/x"}]), "URL"),
        (step("download", files=[{"url": "https://a/b", "path": "/x/"}]), "path"),
        (step("chrome_open_tabs", urls_to_open="http://a"), "URLs"),
    ],
)
def test_bad_steps_are_refused_before_any_work(fakes, tmp_path, bad, key):
    client = fakes.FakeClient()
    with pytest.raises(TaskFileError, match=key):
        run(fakes, tmp_path, step("launch", command="first"), bad, client=client)
    assert client.calls == []


def test_every_step_of_osworld_is_carried_out_or_refused():
    # The methods of SetupController in desktop-env 1.0.2.
    osworld = """activate_window act change_wallpaper chrome_close_tabs chrome_open_tabs close_window command download
    execute execute_with_verification googledrive launch login open proxy replay sleep tidy_desktop
    update_browse_history upload_file"""
    assert set(osworld.split()) == set(STEPS) | set(REFUSED_STEPS)


def test_tabs_need_a_debugging_port(fakes, tmp_path):
    with pytest.raises(SetupFailed) as caught:
        run(fakes, tmp_path, step("chrome_open_tabs", urls_to_open=["http://a"]))
    assert caught.value.cause == "setup_tabs_failed"


def empty_history(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE urls (id INTEGER PRIMARY KEY, url, title, visit_count, typed_count, last_visit_time, hidden)"
        )
        database.execute(
            "CREATE TABLE visits (id INTEGER PRIMARY KEY, url, visit_time, from_visit, transition, segment_id,"
            " visit_duration)"
        )


VISIT = {"url": "https://a/", "title": "A", "visit_time_from_now_in_seconds": 60}


def test_visits_are_dated_from_1601(tmp_path):
    empty_history(tmp_path / "empty")
    write_history(tmp_path / "empty", tmp_path / "full", [VISIT], now_seconds=60.5)
    with closing(sqlite3.connect(tmp_path / "full")) as database:
        rows = database.execute("SELECT u.url, title, last_visit_time, v.url, visit_time FROM urls u, visits v")
        assert rows.fetchall() == [("https://a/", "A", 11_644_473_600_500_000, 1, 11_644_473_600_500_000)]


def test_the_browse_history_is_put_into_the_desktop(fakes, tmp_path):
    (tmp_path / "downloads").mkdir()
    where = fakes.folder(tmp_path)
    empty_history(tmp_path / "downloads" / where.downloads.name(EMPTY_HISTORY_URL))
    ask = "python3 -c import os; print(os.path.expanduser('~/.config/google-chrome/Default/History'))"
    client = fakes.FakeClient(outputs={ask: Executed("Xlib warns\n/home/u/History\n", "", 0)})
    run(fakes, tmp_path, step("update_browse_history", history=[VISIT]), client=client)
    assert client.files["/home/u/History"].startswith(b"SQLite format 3")
    assert client.calls[-1][1] == "sudo -n chown --reference=/home/u /home/u/History"
    visit = {"url": "x", "visit_time_from_now_in_seconds": 1}
    with pytest.raises(SetupFailed, match="title"):
        run(fakes, tmp_path, step("update_browse_history", history=[visit]), client=client)
