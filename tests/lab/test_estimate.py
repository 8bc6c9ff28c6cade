"""The estimate's formulas against the tiny model that exists, the transformers classes, and arithmetic by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.lab.estimate import estimate
from dartsim.lab.memory import GIB, learner_memory
from dartsim.lab.model_shapes import QWEN2_5_VL_7B, QWEN3_VL_8B, ModelShape, read_shape
from dartsim.real.containers.plan import desktops_by_host

SCREEN = (1920, 1080)
PRESETS = tuple(f"{family}-{gpus}gpu" for family in ("osworld", "osworld-dartsim") for gpus in (1, 8, 16))


def test_qwen2_5_vl_7b_is_what_it_was_published_as():
    assert QWEN2_5_VL_7B.parameters == 8_292_166_656
    assert QWEN2_5_VL_7B.kv_bytes_per_token() == 28 * 2 * 4 * 128 * 2 == 57_344
    assert QWEN2_5_VL_7B.image_tokens(*SCREEN) == (1932 // 28) * (1092 // 28) == 2_691


@pytest.mark.parametrize("shape", [QWEN2_5_VL_7B, QWEN3_VL_8B])
def test_the_transformers_classes_have_as_many_weights(shape: ModelShape):
    torch = pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("transformers", reason="needs the extra `train`")
    from dartsim.real.vlm.model import CLASSES

    config_class, model_class = CLASSES["qwen2_5_vl" if shape is QWEN2_5_VL_7B else "qwen3_vl"]
    text, vision = shape.text, shape.vision
    settings = {
        "text_config": {
            "vocab_size": text.vocabulary,
            "hidden_size": text.hidden,
            "intermediate_size": text.intermediate,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
        },
        "vision_config": {
            "depth": vision.depth,
            "hidden_size": vision.hidden,
            "intermediate_size": vision.intermediate,
            "num_heads": 16,
            "out_hidden_size": vision.out,
            "patch_size": vision.patch,
        },
        "tie_word_embeddings": False,
    }
    if shape is QWEN3_VL_8B:
        settings["text_config"]["head_dim"] = text.head_dim
        settings["vision_config"] |= {"num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]}
    with torch.device("meta"):
        model = model_class(config_class(**settings))
    assert sum(p.numel() for p in model.parameters()) == shape.parameters
    assert sum(p.numel() for p in model.model.visual.parameters()) == shape.vision.parameters
    layers = model.model.language_model.layers
    assert sum(p.numel() for p in layers[0].parameters()) == text.layer_parameters


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_folder_is_read_for_what_its_model_has(family: str, tmp_path: Path):
    torch = pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("transformers", reason="needs the extra `train`")
    from dartsim.config.sections.trainer import LoraConfig
    from dartsim.real.vlm import build, tiny
    from dartsim.real.vlm.export import export
    from dartsim.real.vlm.lora import add_lora

    vlm = build(tiny(family=family))
    shape = read_shape(export(vlm, tmp_path / "model"))
    assert shape.parameters == vlm.num_parameters
    rows, columns = vlm.rules.shape(112, 112)
    patch = vlm.rules.patch_size
    smallest = shape.vision.patch * shape.vision.merge
    assert (rows // patch) * (columns // patch) == (112 // smallest) ** 2 * 4
    # Keys and values of one token, from the very tensors that a layer makes.
    attention = vlm.model.model.language_model.layers[0].self_attn
    hidden = torch.zeros(1, 1, shape.text.hidden)
    made = attention.k_proj(hidden).nbytes + attention.v_proj(hidden).nbytes
    assert shape.kv_bytes_per_token(4) == made * shape.text.layers
    add_lora(vlm.model, LoraConfig(rank=3), seed=0)
    added = sum(p.numel() for name, p in vlm.model.named_parameters() if ".lora_" in name)
    assert shape.text.lora_parameters(3) == added


def test_a_flat_config_is_read_too(tmp_path: Path):
    text, vision = QWEN2_5_VL_7B.text, QWEN2_5_VL_7B.vision
    flat = {
        "model_type": "qwen2_5_vl",
        "vocab_size": text.vocabulary,
        "hidden_size": text.hidden,
        "intermediate_size": text.intermediate,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads,
        "num_key_value_heads": text.kv_heads,
        "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": vision.out},
    }
    (tmp_path / "config.json").write_text(json.dumps(flat), encoding="utf-8")
    assert read_shape(tmp_path).parameters == QWEN2_5_VL_7B.parameters


def test_another_family_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "llava"}', encoding="utf-8")
    with pytest.raises(ConfigError, match="'llava'"):
        read_shape(tmp_path)


# ---- engines and ranks


def learner(**changes):
    options = {"ranks": 4, "tokens": 20_480, "images": 5, "replies": 8, "screen": SCREEN}
    return learner_memory(QWEN2_5_VL_7B, **{**options, **changes})


def test_a_trained_weight_takes_16_bytes_and_4_for_the_reference():
    found = learner()
    state = found.parameters + found.gradients + found.optimizer
    assert state == pytest.approx(16 * QWEN2_5_VL_7B.parameters / 4, rel=1e-9)
    assert found.reference == QWEN2_5_VL_7B.parameters * 4 // 4
    assert learner(reference=False).reference == 0
    assert found.total == state + found.reference + found.gathered + found.activations + found.logits + found.reserve


# ---- configurations


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("model", [(), ("policy.model=models/Qwen3-VL-8B", "policy.family=qwen3_vl")])
def test_each_preset_fits_on_its_gpus(name: str, model: tuple[str, ...]):
    config = load(name, overrides=model)
    found = estimate(config)
    assert found is not None
    assert len(found.gpus) == int(name.rpartition("-")[2].removesuffix("gpu"))
    figures = found.figures
    assert all(sum(gpu["holds_gib"].values()) <= figures["gpu_gib"] for gpu in figures["gpus"])
    assert sum(desktops_by_host(config).values()) == config.rollout.num_desktops
    assert max(desktops_by_host(config).values()) * 4.2 < config.cluster.hosts.memory_gib
    assert figures["prompt_tokens"] + config.policy.max_new_tokens < figures["longest_tokens"]
    assert figures["longest_tokens"] <= config.vllm.max_model_len


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("trainer.fsdp.gpus=[0,3,4,5,6,7]",), "GPU 0 of this machine would hold engine-0 with .* and rank-0 with"),
        (
            ("trainer.fsdp.ranks=2", "trainer.fsdp.gpus=[6,7]"),
            "GPU 6 of this machine would hold rank-0 .* more ranks",
        ),
        (("trainer.fsdp.checkpointing=false",), "trainer.fsdp.checkpointing"),
        (("vllm.max_model_len=8192",), "vllm.max_model_len = 8192; raise it to"),
        (("vllm.max_model_len=20480",), "has, with its own reply, up to 29227 tokens"),
        (("vllm.gpu_memory_share=0.25",), "vLLM would not start"),
    ],
)
def test_what_cannot_fit_is_refused_with_what_to_change(changes, said):
    with pytest.raises(ConfigError, match=said):
        estimate(load("osworld-8gpu", overrides=changes))


# ---- what else a run needs


def test_host_memory_counts_the_turns_of_an_update():
    def host(*changes: str) -> int:
        found = estimate(load("osworld-8gpu", overrides=changes))
        assert found is not None
        return found.host.later

    turns = 8 * 8 * 30
    screenshot, prompt = 1920 * 1080 * 3 / 5, 2 * 32 * 16_971  # a PNG file; tokens and positions
    model = 4 * QWEN2_5_VL_7B.parameters
    desktops = 38 * (30 * screenshot + 3 * 5 * screenshot)  # PNG files, and three decoded screens of each
    by_hand = 2 * model + model + model // 2 + 3 * model + turns * (screenshot + prompt) + desktops + 2**30
    assert host() == pytest.approx(by_hand, abs=1)
    assert host() - host("curation.batch.max_groups=7") == pytest.approx(8 * 30 * (screenshot + prompt), abs=1)
    assert host() - host("trainer.optimizer.minibatches=1") == 3 * model  # no step has to be taken back


def test_host_memory_counts_the_desktops_of_the_driver_s_own_engine():
    def both(*changes: str) -> tuple[int, int]:
        found = estimate(load("osworld-dartsim-16gpu", overrides=changes))
        assert found is not None
        return found.host.start, found.host.later

    (start, update), (elsewhere, _) = both(), both("desktop.hosts.vm-1.url=ssh://osworld@vm-1")
    assert start - elsewhere == round(40 * 4.2 * GIB)
    assert update > 40 * 4.2 * GIB
