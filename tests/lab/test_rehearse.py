"""``dartsim rehearse``: the parts of a small configuration are measured over stand-ins and judged."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dartsim.cli.app import app
from dartsim.config import load, to_toml
from dartsim.core.errors import ConfigError
from dartsim.lab.model_shapes import OF_FAMILY
from dartsim.lab.rehearse import Rehearsal, RehearsedPart, TurnMemory
from dartsim.lab.virtual import changed

SMALL = {
    "run.hours": 1.0,
    "desktop.width": 224,
    "desktop.height": 224,
    "desktop.wait_seconds": 0.1,
    "rollout.num_envs": 4,
    "rollout.max_turns": 3,
    "curation.attempts.group_size": 2,
    "curation.batch.min_groups": 1,
    "curation.batch.max_groups": 2,
}

amounts = st.floats(0.0, 1e9)


@given(st.lists(st.tuples(amounts, st.none() | amounts), max_size=5))
def test_a_part_falls_short_exactly_if_it_delivered_less_than_is_needed(
    found: list[tuple[float, float | None]],
) -> None:
    parts = [RehearsedPart(name=str(i), unit="", needed=n, delivered=d) for i, (n, d) in enumerate(found)]
    rehearsal = Rehearsal(parts=parts, stand_ins=[], minutes=1.0, twin={}, figures={})
    assert rehearsal.short == [str(i) for i, (n, d) in enumerate(found) if d is not None and d < n]
    assert [part.verdict == "not measured" for part in parts] == [d is None for _, d in found]


@given(st.integers(0, 2**32), st.integers(0, 2**24), st.integers(0, 2_000))
def test_memory_of_turns_follows_a_line_through_those_that_were_held(constant: int, each: int, most: int) -> None:
    memory = TurnMemory()
    memory.samples = [(float(turns), memory.before + constant + each * turns) for turns in range(1, most, 7)]
    found = memory.bytes_for(10_000)
    if memory.samples and memory.samples[-1][0] > 50.0:
        assert found == pytest.approx(constant + each * 10_000, rel=1e-3, abs=1e3)
    else:
        assert found is None  # too few to tell


@pytest.mark.slow
def test_every_part_is_measured_over_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    pytest.importorskip("httpx")
    pytest.importorskip("torch")
    from dartsim.real.stand_ins.model import write_stand_in

    monkeypatch.chdir(tmp_path)
    preset = load(preset_name="osworld-8gpu")
    model = write_stand_in(preset, tmp_path / "model")
    config = changed(preset, {**SMALL, "policy.model": str(model)})
    (tmp_path / "my.toml").write_text(to_toml(config), encoding="utf-8")
    options = ["--minutes", "0.1", "--sample-gib", "0.01", "--json", "found.json"]
    forced = [word for part in ("desktops", "engines", "learner") for word in ("--stand-in", part)]
    done = CliRunner().invoke(app, ["rehearse", "my.toml", *options, *forced])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert done.exit_code == bool(found["short"])
    assert found["stand_ins"] == ["desktops", "engines", "learner"]
    parts = {part["name"]: part for part in found["parts"]}
    assert {"driver", "updates", "network, desktops of vm-1", "network, engine 1", "scorers"} <= parts.keys()
    assert {"stored turns", "checkpoints, written", "weights, hashed", "weights, loaded"} <= parts.keys()
    too_short = {"updates", "memory of turns"}
    assert {name for name, part in parts.items() if part["delivered"] is None} <= too_short
    assert all(part["delivered"] > 0.0 for part in parts.values() if part["delivered"] is not None)
    assert (tmp_path / found["run_dir"] / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--preset", "dart"], "a rehearsal wants real desktops"),
        (["--preset", "osworld-8gpu", "--stand-in", "moon"], "--stand-in moon is unknown"),
        (["--preset", "osworld-8gpu", "--server", "vm-1"], "is not PART=URL"),
        (["--preset", "osworld-8gpu", "--server", "desktops of vm-2=http://vm-2"], "names no part"),
        (["--preset", "osworld-8gpu", "--set", "trainer.fsdp.ranks=2"], "trainer.fsdp.gpus"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_before_any_work(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["rehearse", *arguments])
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_synthetic_checkpoint_has_the_parameters_of_the_published_model(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    pytest.importorskip("httpx")
    pytest.importorskip("torch")
    from dartsim.real.stand_ins.probes import meta_tensors

    for family, shape in OF_FAMILY.items():
        tensors = meta_tensors(family, asdict(shape.text), asdict(shape.vision), tmp_path)
        assert sum(tensor.numel() for tensor in tensors.values()) == shape.parameters
