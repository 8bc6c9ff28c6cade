"""The documents of a page, the server that serves them, and a directory that a stranger has prepared."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.cli.live import site_of
from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.observe.idle import attribute
from dartsim.observe.page.documents import levels
from dartsim.observe.page.file import page_file, site_documents
from dartsim.observe.page.runs import differences
from dartsim.observe.page.server import PageServer
from dartsim.observe.recording import (
    ATTEMPTS,
    SEGMENTS,
    STATES,
    read_attempts,
    read_segments,
    read_state_rows,
    with_open_stays,
)
from dartsim.observe.rundir import CONFIG, STATUS, SUMMARY, lock_run, read_run
from dartsim.observe.states import POPULATIONS
from dartsim.observe.window import window_of
from dartsim.run.execute import execute
from dartsim.run.resume import resumable
from dartsim.run.watch import Watch
from tests.observe.conftest import HOSTILE, SCREENS


def document(folder, *parts):
    return site_of([folder], folder.parent).get([folder.name, *parts])


def test_levels_chunks_and_attempts_tell_of_the_same_time(folder):
    lanes, segments = document(folder, "lanes"), read_segments(folder / SEGMENTS, until=1e9)
    for (name, info), own, part in zip(POPULATIONS.items(), segments, lanes["populations"], strict=True):
        spent = [0.0] * len(info.states)
        for _, state, start, end in own:
            spent[state] += end - start
        whole = sum(spent)
        assert part["size"] == {"desktops": 16, "engines": 2, "trainer": 1}[name]
        for level in part["levels"]:
            for state, seconds in enumerate(spent):
                mean = sum(row[state] for row in level["shares"]) / len(level["shares"])
                assert mean == pytest.approx(seconds / whole, abs=2e-3)
            assert all(sum(row) == pytest.approx(1.0, abs=1e-3) for row in level["shares"])
    ended = read_attempts(folder / ATTEMPTS)
    found = set()
    for part in lanes["chunks"]:
        stays = document(folder, f"lanes/{part['id']}")["populations"]["desktops"]
        for member, start, end, attempt in zip(
            *(stays[key] for key in ("member", "start", "end", "attempt")), strict=True
        ):
            if attempt is not None:
                own = ended[attempt].columns
                assert (own.slot, own.started < end, start < own.finished) == (member, True, True)
                found.add(attempt)
    assert found == {attempt for attempt, row in ended.items() if row.columns.slot is not None}


def test_stays_of_a_running_run_are_counted_once_however_far_apart_its_files_were_written(folder):
    segments = read_segments(folder / SEGMENTS, until=1e9)
    end = max(own["end"].max() for own in segments)
    for written, known in ((0.5, 1.0), (1.0, 0.5), (0.7, 0.7)):  # of the status, of the segments
        kept = [own[own["end"] <= known * end] for own in segments]
        present = []
        for own in segments:
            going = own[(own["start"] <= written * end) & (own["end"] > written * end)].tolist()
            present.append({member: (state, round(start, 3)) for member, state, start, _ in going})
        found = with_open_stays(kept, present, max(written, known) * end)
        assert sum(map(len, found)) >= sum(map(len, kept))
        for own in found:
            for member in set(own["component"].tolist()):
                stays = sorted(own[own["component"] == member][["start", "end"]].tolist())
                assert all(after[0] >= before[1] - 2e-3 for before, after in pairwise(stays))
        window = window_of(found)
        for population in attribute(window)["populations"].values():
            spent = sum(population["seconds"].values())
            assert spent == pytest.approx(population["size"] * (window.end - window.start), rel=1e-3)


def test_attempts_add_up_to_what_the_run_counted_and_turns_have_their_times(folder):
    attempts, now = document(folder, "attempts"), document(folder, "now")
    counts = now["counts"]
    assert len(attempts["attempt"]) == attempts["total"] == counts["trajectories"]
    assert attempts["state"].count("trained") == counts["trained_trajectories"] > 0
    for name, number in counts.items():
        if name.startswith("dropped/"):
            assert attempts["reason"].count(name.removeprefix("dropped/")) == number
    trained = [n for n, state in zip(attempts["attempt"], attempts["state"], strict=True) if state == "trained"]
    one = document(folder, f"attempt/{trained[-1]}")
    assert len(one["turns"]) == one["num_turns"]
    spent = sum(turn["model_seconds"] + turn["desktop_seconds"] for turn in one["turns"])
    assert 0.0 < spent <= one["finished"] - one["started"]
    assert all(turn["kept"] and turn["advantage"] is not None for turn in one["turns"])
    assert now["state"] == "finished"
    sizes = {name: sum(w["count"] for w in now["waiting"] if w["population"] == name) for name in POPULATIONS}
    assert sizes == {"desktops": 16, "engines": 2, "trainer": 1}


def test_a_resumed_run_shows_nothing_of_its_earlier_end_until_it_ends_again(copied):
    assert document(copied, "now")["figures"]
    with lock_run(copied), Watch(load("dart"), copied):
        going = (copied / STATUS).read_bytes()
        now, (row,) = document(copied, "now"), site_of([copied], copied.parent).get(["runs"])
        assert (now["state"], now["verdict"], now["figures"], row["figures"]) == ("starting", None, {}, {})
    (copied / STATUS).write_bytes(going)
    now = document(copied, "now")
    assert (now["state"], now["verdict"], now["figures"]) == ("crashed", None, {})


@given(st.lists(st.tuples(st.floats(0.01, 50.0), st.integers(0, 3)), min_size=2, max_size=60))
def test_levels_add_up_to_the_time_in_each_state(steps):
    rows = [(0.0, 0.0, 0.0, 0.0, 0.0)]
    for seconds, state in steps:
        last = rows[-1]
        rows.append((last[0] + seconds, *(last[1 + n] + seconds * 3.0 * (n == state) for n in range(4))))
    found = levels(rows, slice(1, 5))
    assert all(coarse["seconds"] == pytest.approx(4 * fine["seconds"]) for coarse, fine in pairwise(found))
    for level in found:
        for state in range(4):
            spent = sum(row[state] for row in level["shares"]) * level["seconds"] * 3.0
            assert spent == pytest.approx(rows[-1][1 + state], rel=1e-3, abs=1e-3 * rows[-1][0])


def test_states_cover_the_whole_run_in_small_steps(folder):
    rows = read_state_rows(folder / STATES)
    assert len(rows) > 1000
    assert rows[-1][0] == pytest.approx(document(folder, "now")["run_seconds"], abs=1.0)
    for row in rows:
        assert sum(row[1:15]) == pytest.approx(16 * row[0])


@contextmanager
def served(*folders, **options):
    with closing(PageServer(site_of(folders, folders[0].parent), **options)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.closing = True
            server.shutdown()
            thread.join()


def ask(server, path, **headers):
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    with closing(connection):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers=names)
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.headers


def test_the_server_answers_its_own_page_only(folder):
    with served(folder) as server:
        status, page, headers = ask(server, "/")
        assert (status, page.decode()) == (200, page_file())
        assert b"script-src 'sha256-" in page
        assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert json.loads(ask(server, "/api/a%20run/now")[1])["state"] == "finished"
        for name, value in (
            ("Host", "evil.example"),
            ("Origin", "http://evil.example"),
            ("Sec-Fetch-Site", "cross-site"),
        ):
            assert ask(server, "/api/runs", **{name.replace("-", "_"): value})[0] == 403
        for path in (
            "/../server.py",
            "/%2e%2e/server.py",
            "/api/..%2F..%2Fetc/now",
            "/api/a%20run/screen/..%2Frun.db",
            "/api/",
        ):
            assert ask(server, path)[0] == 404, path


def test_ten_viewers_have_a_document_computed_and_encoded_once(folder, monkeypatch):
    with served(folder) as server, ThreadPoolExecutor(10) as pool:
        get, got = server.site.get, []
        monkeypatch.setattr(server.site, "get", lambda parts: (got.append(parts), get(parts))[1])
        replies = list(pool.map(lambda _: ask(server, "/api/a%20run/lanes"), range(10)))
    assert {(status, data) for status, data, _ in replies} == {(200, replies[0][1])}
    assert len(got) == 1


def test_another_address_needs_the_token(folder):
    with pytest.raises(ValueError, match="token"):
        PageServer(site_of([folder], folder.parent), host="0.0.0.0")
    with served(folder, token="secret") as server:
        assert ask(server, "/api/runs")[0] == 401
        assert ask(server, "/?token=wrong")[0] == 401
        status, _, headers = ask(server, "/?token=secret")
        assert (status, headers["Location"]) == (303, "/")
        assert ask(server, "/api/runs", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200


def test_a_run_in_memory_and_one_that_starts_have_documents(tmp_path):
    changes = ["run.hours=0.1", "rollout.num_envs=8", "rollout.num_workers=1", 'curation.store="memory"']
    execute(load("dart", overrides=changes), tmp_path / "memory")
    attempts = document(tmp_path / "memory", "attempts")
    assert attempts["total"] > 0
    one = document(tmp_path / "memory", f"attempt/{attempts['attempt'][0]}")
    assert (one["turns"], bool(one["turns_missing"])) == ([], True)
    with lock_run(tmp_path / "new"), Watch(load("dart"), tmp_path / "new"):
        assert document(tmp_path / "new", "now")["state"] == "starting"
        for name in ("series", "lanes", "attempts"):
            assert document(tmp_path / "new", name)


def test_a_folder_of_another_format_is_refused_in_one_sentence(copied, folder, tmp_path):
    for name in (STATUS, SUMMARY):
        (copied / name).write_text(json.dumps(json.loads((copied / name).read_text()) | {"format": 999}))
    with (copied / CONFIG).open("a") as file:
        file.write("[gone]\nsetting = 1\n")
    refused = "has format 999, and this dartsim reads format"
    readers = [lambda: read_run(copied), lambda: resumable(copied)]
    readers += [partial(document, copied, name) for name in ("now", "series", "lanes", "attempts")]
    for read in readers:
        with pytest.raises(ConfigError, match=refused):
            read()
    site = site_of([copied, folder], tmp_path)
    other, good = site.get(["runs"])
    assert (other["state"], refused in other["error"], good["state"]) == ("unreadable", True, "finished")
    held = site_documents(site, turns=False)
    ids = [quote(row["id"], safe="") for row in (other, good)]
    assert refused in held[f"{ids[0]}/now"]["error"]
    assert held[f"{ids[1]}/now"]["state"] == "finished"


def test_the_page_beside_a_run_stays_until_it_is_closed(tmp_path):
    command = [sys.executable, "-m", "dartsim", "run", "coupled", "--hours", "0.2", "--show", "--out", "run"]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        while not ("its page stays until Ctrl-C" in said and "page: http" in said):
            line = run.stderr.readline()
            assert line, said
            said += line
        port = int(re.search(r"page: http://127\.0\.0\.1:(\d+)/", said)[1])
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/api/run/now")
            assert json.loads(connection.getresponse().read())["state"] == "failed"  # it was too short to train
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 18
    finally:
        run.kill()
        run.communicate()


def test_a_hostile_directory_is_text_or_refused(hostile):
    with served(hostile) as server:
        now = ask(server, "/api/run/now")
        assert (now[0], json.loads(now[1])["name"], now[2]["Content-Type"]) == (200, HOSTILE, "application/json")
        assert ask(server, "/api/run/attempts")[0] == 200
        turns = json.loads(ask(server, "/api/run/attempt/1")[1])
        assert (turns["turns"], bool(turns["turns_missing"])) == ([], True)
        for picture in SCREENS:
            status, data, _ = ask(server, f"/api/run/screen/{picture}.png")
            assert (status, list(json.loads(data))) == (500, ["error"])
    page = page_file(site_documents(site_of([hostile], hostile.parent)))
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>") == 2
    for name, content in (
        ("run.db", b"no database"),
        (STATES, b"x" * 1000),
        (SEGMENTS, b"x" * 1000),
        ("metrics.jsonl", b"["),
    ):
        (hostile / name).write_bytes(content)
    with served(hostile) as server:
        for name in ("now", "series", "lanes", "attempts", "attempt/1"):
            status, data, _ = ask(server, f"/api/run/{name}")
            assert status in (200, 500)
            assert status == 200 or list(json.loads(data)) == ["error"]


def test_runs_tell_only_what_differs():
    one = {"a": {"b": 1, "c": [1, 2]}, "d": "x"}
    two = {"a": {"b": 2, "c": [1, 2]}, "d": "x", "e": {}}
    assert differences([one, two]) == [("a.b", ["1", "2"]), ("e", ["–", "{}"])]
    assert differences([one, one]) == []
