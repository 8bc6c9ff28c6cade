"""What a machine lacks for a configuration is listed, and only that."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

from dartsim.cli.requirements import missing_requirements
from dartsim.config import load
from dartsim.lab.estimate import estimate

GPU = "NVIDIA H100 80GB HBM3, 81559 MiB"


def listed(tmp_path: Path, *changes: str, gpus: int = 0) -> dict[str, str]:
    config = load(preset_name="osworld-8gpu", overrides=[f"policy.model={tmp_path / 'UI-TARS-1.5-7B'}", *changes])
    cards = "; ".join([GPU] * gpus) or None
    return {check.name: check.found for check in missing_requirements(config, estimate(config), gpus=lambda: cards)}


@pytest.fixture(autouse=True)
def _no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DARTSIM_VLLM_PYTHON", raising=False)


def test_a_bare_machine_lacks_model_interpreter_gpus_and_tasks(tmp_path: Path):
    found = listed(tmp_path)
    assert {"model", "vLLM's interpreter", "gpus", "tasks"} <= found.keys()
    assert found["model"].endswith("has no config.json, tokenizer_config.json, *.safetensors")
    assert "kvm" not in found  # the machines are on other hosts, where nobody here can look


def test_what_is_there_is_not_listed(tmp_path: Path):
    tasks = tmp_path / "examples"
    tasks.mkdir()
    (tasks / "test_nogdrive.json").write_text("{}", encoding="utf-8")
    changes = (f"tasks.folder={tasks}", f"vllm.python={sys.executable}")
    found = listed(tmp_path, *changes, gpus=8)
    assert not found.keys() & {"vLLM's interpreter", "gpus", "tasks"}
    assert listed(tmp_path, *changes, gpus=7)["gpus"].startswith("7 on this machine")


def test_a_folder_without_weights_says_which_files(tmp_path: Path):
    folder = tmp_path / "UI-TARS-1.5-7B"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    assert listed(tmp_path)["model"].endswith("has no config.json, *.safetensors")
    (folder / "model-00001.safetensors").touch()
    assert listed(tmp_path)["model"].endswith("has no config.json")


def test_a_machine_too_small_for_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import psutil

    class Memory:
        total = 64 * 2**30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    assert listed(tmp_path)["memory"].startswith("64 GiB here; 432 at the start")


def test_a_modeled_run_lacks_nothing():
    config = load(preset_name="dart")
    assert missing_requirements(config, estimate(config)) == []


def test_a_screen_that_the_official_disk_does_not_have_is_told(tmp_path: Path):
    assert "screen" not in listed(tmp_path)
    found = listed(tmp_path, "desktop.width=224", "desktop.height=224")
    assert "224 and 224; OSWorld's disk shows 1920 × 1080" in found["screen"]


def test_the_documented_recipe_for_the_official_image_fits_its_screen_and_its_boot(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs" / "desktops-and-engines.md").read_text(encoding="utf-8")
    (recipe,) = (text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if 'desktops = "osworld"' in text)
    file = tmp_path / "my.toml"
    file.write_text(textwrap.dedent(recipe), encoding="utf-8")
    config = load(file)
    names = {check.name for check in missing_requirements(config, estimate(config), gpus=lambda: None)}
    assert "tasks" in names
    assert "screen" not in names
    assert config.rollout.limits.start_seconds >= 300.0
    assert config.rollout.num_desktops <= 8
