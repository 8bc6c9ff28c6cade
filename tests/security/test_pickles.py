"""No pickle is loaded from a file that a run did not write: a search through the source, and hostile files."""

from __future__ import annotations

import ast
import pickle
import warnings
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KNOWN = {
    "real/fsdp/descriptions.py": "reads DCP's description with a list of the classes that may be made",
    "real/ray_cluster/errors.py": "asks whether an error of this process can travel; reads what it has just written",
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


def checkpoint(folder, data):
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / ".metadata").write_bytes(data)
    (folder / "learner.json").write_text('{"stepped": false, "updates": 1, "seed": 0, "ranks": 1}')
    return folder


def test_a_hostile_description_of_a_checkpoint_runs_nothing(tmp_path):
    pytest.importorskip("torch")
    from dartsim.real.fsdp.descriptions import Reader

    canary = tmp_path / "canary"
    folder = checkpoint(tmp_path / "c", pickle.dumps(Evil(canary)))
    with pytest.raises(ValueError, match=r"no description of a checkpoint: found builtins\.eval"):
        Reader(str(folder / "parts")).read_metadata()
    assert not canary.exists()
    pickle.loads(pickle.dumps(Evil(canary)))
    assert canary.exists(), "the same pickle does harm where it is trusted"


@pytest.mark.parametrize("data", [b"", b"\x80\x04.", b"garbage", pickle.dumps({"a": 1}), pickle.dumps(None)])
def test_nonsense_instead_of_a_description_is_told_so(tmp_path, data):
    pytest.importorskip("torch")
    from dartsim.real.fsdp.descriptions import Reader

    with pytest.raises(ValueError, match="description of a checkpoint"):
        Reader(str(checkpoint(tmp_path / "c", data) / "parts")).read_metadata()


def written(tmp_path, state):
    from torch.distributed.checkpoint.state_dict_saver import save

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save(state, checkpoint_id=str(tmp_path / "parts"), no_dist=True)
    return tmp_path / "parts"


def test_descriptions_that_torch_writes_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint.state_dict_loader import load

    from dartsim.real.fsdp.descriptions import Reader

    parts = written(tmp_path, {"a": torch.arange(4.0), "b": torch.ones(2, 3, dtype=torch.bfloat16)})
    found = {"a": torch.zeros(4), "b": torch.zeros(2, 3, dtype=torch.bfloat16)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(found, storage_reader=Reader(str(parts)), no_dist=True)
    assert found["a"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert bool((found["b"] == 1).all())


def test_checkpoints_that_hold_objects_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    from dartsim.real.fsdp.descriptions import Reader

    parts = written(tmp_path, {"a": torch.zeros(2), "object": {"x": "a pickle again"}})
    with pytest.raises(ValueError, match=r"'object', which is no tensor|no tensor"):
        Reader(str(parts)).read_metadata()


def test_parts_outside_of_the_checkpoint_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    from dartsim.real.fsdp.descriptions import Reader

    parts = written(tmp_path, {"a": torch.zeros(2)})
    found = pickle.loads((parts / ".metadata").read_bytes())
    for index, info in found.storage_data.items():
        found.storage_data[index] = type(info)("../../secret", info.offset, info.length)
    (parts / ".metadata").write_bytes(pickle.dumps(found))
    with pytest.raises(ValueError, match="lies outside of the checkpoint"):
        Reader(str(parts)).read_metadata()
