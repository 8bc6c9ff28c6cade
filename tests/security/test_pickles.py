"""No pickle is loaded from a file that a run did not write: a search through the source, and hostile files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNSAFE = ("torch.load(", "weights_only=False", "allow_pickle=True", "trust_remote_code=True", "_object_list(")
"""Readers that may run what a file or another rank says; the linter refuses pickles."""


@pytest.mark.parametrize("part", ["dartsim", "envs", "real", "experiments"])
def test_no_file_is_read_in_a_way_that_may_run_what_is_in_it(part):
    for path in (ROOT / part).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not [unsafe for unsafe in UNSAFE if unsafe in text], path


class Evil:
    """Runs a command where it is unpickled."""

    def __init__(self, canary):
        self._canary = canary

    def __reduce__(self):
        return (eval, (f"__import__('pathlib').Path({str(self._canary)!r}).touch()",))


class Steps:
    """What a checkpoint is loaded into: one parameter."""

    def __init__(self, torch):
        self.parameters = {"a": torch.zeros(4)}
        self.restored = None

    def restore(self, state):
        self.restored = state


def load(folder, *, name, data):
    """Load a checkpoint whose only part is this file."""
    torch = pytest.importorskip("torch")
    from dartsim.real.learners import checkpoint

    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / name).write_bytes(data)
    (folder / "learner.json").write_text('{"stepped": false, "updates": 1, "seed": 0, "ranks": 1}')
    steps = Steps(torch)
    checkpoint.load(steps, folder)
    return steps.restored


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "shard-00001-model-00001-of-00001.safetensors"])
def test_a_hostile_part_of_a_checkpoint_runs_nothing(tmp_path, name):
    canary = tmp_path / "canary"
    with pytest.raises(ValueError, match=r"no checkpoint|another model"):
        load(tmp_path / "c", name=name, data=pickle.dumps(Evil(canary)))
    assert not canary.exists()
    pickle.loads(pickle.dumps(Evil(canary)))
    assert canary.exists(), "the same pickle does harm where it is trusted"


@pytest.mark.parametrize("data", [b"", b"\x80\x04.", b"garbage", b"\xff" * 100])
def test_nonsense_instead_of_a_part_is_told_so(tmp_path, data):
    with pytest.raises(ValueError, match="no checkpoint"):
        load(tmp_path / "c", name="part.safetensors", data=data)


def test_whole_tensors_are_read_as_parts(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save

    restored, numbers = load(tmp_path / "c", name="part.safetensors", data=save({"weight/a": torch.arange(4.0)}))
    assert restored["weight/a"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert numbers["updates"] == 1
