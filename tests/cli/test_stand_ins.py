"""``dartsim check CONFIG --stand-in``: a real run over stand-ins, beside the rates that its twin needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dartsim.config import load, to_toml
from dartsim.lab.virtual import with_settings

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


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
def test_driver_and_updates_are_measured_over_stand_ins(dartsim, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    pytest.importorskip("httpx")
    pytest.importorskip("torch")
    from dartsim.real.stand_ins.model import write_stand_in

    preset = load("osworld-8gpu")
    model = write_stand_in(preset, tmp_path / "model")
    Path("my.toml").write_text(to_toml(with_settings(preset, {**SMALL, "policy.model": str(model)})), encoding="utf-8")
    code = dartsim("check", "my.toml", "--stand-in", "all", "--minutes", "0.2", "--json", "found.json")
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert code == bool(found["short"])
    rates = {rate["name"]: rate for rate in found["rates"]}
    assert rates.keys() == {"driver", "updates"}
    assert rates["driver"]["delivered"] > 0.0
    assert Path(found["run_dir"], "summary.json").is_file()
