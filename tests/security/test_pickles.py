"""No pickle is loaded from a file that a run did not write: a search through the source, and hostile files."""

from __future__ import annotations

import ast
import pickle
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KNOWN = {
    "dartsim/lab/gate.py": "builds a pandas DataFrame of figures; reads no file",
    "envs/copied_states.py": "counts the bytes of a saved state; reads nothing",
}
"""Files that name pickle, and why they may."""
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "pandas", "yaml"}


@cache
def trees():
    return [
        (str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8")))
        for part in ("dartsim", "envs", "real", "experiments")
        for path in sorted((ROOT / part).rglob("*.py"))
    ]


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def test_only_known_files_import_what_can_unpickle():
    found = {name for name, tree in trees() if UNSAFE_MODULES & set(imported(tree))}
    assert found <= set(KNOWN)


def called(node):
    """Return ``a.b.c`` of a call of ``a.b.c(…)``."""
    names = []
    at = node.func
    while isinstance(at, ast.Attribute):
        names.append(at.attr)
        at = at.value
    names.append(at.id if isinstance(at, ast.Name) else "?")
    return ".".join(reversed(names))


def keyword(node, name):
    return next((k.value.value for k in node.keywords if k.arg == name and isinstance(k.value, ast.Constant)), None)


def loads(tree):
    """Return the places of a source that read a file in a way that may run what is in it."""
    bad = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        what = called(node)
        if what == "torch.load" and keyword(node, "weights_only") is not True:
            bad.append((node.lineno, what))
        if what in ("np.load", "numpy.load") and keyword(node, "allow_pickle") is not False:
            bad.append((node.lineno, what))
        if keyword(node, "allow_pickle") is True or keyword(node, "trust_remote_code") is True:
            bad.append((node.lineno, what))
        if what in ("torch.hub.load", "torch.jit.load", "pd.read_pickle", "yaml.load", "load_metadata"):
            bad.append((node.lineno, what))
    return bad


def test_no_file_is_loaded_in_a_way_that_may_run_what_is_in_it():
    assert {f"{name}:{line} {what}" for name, tree in trees() for line, what in loads(tree)} == set()


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f)",
        "numpy.load(f, allow_pickle=True)",
        "np.load(f, None, True)",
        "Auto.from_pretrained(f, trust_remote_code=True)",
        "yaml.load(f)",
    ],
)
def test_the_search_finds_each_of_them(line):
    assert loads(ast.parse(line))


@pytest.mark.parametrize("line", ["torch.load(f, weights_only=True)", "np.load(f, allow_pickle=False)", "load_file(f)"])
def test_the_search_lets_the_safe_ones_pass(line):
    assert not loads(ast.parse(line))


def test_objects_do_not_travel_between_ranks_as_pickles():
    names = {"broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list", "recv_object_list"}
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                assert node.attr not in names, (name, node.lineno)


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
