"""Every step of docs/osworld.md that needs no GPU, no KVM and no download runs as it is written there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "osworld.md").read_text(encoding="utf-8")
OURS = ("dartsim", "python -c")

QUICK = (
    "dartsim check",
    "dartsim check tiny --backend mock --workers vllm",
    "dartsim desktop tasks OSWorld/evaluation_examples",
    "dartsim desktop fetch OSWorld/evaluation_examples",
    "dartsim check osworld-8gpu",
)
"""In every run of the tests, seconds each."""

SOAK = {
    "## 2": ("dartsim run dart --hours 4", "dartsim run --backend mock --hours 0.05"),
    "## 3": ("dartsim desktop build --variant apps",),
    "## 4": (
        "dartsim run --backend mock --workers vllm --hours 0.05 --set rollout.num_workers=1 "
        "--set vllm.max_model_len=512",
    ),
    "## 5": (
        "dartsim desktop build",
        "dartsim desktop start --app mousepad --show desktop.png --seconds 0",
        "dartsim run --backend desktop --hours 0.05",
        "dartsim desktop reap",
    ),
    "## 6": ("python -c", "dartsim run tiny --backend mock --hours 0.015"),
    "## 9": ("dartsim run osworld-8gpu --twin --hours 24",),
}
"""Minutes each, by section: the commands of a section build on each other. Beginnings of commands."""


def commands() -> list[str]:
    """Return the commands of the guide's console blocks that are ours."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE):
        lines = block.replace("\\\n", " ").splitlines()
        found += [shlex.join(shlex.split(line, comments=True)) for line in lines if line.startswith(OURS)]
    return found


def command(start: str) -> list[str]:
    """Return the words of the shortest command of the guide that begins so."""
    return shlex.split(min((each for each in commands() if each.startswith(start)), key=len))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the guide tells to fetch: OSWorld's tasks, and a model that is small."""
    suite = tmp_path / "OSWorld" / "evaluation_examples"
    (suite / "examples" / "os").mkdir(parents=True)
    task = {"id": "one", "instruction": "Do it.", "config": [], "evaluator": {"func": "infeasible"}}
    (suite / "examples" / "os" / "one.json").write_text(json.dumps(task))
    for name in ("test_all", "test_nogdrive"):
        (suite / f"{name}.json").write_text(json.dumps({"os": ["one"]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("start", QUICK)
def test_a_quick_step_runs(dartsim, place: Path, start: str) -> None:
    program, *words = command(start)
    if words[:2] == ["desktop", "fetch"]:
        pytest.importorskip("httpx")
    assert program == "dartsim"
    assert dartsim(*words) in ((0, 1) if words[0] == "check" else (0,))  # 1: something is missing here


@pytest.mark.parametrize("block", re.findall(r"^( *)```toml\n(.*?)^ *```", GUIDE, re.DOTALL | re.MULTILINE))
def test_a_configuration_of_the_guide_can_be_planned(dartsim, place: Path, capsys, block: tuple[str, str]) -> None:
    indent, text = block
    (place / "my.toml").write_text(re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
    assert dartsim("check", "my.toml", "--json", "-") == 1
    found = json.loads(capsys.readouterr().out)
    assert all("fp8" in " ".join(one["command"]) for one in found["engines"]["start_there"])
    assert "on Ray (gpu-1:6379)" in found["learner"]["what"]


@pytest.mark.soak
@pytest.mark.parametrize("section", SOAK)
def test_a_long_step_runs(place: Path, section: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("torch", reason="needs the extra `train`")
    if section == "## 4" and "DARTSIM_VLLM_PYTHON" not in os.environ:
        pytest.skip("needs DARTSIM_VLLM_PYTHON")
    if section in ("## 3", "## 5"):
        request.getfixturevalue("docker_engine")
    for start in SOAK[section]:
        program, *words = command(start)
        before = [sys.executable, "-m", "dartsim"] if program == "dartsim" else [sys.executable]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*before, *words], env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr
    if section == "## 5":
        assert (place / "desktop.png").stat().st_size > 1_000
