"""Wrong requests, as a user types them: each is one message and exit code 2, before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dartsim.cli import console
from dartsim.cli.options import load_config
from dartsim.config import load, to_toml
from dartsim.core.errors import ConfigError

SMALL = ("dart", "--hours", "0.3", "--set", "rollout.num_envs=4", "--set", "rollout.num_workers=1")


@pytest.fixture(autouse=True)
def _without_docker_and_with_things_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text\n")


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("target", ["folder", "absent/figures.json", "file/figures.json", ""])
@pytest.mark.parametrize(
    "command",
    [
        ("run", *SMALL),
        ("check",),
        ("show", "folder"),
        ("fuzz",),
    ],
)
def test_a_json_file_that_cannot_be_is_refused_first(dartsim, capsys, command, target):
    assert dartsim(*command, "--json", target) == 2
    assert "--json" in said(capsys)
    assert not Path("runs").exists()


@pytest.mark.parametrize("target", ["file", "file/below", "file/below/that"])
@pytest.mark.parametrize(
    "command",
    [
        ("run", *SMALL),
        ("compare", "dart"),
        ("tune", "--space", "rollout.num_envs=20..80"),
        ("plan", "--gpus", "8", "--hosts", "4x64GiB"),
        ("fuzz",),
    ],
    ids=lambda command: command[0],
)
def test_a_folder_that_cannot_be_is_refused_before_any_work(dartsim, capsys, command, target):
    assert dartsim(*command, "--out", target) == 2
    assert "is not a folder; name a new or existing folder" in said(capsys)


@pytest.mark.parametrize(("target", "message"), [("folder", "is a folder"), ("absent/x", "there is no folder absent")])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("show", "RUN"), "--gif"),
        (("show", "RUN"), "--html"),
        (("cluster", "measure", "RUN"), "--out"),
        (("desktop", "start"), "--show"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(dartsim, capsys, command, option, target, message):
    assert dartsim(*command, option, target) == 2
    assert f"{option} {target}" in (text := said(capsys))
    assert message in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", [("run", *SMALL, "--out"), ("show", "RUN", "--html")])
def test_a_folder_that_may_not_be_written_to_is_refused_before_any_work(dartsim, capsys, command):
    Path("folder").chmod(0o500)
    assert dartsim(*command, "folder/new") == 2
    assert "folder is read-only; name another folder" in said(capsys)


def test_a_json_file_that_cannot_be_written_after_all_is_one_message(tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(ConfigError, match="--json"):
        console.write_json({}, str(full))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "dartt"), "no configuration file or run dartt; did you mean 'dart'"),
        (("run", "tiny", "--on", "laptop"), "for surrogate policies"),
        (("compare", "file"), "file is not TOML"),
        (("compare", "my.toml"), "no configuration file or run my.toml"),
        (("compare", "desktop"), "desktop has real components, and `compare` simulates"),
        (("fuzz", "--replay", "nonsense"), "'nonsense' is not a token of `dartsim fuzz`; give"),
        (("show", "file"), "file is not a folder"),
        (("eval", "folder", "--rescore"), "folder is no run's folder"),
        (("eval", "--rescore"), "--rescore needs the folder of a run"),
        (("eval", "--results", "folder"), "--results DIR needs --keep-successes POOL"),
        (("eval", "dart"), "has a surrogate policy: it has no model"),
        (("eval", "--keep-successes", "folder"), "folder already exists"),
        (("fuzz", "--out", "file"), "file is not a folder"),
        (("fuzz", "--out", "file/below"), "file is not a folder"),
        (("desktop", "evaluator", "--python", "no-such-python"), "no-such-python cannot be run"),
        (("check", "dart", "--set", "cluster.env.profile=nope"), "cluster.env.profile = 'nope'"),
        (("check", "dart", "--set", "cluster.env.latency.stepp=1"), "cluster.env.latency.stepp"),
        (("check", "dart", "--set", "cluster.faults.kinds.nope.share=1"), "no kind of fault 'nope'"),
        (("run", "--set", "rollout.num_envs=many"), "rollout.num_envs"),
        (("run", "--set", "rollout.num_envs"), "section.key=value"),
        (("run", "--set", "curation.max_ahead=8"), "curation.max_ahead"),
        (("run", "--set", "backend.real_time=true", "--until-steady", "1%"), "run.until_steady"),
        (("compare", "dart", "--until-steady", "2"), "'2'"),
        (("run", "dart", "--set", "tasks.source=osworld"), "tasks.folder"),
    ],
)
def test_a_wrong_request_is_one_message(dartsim, capsys, arguments, message):
    assert dartsim(*arguments) == 2
    told = said(capsys)
    assert message in told
    assert "Traceback" not in told
    assert not Path("runs").exists()


def test_a_scheduler_is_a_name_a_file_or_a_run():
    assert load_config(None).preset == "dart"
    Path("folder/config.toml").write_text(to_toml(load(preset_name="coupled")))
    assert load_config("folder").preset == load_config("folder/config.toml").preset == "coupled"
