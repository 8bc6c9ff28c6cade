"""Somebody else's run directory is data: every command is pointed at hostile ones, and touches nothing but the run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
import struct
import sys
import zlib
from pathlib import Path

import pytest

from dartsim.config import from_tree, load, merge, preset, to_toml
from dartsim.core.errors import ConfigError, TornFile
from dartsim.core.files import below, refuse_links
from dartsim.lab.bounds import bounds
from dartsim.observe.rundir import write_text
from dartsim.run.execute import execute
from dartsim.store.blobs import BlobStore
from dartsim.store.checkpoints import checkpoint_folder, checkpoint_folders, read_checkpoint

SMALL = {"rollout": {"num_envs": 2, "num_workers": 1}, "run": {"hours": 0.1, "max_segments": 1000}}
CODE = "import pathlib; pathlib.Path({mark!r}).touch()\n"
TEXT = "</script><img src=x onerror=alert(1)>[/b][link=file:///etc/passwd]\x1b[2J\x1b]0;owned\x07"


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def settings(run, tree):
    config = load(run / "config.toml")
    text = to_toml(from_tree(merge(config.model_dump(), tree)))
    (run / "config.toml").write_text(text)


def plug_in(run, mark, outside):
    """A module in the working directory and one in the run."""
    Path("evil.py").write_text(CODE.format(mark=str(mark)))
    (run / "evil.py").write_text(CODE.format(mark=str(mark)))
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("plugin_modules = []", 'plugin_modules = ["evil", "run.evil"]'))


def unknown_rule(run, mark, outside):
    plug_in(run, mark, outside)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('rule = "least_in_flight"', 'rule = "evil"'))


def environment(run, mark, outside):
    Path("evil.py").write_text(CODE.format(mark=str(mark)))
    text = (run / "config.toml").read_text().replace('source = "generated"', 'source = "gym"')
    (run / "config.toml").write_text(text.replace('env = "none"', 'env = "evil:Env"').replace('"none"', '"none"'))


def call(run, mark, outside):
    text = (run / "config.toml").read_text().replace('source = "generated"', 'source = "gym"')
    text = text.replace('env = "none"', 'env = "os:system"')
    (run / "config.toml").write_text(text.replace("[gym.arguments]", f'[gym.arguments]\ncommand = "touch {mark}"'))


def adapter(run, mark, outside):
    Path("evil.py").write_text(CODE.format(mark=str(mark)))
    text = (run / "config.toml").read_text().replace('wrapper = "none"', 'wrapper = "evil:wrap"')
    (run / "config.toml").write_text(text)


def links(run, mark, outside):
    for name in ("summary.json", "metrics.jsonl", "status.json", "profile.toml", "twin.toml"):
        (run / f"{name}.part").symlink_to(outside / "file")
    for name in ("metrics.jsonl", "status.json", "run.lock", "twin.toml", "run.db-wal"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside / "file")
    for name in ("screens", "checkpoints", "tensorboard", "successes", "model", "scores"):
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).symlink_to(outside / "folder")


def one_link(name):
    def make(run, mark, outside):
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside / ("folder" if name in ("screens", "checkpoints", "tensorboard") else "file"))

    make.__name__ = f"link_{name.replace('.', '_')}"
    return make


def pipes(run, mark, outside):
    for name in ("status.json", "config.toml.part", "timings.jsonl"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)


def paths(run, mark, outside):
    database = sqlite3.connect(run / "run.db")
    for number, name in enumerate((str(outside / "folder"), "../outside/folder", "..", ".", ""), 900):
        database.execute("INSERT INTO checkpoints VALUES (?, ?, 'x')", (number, name))
    names = [str(outside / "file"), f"../../outside/folder/{'a' * 64}.png"]
    turns = json.dumps([["WAIT", 0, 0, 0, 1, 1, [None] * 3, name, None] for name in names]).encode()
    turns = struct.pack("<II", zlib.crc32(turns), len(turns)) + turns
    database.execute("UPDATE trajectories SET turns = ?, state = 'eligible', num_turns = 2", (turns,))
    database.commit()
    database.close()


def texts(run, mark, outside):
    edit(run / "summary.json", lambda tree: tree.update(name=TEXT, preset=TEXT, endings={TEXT: 3}, verdict=TEXT))
    edit(run / "status.json", lambda tree: tree.update(name=TEXT, preset=TEXT, error=TEXT, state=TEXT))
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('name = "none"', f"name = {json.dumps(TEXT)}"))


def numbers(run, mark, outside):
    def huge(tree):
        tree.update({name: 1e308 for name, value in tree.items() if isinstance(value, float)})
        tree["simulated_hours"] = -1.0

    edit(run / "summary.json", huge)
    (run / "status.json").write_text((run / "status.json").read_text().replace("0.0", "1e400"))
    (run / "metrics.jsonl").write_text('{"update": 1' + "0" * 5000 + "}\n")


def file_of(name, data):
    def make(run, mark, outside):
        (run / name).write_bytes(data)

    make.__name__ = f"{name.replace('.', '_')}_{len(data)}"
    return make


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/dartsim-red-team-was-here",)


BOMB = pickle.dumps(Evil())
DEEP = b"[" * 100_000
WHOLE = (plug_in, unknown_rule, environment, call, adapter, links, pipes, paths, texts, numbers)
"""Every command is pointed at these, and those that read most at the others."""
HOSTILE = [
    *WHOLE,
    *map(one_link, ("screens", "checkpoints", "summary.json", "config.toml", "run.db", "status.json")),
    *(file_of(name, BOMB) for name in ("summary.json", "run.db", "config.toml", "segments.bin")),
    *(file_of(name, DEEP) for name in ("summary.json", "status.json", "config.toml", "metrics.jsonl")),
    *(file_of(name, b'{"a":' + b"9" * 6000 + b"}") for name in ("summary.json", "status.json")),
    *(file_of(name, b"{}") for name in ("summary.json", "status.json")),
    file_of("run.db", b""),
]
COMMANDS = [
    ("show", "RUN"),
    ("show", "RUN", "--json", "-"),
    ("show", "RUN", "--html", "page.html"),
    ("show", "RUN", "--gif", "attempt.gif", "--attempt", "1"),
    ("show", "RUN", "--osworld", "results"),
    ("show", "RUN", "--trace", "trace.json.gz"),
    ("eval", "RUN", "--rescore"),
    ("cluster", "RUN"),
    ("eval", "RUN"),
    ("eval", "RUN", "--keep-successes", "pool"),
    ("config", "RUN"),
    ("config", "RUN/config.toml"),
    ("config", "dart", "--on", "RUN"),
    ("check", "RUN"),
    ("run", "dart", "--on", "RUN/config.toml", "--hours", "0.02", "--out", "new"),
    ("compare", "RUN", "dart", "--hours", "0.02", "--seeds", "1", "--processes", "1"),
    ("run", "RUN"),
    ("run", "RUN", "--hours", "0.12"),
]
READING = [command for command in COMMANDS if command[2:3] in (("--html",), ("--osworld",), ("--hours",))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    execute(from_tree(merge(preset("dart"), SMALL)), folder, more_figures=bounds)
    return folder


def tree(folder):
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda made: made.__name__)
def test_no_command_runs_changes_or_shows_what_a_hostile_run_wants(
    hostile, finished, dartsim, tmp_path, monkeypatch, capsys
):
    work, outside, mark = tmp_path / "work", tmp_path / "outside", tmp_path / "mark"
    for folder in (
        work,
        outside,
        outside / "folder",
        outside / "folder" / "aa",
        outside / "folder" / "update-00000001",
    ):
        folder.mkdir()
    sentinel = b"the sentinel's own words"
    places = ("file", "folder/file", f"folder/aa/{'a' * 64}.png", "folder/update-00000001/file")
    for name in places:
        (outside / name).write_bytes(sentinel)
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before, pool = tree(outside), Path("/tmp/dartsim-red-team-was-here")
    pool.unlink(missing_ok=True)
    for command in COMMANDS if hostile in WHOLE else READING:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        os.chdir(work)
        shutil.copytree(finished, work / "run")
        hostile(work / "run", mark, outside)
        code = dartsim(*(word.replace("RUN", "run") for word in command))
        said = "".join(capsys.readouterr())
        assert code in (0, 1, 2, 18), command
        assert "Traceback" not in said, (command, said)
        assert "\x1b" not in said, command
        assert sentinel.decode() not in said, command
        assert not mark.exists(), command
        assert not pool.exists(), command
        assert tree(outside) == before, command
        assert not {"evil", "run.evil"} & sys.modules.keys(), command
        for page in work.rglob("*.html"):
            assert page.is_symlink() or sentinel not in page.read_bytes(), command


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "../x", "a/../../x", "link", "link/x", "a/link", "a\0b"])
def test_a_name_leads_to_nothing_outside_a_folder(tmp_path, name):
    run = tmp_path / "run"
    (run / "a").mkdir(parents=True)
    for link in (run / "link", run / "a" / "link"):
        link.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"not below|is a link"):
        below(run, name)
    with pytest.raises(ConfigError, match="only files and folders"):
        refuse_links(run)
    assert below(run, "a/b") == run / "a" / "b"


def test_what_is_written_replaces_links_and_follows_none(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    for name in ("page", "page.part"):
        (tmp_path / name).symlink_to(other)
    write_text(tmp_path / "page", "new")
    assert (other.read_text(), (tmp_path / "page").read_text()) == ("mine", "new")
    assert not (tmp_path / "page").is_symlink()


@pytest.mark.parametrize("name", ["/etc", "..", "../x", "", ".", "update-1", "update-00000001/..", "update-00000002"])
def test_a_checkpoint_has_a_checkpoints_name_and_is_no_link(tmp_path, name):
    root = tmp_path / "checkpoints"
    root.mkdir()
    (root / "update-00000001").mkdir()
    (root / "update-00000002").symlink_to(tmp_path)
    (root / "update-of-mine").mkdir()
    with pytest.raises(TornFile, match="has no checkpoint"):
        checkpoint_folder(root, name)
    assert checkpoint_folders(root) == [root / "update-00000001"] == [checkpoint_folder(root, "update-00000001")]
    (tmp_path / "link").symlink_to(root)
    assert checkpoint_folders(tmp_path / "link") == []
    (root / "update-00000001" / "manifest.json").write_text('{"update": 1, "files": {"/etc/hostname": {}}}')
    with pytest.raises(TornFile, match="not below"):
        read_checkpoint(root / "update-00000001")


def test_a_sweep_of_screenshots_removes_only_what_a_store_writes(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f"{'a' * 64}.png").write_text("mine")
    blobs = BlobStore(tmp_path / "screens")
    (blobs.folder / "aa").symlink_to(tmp_path / "other")
    (blobs.folder / "bb").mkdir()
    (blobs.folder / "bb" / "notes.txt").write_text("mine")
    (blobs.folder / "bb" / f"{'b' * 64}.png").write_text("unnamed")
    blobs.sweep(())
    with pytest.raises(TornFile, match="is a link"):
        blobs.remove([f"{'a' * 64}.png"])
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine", "mine"]
