import hashlib
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
from safetensors.torch import load_file, save_file

from dartsim.real.engines.errors import WeightsTorn, WeightsUnconfirmed
from dartsim.real.engines.ledger import EngineParameters, WeightsLedger, read_folder

BLANK = hashlib.sha256(b"").hexdigest()


def checksums_of(folder: Path, **changes: str) -> dict[str, str]:
    """Return what an engine reports that keeps every tensor as it is."""
    return {f"tp0:{name}": digest for name, digest in read_folder(folder).digests.items()} | changes


def test_a_folder_is_read_by_its_headers(models):
    facts = read_folder(models.folders[0])
    tensors = load_file(models.folders[0] / "model.safetensors")
    assert facts.shapes.keys() == facts.digests.keys() == tensors.keys()
    name = "lm_head.weight"
    assert facts.shapes[name] == ("F32", tuple(tensors[name].shape))
    assert facts.digests[name] == hashlib.sha256(tensors[name].numpy().tobytes()).hexdigest()


def test_a_folder_is_read_once_for_all_engines_and_anew_when_it_was_written_to(models, tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes((models.folders[0] / "model.safetensors").read_bytes())
    first = read_folder(tmp_path)
    assert read_folder(tmp_path) is first
    file.write_bytes((models.folders[1] / "model.safetensors").read_bytes())
    os.utime(file, ns=(0, 0))  # also where the clock of the disk is coarse
    assert read_folder(tmp_path).digests == read_folder(models.folders[1]).digests != first.digests


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_a_cut_file_is_torn(models, tmp_path, cut):
    raw = (models.folders[0] / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(raw[:cut])
    with pytest.raises(WeightsTorn, match="not a whole"):
        read_folder(tmp_path)


def test_an_empty_or_missing_folder_is_torn(tmp_path):
    with pytest.raises(WeightsTorn, match="no safetensors"):
        read_folder(tmp_path)
    with pytest.raises(WeightsTorn, match="not a whole"):
        read_folder(tmp_path / "gone.safetensors")


def test_a_missing_shard_is_torn(models, tmp_path):
    tensors = load_file(models.folders[0] / "model.safetensors")
    names = sorted(tensors)
    save_file({name: tensors[name] for name in names[:-3]}, tmp_path / "model.safetensors")
    ledger = WeightsLedger()
    ledger.inspect(models.folders[0])
    with pytest.raises(WeightsTorn, match=f"differs in 3 of .*{names[-3]}"):
        ledger.inspect(tmp_path)


def test_one_parameter_that_differs_between_engines_is_found(models):
    ledger = WeightsLedger()
    folder = models.folders[0]
    fused = {"tp0:qkv_proj.weight": "1" * 64}
    ledger.confirm(0, ledger.inspect(folder), checksums_of(folder, **fused))
    with pytest.raises(WeightsUnconfirmed, match=r"1 parameters differ .*qkv_proj"):
        ledger.confirm(0, ledger.inspect(folder), checksums_of(folder, **{"tp0:qkv_proj.weight": "2" * 64}))


def test_where_nothing_is_kept_as_it_is_a_change_must_show(models, caplog):
    """Another dtype in the engine: no tensor of the folder is found again."""
    ledger = WeightsLedger()
    first, second = models.folders[:2]
    ledger.confirm(0, ledger.inspect(first), {"a": "1" * 64})
    assert "vllm.dtype" in caplog.text
    with pytest.raises(WeightsUnconfirmed, match="nothing was loaded"):
        ledger.confirm(1, ledger.inspect(second), {"a": "1" * 64})
    ledger.confirm(1, ledger.inspect(second), {"a": "2" * 64})


def test_repacked_matrices_say_nothing(models):
    ledger = WeightsLedger()
    first, second = models.folders[:2]
    ledger.confirm(0, ledger.inspect(first), {"a": BLANK})
    ledger.confirm(1, ledger.inspect(second), {"a": BLANK})


def test_a_fused_parameter_must_change_with_what_it_is_made_of(models, tmp_path):
    """And only then: of LoRA on the queries' matrices, all that is made of others stays as it was."""
    name = "model.layers.0.mlp.gate_proj.weight"
    fused = "tp0:language_model.model.layers.0.mlp.gate_up_proj.weight"
    folder = models.folders[0]
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {name: tensors[name] + 1}, tmp_path / "model.safetensors")

    def held(path: Path, digest: str) -> dict[str, str]:
        parts = ("gate_proj.weight", "up_proj.weight")
        kept = {key: value for key, value in checksums_of(path).items() if not key.endswith(parts) or "visual" in key}
        return {**kept, fused: digest}

    ledger = WeightsLedger()
    first, second = ledger.inspect(folder), ledger.inspect(tmp_path)
    ledger.confirm(0, first, held(folder, "1" * 64))
    before = EngineParameters(held(folder, "1" * 64), first.digests)
    ledger.confirm(1, first, held(folder, "1" * 64), before=before)
    with pytest.raises(WeightsUnconfirmed, match=r"1 of .* first tp0.*gate_up_proj"):
        ledger.confirm(2, second, held(tmp_path, "1" * 64), before=before)
    ledger.confirm(2, second, held(tmp_path, "2" * 64), before=before)


def test_a_bias_of_zeros_that_equals_another_is_not_taken_for_one_that_is_there(models, tmp_path):
    """It is part of a fused parameter, and may become another one."""
    name = "model.layers.0.self_attn.q_proj.bias"
    folder = models.folders[0]
    tensors = load_file(folder / "model.safetensors")
    assert not tensors[name].any()
    save_file(tensors | {name: tensors[name] + 1}, tmp_path / "model.safetensors")
    ledger = WeightsLedger()
    for version, path in enumerate((folder, tmp_path)):
        held = checksums_of(path)
        fused = {"tp0:layers.0.self_attn.qkv_proj.bias": str(version) * 64}
        ledger.confirm(version, ledger.inspect(path), {k: v for k, v in held.items() if k != f"tp0:{name}"} | fused)
