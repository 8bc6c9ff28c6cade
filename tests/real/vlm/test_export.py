from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402

from dartsim.config.sections.trainer import LoraConfig  # noqa: E402
from dartsim.core.errors import ConfigError  # noqa: E402
from dartsim.real.vlm import build  # noqa: E402
from dartsim.real.vlm.export import export, export_weights  # noqa: E402
from dartsim.real.vlm.lora import add_lora, merged  # noqa: E402


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_folder_holds_the_whole_model(make_vlm, tmp_path, family):
    vlm = make_vlm(family=family)
    folder = export(vlm, tmp_path / "model")
    assert (folder / "chat_template.jinja").is_file()
    again = build(replace(vlm.config, folder=str(folder)))
    wanted = vlm.snapshot()
    found = again.snapshot()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_weights_are_called_as_in_the_folder_they_belong_to(make_vlm, tmp_path, family):
    first, second = make_vlm(seed=0, family=family), make_vlm(seed=1, family=family)
    whole = export(second, tmp_path / "whole")
    base = export(first, tmp_path / "base")
    folder = export_weights(second.snapshot(), tmp_path / "weights", like=base)
    found, wanted = load_file(folder / "model.safetensors"), load_file(whole / "model.safetensors")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert (folder / "config.json").read_text() == (base / "config.json").read_text()
    bare = export_weights(second.snapshot(), tmp_path / "bare")
    assert [path.name for path in bare.iterdir()] == ["model.safetensors"]


def test_a_folder_has_the_type_that_is_asked_for(make_vlm, tmp_path):
    vlm = make_vlm()
    whole = load_file(export(vlm, tmp_path / "model", dtype="bfloat16") / "model.safetensors")
    alone = load_file(export_weights(vlm.snapshot(), tmp_path / "weights", dtype="bfloat16") / "model.safetensors")
    wanted = load_file(export(vlm, tmp_path / "own") / "model.safetensors")
    assert whole.keys() == wanted.keys()
    assert all(torch.equal(whole[name], tensor.to(torch.bfloat16)) for name, tensor in wanted.items())
    assert sorted(tensor.abs().sum() for tensor in alone.values()) == sorted(t.abs().sum() for t in whole.values())
    assert all(tensor.dtype is torch.bfloat16 for tensor in alone.values())
    assert all(parameter.dtype is torch.float32 for parameter in vlm.model.parameters())


def test_low_rank_additions_are_merged_into_the_folder(make_vlm, tmp_path):
    """Under their own names they would be left out by whoever loads it, and the weights below them be random."""
    vlm = make_vlm()
    add_lora(vlm.model, LoraConfig(rank=2), seed=0)
    for name, parameter in vlm.model.named_parameters():
        if ".lora_B" in name:
            torch.nn.init.constant_(parameter, 0.25)  # zero at first, so that nothing would be added
    wanted = merged(vlm.snapshot())
    found = build(replace(vlm.config, folder=str(export(vlm, tmp_path / "model")))).snapshot()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert any(not torch.equal(found[name], tensor) for name, tensor in make_vlm().snapshot().items())


def test_the_model_of_a_folder_has_the_same_grammar_images_and_prompts(make_vlm, tmp_path, prompts_of):
    vlm = make_vlm(grammar="free", max_new_tokens=8, min_pixels=784, max_pixels=4_000)
    again = build(replace(vlm.config, folder=str(export(vlm, tmp_path / "model"))))
    assert (again.grammar.allowed == vlm.grammar.allowed).all()
    assert again.rules == vlm.rules
    assert again.decoding == vlm.decoding
    for own, other in zip(prompts_of(vlm), prompts_of(again), strict=True):
        assert own.key == other.key
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        build(replace(vlm.config, folder=str(tmp_path)))
