"""``dartsim config faults`` and ``--faults``: what is listed, and that it strikes."""

from __future__ import annotations

import json
from pathlib import Path

from dartsim.sim.faults import KINDS

SMALL = ("--preset", "dart", "--hours", "0.3", "--set", "rollout.num_envs=8", "--set", "rollout.num_workers=2")


def test_every_kind_is_listed_with_its_rates(dartsim, capsys):
    assert dartsim("config", "faults") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in KINDS)
    assert "worker-hours" in shown


def test_sources_are_told_on_request(dartsim, capsys):
    assert dartsim("config", "faults", "--sources") == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    assert "OSWorld issues 147, 168, 199, 205" in shown
    assert "host_lost (host, per host)" in shown


def test_the_table_is_to_be_had_as_json(dartsim, capsys):
    assert dartsim("config", "faults", "--json", "-") == 0
    table = json.loads(capsys.readouterr().out)
    assert table["profiles"] == ["none", "calm", "osworld", "hostile"]
    assert [kind["name"] for kind in table["kinds"]] == list(KINDS)


def test_a_profile_strikes_a_run(dartsim, capsys):
    assert dartsim("run", *SMALL, "--hours", "2", "--faults", "hostile", "--out", "run") == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert set(summary["faults"]) & set(KINDS)
    assert 'profile = "hostile"' in Path("run/config.toml").read_text()


def test_a_kind_that_does_not_exist_is_refused_before_anything_starts(dartsim, capsys):
    assert dartsim("run", *SMALL, "--set", "cluster.faults.kinds.worker_crsh.per_hour=1") == 2
    assert "did you mean 'worker_crash'?" in " ".join(capsys.readouterr().err.split())
