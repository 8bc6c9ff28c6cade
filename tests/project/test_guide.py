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

from dartsim.config.schema import DockerHostConfig

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

LONG = {
    "2": ("dartsim run --hours 0.1", "dartsim run dart --hours 4"),
    "3": (
        "dartsim desktop build --variant apps",
        "dartsim desktop start --variant apps --show desktop.png --seconds 0",
    ),
    "5": ("python -c", "dartsim eval osworld-apps --workers local --model tiny-folder"),
    "6": ("dartsim run desktop --set desktop.variant=apps", "dartsim desktop reap"),
    "8": ("dartsim run --backend mock --workers vllm --hours 0.05",),
    "9": ("dartsim run osworld-8gpu --twin --hours 24",),
}
"""Minutes each, by step: beginnings of commands, which build on each other."""
NEEDS_IMAGE = ("3", "5", "6")
BY_HAND = ("6", "8", "9")
"""Steps that take too long for CI."""


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
    for name in ("test_all", "test_nogdrive", "three"):
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


def _need_apps_image(engine: DockerHostConfig) -> None:
    from dartsim.core.errors import DartsimError
    from dartsim.real.containers.fleet import require_image
    from dartsim.real.desktop.images import image_name

    try:
        require_image([engine], image_name("apps"))
    except DartsimError as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.soak if step in BY_HAND else pytest.mark.slow) for step in LONG]
)
def test_a_long_step_runs(place: Path, step: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("torch", reason="needs the extra `train`")
    if step == "8" and "DARTSIM_VLLM_PYTHON" not in os.environ:
        pytest.skip("needs DARTSIM_VLLM_PYTHON")
    if step in NEEDS_IMAGE:
        _need_apps_image(request.getfixturevalue("docker_engine"))
    for start in LONG[step]:
        program, *words = command(start)
        before = [sys.executable, "-m", "dartsim"] if program == "dartsim" else [sys.executable]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*before, *words], env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr
    if step == "3":
        assert (place / "desktop.png").stat().st_size > 1_000
