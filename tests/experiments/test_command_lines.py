"""Every study can be asked what it does where no extra is installed, and says which one it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from experiments.study import EXTRAS, Experiment

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "experiments").glob("*.py")}
RUNNABLE = sorted(name for name, text in SOURCES.items() if "    STUDY.run()" in text or "    main()" in text)

HELP = """
import contextlib, io, runpy, sys

ABSENT, NAMES = sys.argv[1].split(","), sys.argv[2:]

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for name in NAMES:
    sys.argv[:] = [name, "--help"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(f"experiments.{name}", run_name="__main__")
        print(name, "went on")
    except SystemExit as end:
        print(name, end.code or 0, "usage:" in said.getvalue())
"""


def test_help_needs_no_extra():
    """All in one process, where those packages are not to be found: quicker than thirty of them."""
    absent = {*EXTRAS, "openai", "scipy", "vllm"}
    command = [sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-c", HELP, ",".join(sorted(absent)), *RUNNABLE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} 0 True" for name in RUNNABLE]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'httpx'", name="httpx"), install_command("real")),
        (ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"), "torch is not installed"),
        (ConfigError("there is no vLLM"), "error: there is no vLLM"),
    ],
)
def test_what_is_missing_is_said_in_words(error, said, capsys):
    def measure(options):
        raise error

    with pytest.raises(SystemExit) as end:
        Experiment(name="x", about="x", measure=measure).run(["--quick"])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_a_mistake_of_ours_is_no_missing_extra():
    def measure(options):
        raise ModuleNotFoundError("No module named 'dartsim.nothing'", name="dartsim.nothing")

    with pytest.raises(ModuleNotFoundError):
        Experiment(name="x", about="x", measure=measure).run(["--quick"])
