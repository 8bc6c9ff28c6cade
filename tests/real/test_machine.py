"""The facts recorded beside every figure."""

import json
import platform
import subprocess
from pathlib import Path

import psutil

from dartsim.real.machine import checkout_state, cpu_model, describe_machine


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_describes_this_machine_as_json():
    facts = describe_machine()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["memory_gib"] == round(psutil.virtual_memory().total / 2**30, 1)
    assert facts["python"].endswith(platform.python_version())
    assert facts["logical_cores"] >= 1
    assert set(facts) == {
        "cpu_model", "logical_cores", "memory_gib", "os", "python", "commit", "dirty", "packages",
    }  # fmt: skip


def test_cpu_model_is_the_first_named(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor: 0\nmodel name\t: Maker: 9000\nmodel name\t: Other\n", encoding="utf-8")
    assert cpu_model(cpuinfo) == "Maker: 9000"


def test_a_commit_is_named_and_a_new_file_makes_it_dirty(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "a").write_text("1", encoding="utf-8")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert checkout_state(tmp_path) == (commit, False)
    (tmp_path / "b").write_text("2", encoding="utf-8")
    assert checkout_state(tmp_path) == (commit, True)


def test_a_folder_inside_another_checkout_has_no_commit(tmp_path):
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "one")
    (tmp_path / "site-packages").mkdir()
    assert checkout_state(tmp_path / "site-packages") == (None, None)


def test_no_checkout_no_commit_yet_and_no_git(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert checkout_state(tmp_path) == (None, None)
    git(tmp_path, "init")
    assert checkout_state(tmp_path) == (None, None)
    monkeypatch.setenv("PATH", "")
    assert checkout_state(tmp_path) == (None, None)
