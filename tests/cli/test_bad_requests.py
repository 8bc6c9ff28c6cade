"""Bad command lines, plug-ins and pools: one sentence and exit code 2, before anything runs or is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dartsim.cli import console
from dartsim.cli.console import figure_table, print_error

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
