"""What desktop-env can do in an environment, asked of a stand-in for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
READS = "import easyocr\n\n\ndef compare_image_text(path, rule):\n    return easyocr.Reader(['en'])\n"
ASK = """import json, sys
sys.prefix = sys.argv[1]
from dartsim.real.scoring.sandboxed.desktop_env_functions import DesktopEnvFunctions
print(json.dumps(DesktopEnvFunctions().facts()["metrics"]))
"""


@pytest.fixture
def environment(tmp_path) -> Path:
    evaluators = tmp_path / "desktop_env" / "evaluators"
    for folder in ("metrics", "getters"):
        (evaluators / folder).mkdir(parents=True)
    (evaluators / "metrics" / "__init__.py").write_text(READS)
    (evaluators / "metrics" / "basic_os.py").touch()
    (evaluators / "getters" / "__init__.py").touch()
    about = tmp_path / "desktop_env-9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: desktop-env\nVersion: 9\n")
    return tmp_path


def lacks(environment: Path) -> list[str]:
    variables = {**os.environ, "PYTHONPATH": f"{environment}:{ROOT}"}
    command = [sys.executable, "-c", ASK, str(environment)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)["compare_image_text"]
    return found


def test_easyocr_needs_its_weights_because_a_sandbox_cannot_fetch_them(environment):
    assert lacks(environment) == ["easyocr"]
    (environment / "easyocr.py").write_text("import os\n\nPLACE = os.environ['EASYOCR_MODULE_PATH']\n")
    assert lacks(environment) == ["craft_mlt_25k.pth", "english_g2.pth"]
    model = environment / "easyocr" / "model"
    model.mkdir(parents=True)
    for name in ("craft_mlt_25k.pth", "english_g2.pth"):
        (model / name).touch()
    assert lacks(environment) == []
