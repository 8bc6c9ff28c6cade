"""``policy.model``: a folder or an id of the Hugging Face hub. The hub is never asked here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dartsim.run.model_folder import is_hub_id, model_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["Qwen/Qwen3-VL-2B-Instruct", "ByteDance-Seed/UI-TARS-1.5-7B"])
def test_an_id_of_the_hub_is_known(name):
    assert is_hub_id(name)


@pytest.mark.parametrize("name", ["models/UI-TARS-1.5-7B", "/data/Qwen3", "./Qwen/Qwen3", "model", "a/b/c", "../m"])
def test_a_folder_is_no_id(name):
    assert not is_hub_id(name)
    assert model_folder(name) == Path(name)


def test_a_folder_that_is_there_is_no_id(tmp_path, monkeypatch):
    (tmp_path / "Qwen/mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert model_folder("Qwen/mine") == Path("Qwen/mine")


PROGRAM = """
from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.run.model_folder import with_model_folder
from dartsim.run.prepare import prepare_run

config = load("tiny", overrides=["policy.model=owner/small"])
print(with_model_folder(config).policy.model)
try:
    prepare_run(load("tiny", overrides=["policy.model=owner/other"]))
except ConfigError as error:
    print(error)
"""


def test_a_model_is_taken_from_the_hubs_cache_or_refused_in_one_sentence(tmp_path):
    pytest.importorskip("huggingface_hub")
    kept = tmp_path / "hub/models--owner--small"
    (kept / "snapshots/abc").mkdir(parents=True)
    (kept / "snapshots/abc/config.json").write_text("{}")
    (kept / "refs").mkdir()
    (kept / "refs/main").write_text("abc")
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("HF_HUB_CACHE", None)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cached, refused = done.stdout.strip().split("\n")
    assert cached == str(kept / "snapshots/abc")
    assert "'owner/other' is no folder here, and is not available from the Hugging Face hub" in refused
    assert "hf download owner/other --local-dir FOLDER" in refused
