"""Wrong requests, as a user types them: each is one message and exit code 2, before any work is done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dartsim.cli import console
from dartsim.cli.console import figure_table, print_error
from dartsim.cli.options import load_config
from dartsim.config import load, to_toml

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
def test_a_file_that_cannot_be_written_is_refused_before_any_work(dartsim, capsys, target, message):
    assert dartsim("show", "RUN", "--html", target) == 2
    assert f"--html {target}" in (text := said(capsys))
    assert message in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "dartt"), "no configuration file or run dartt; did you mean 'dart'"),
        (("run", "tiny", "--on", "laptop"), "for surrogate policies"),
        (("compare", "file"), "file is not TOML"),
        (("compare", "my.toml"), "no configuration file or run my.toml"),
        (("compare", "desktop"), "desktop has real components, and `compare` simulates"),
        (("fuzz", "--replay", "folder"), "folder"),
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
        (("run", "--set", "curation.groups.min_size=9"), "curation.groups.min_size"),
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
    Path("folder/config.toml").write_text(to_toml(load("coupled")))
    assert load_config("folder").preset == load_config("folder/config.toml").preset == "coupled"


LONG = "x" * 5000
LATENCY = "cluster.env.latency.step="
PLUG_INS = {
    "broken": "def f(:\n",
    "no_kind": "import dartsim\ndartsim.register('colour', 'red')(object)\n",
    "raises": "raise KeyError('[/b]')\n",
}

REQUESTS = [
    ("run", "dart", "--set", LATENCY + "[" * 5000),
    ("run", "dart", "--set", LATENCY + "{a=" * 3000),
    ("run", "dart", "--set", "a." * 3000 + "b=1"),
    ("run", "dart", "--set", "rollout.num_envs=" + "9" * 5000),
    ("run", "dart", "--seed", "9" * 5000),
    ("run", "dart", "--seed", "-1"),
    *(("run", "dart", "--hours", hours) for hours in ("1e308", "1e12", "nan", "inf", "-1", "1e400")),
    ("run", "dart", "--set", "run.warmup_share=1.0"),
    ("run", "dart", "--set", LATENCY + "{kind='lognormal',median_seconds=3.0,sigma=1e6}"),
    ("run", LONG),
    *(("run", "dart", option, LONG) for option in ("--on", "--out", "--json", "--plugin")),
    *((command, LONG) for command in ("show", "eval", "compare")),
    ("show", "absent", "--html", LONG),
    ("config", LONG),
    *(("eval", option, LONG) for option in ("--model", "--task-list", "--keep-successes")),
    ("eval", "--endpoint", "http://host:abc/v1", "--model", "m"),
    ("fuzz", "--replay", LONG),
    *(("run", name) for name in ("a[/b]", "a\\[/b]", "a\x1b[31m", "a\0b")),
    ("run", "dart", "--set", "x\\[/=3"),
    ("run", "dart", "--set", "run.name=A[/b]\x1b[31m"),
    ("show", "x[/b]\x1b[31m"),
    *(("run", "dart", "--plugin", name) for name in (*PLUG_INS, "a b")),
]


@pytest.mark.parametrize("words", REQUESTS, ids=lambda words: re.sub(r"[^\w -]", "", " ".join(words))[:60])
def test_a_bad_request_is_one_sentence(dartsim, capsys, words):
    for name, code in PLUG_INS.items():
        Path(f"{name}.py").write_text(code)
    before = set(Path().iterdir())
    assert dartsim(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert "\x1b[31m" not in captured.err
    assert 0 < len(captured.err) < 1000
    assert set(Path().iterdir()) - {Path("__pycache__")} == before


def test_debug_shows_what_a_request_made_fail(dartsim, capsys):
    assert dartsim("run", "dart", "--debug", "--set", LATENCY + "[" * 5000) == 2
    assert "Traceback" in capsys.readouterr().err


def test_names_and_errors_reach_the_terminal_as_text(capsys):
    name = "A[/b][red]\x1b]0;owned\x07"
    console.out.print(figure_table(name, {}))
    console.out.print(name)
    print_error("error", name)
    captured = capsys.readouterr()
    for shown in (captured.out, captured.err):
        assert "A[/b][red]�]0;owned�" in shown
        assert "\x1b" not in shown
