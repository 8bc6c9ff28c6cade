"""Times from data sheets: what more hardware, more tokens or a larger model must do to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import ConfigError
from dartsim.lab.roofline import (
    MODELS,
    READ_SHARE,
    SHEETS,
    call_seconds,
    engine_settings,
    switch_seconds,
    sync_seconds,
    update_settings,
)
from dartsim.sim.learner import UpdateParts

GPU, MODEL = SHEETS["H100"], MODELS["Qwen3-8B"]
SHEET, SIZE = st.sampled_from(list(SHEETS.values())), st.sampled_from(list(MODELS.values()))
LENGTHS = st.lists(st.integers(1, 20_000), min_size=1, max_size=40)


def update_seconds(lengths, gpu=GPU, model=MODEL, *, max_tokens=16_384, **options):
    found = update_settings(gpu, model, **{"gpus": 16, "ranks": 4, "efficiency": 1.0} | options)
    token = found["kilotoken_seconds"] * found["ranks"] / 1000.0
    costs = {name: found[name] for name in ("ranks", "stages", "step_seconds", "micro_seconds", "pair_seconds")}
    return UpdateParts(token_seconds=token, max_tokens=max_tokens, **costs).seconds(lengths)


@given(LENGTHS, SHEET, SIZE, st.sampled_from([1, 2, 4, 8]))
def test_more_ranks_never_take_more_time_for_the_same_update(lengths, gpu, model, ranks):
    def seconds(ranks):
        return update_seconds(lengths, gpu, model, gpus=16 * ranks, ranks=ranks, backend="fsdp")

    assert seconds(2 * ranks) <= seconds(ranks) * (1.0 + 1e-9)


@given(LENGTHS, SHEET, SIZE, st.floats(0.2, 2.0))
def test_efficiency_speeds_up_and_longer_replies_slow_down(lengths, gpu, model, efficiency):
    def seconds(lengths, efficiency):
        return update_seconds(lengths, gpu, model, efficiency=efficiency, backend="megatron")

    assert seconds(lengths, 1.1 * efficiency) < seconds(lengths, efficiency)
    assert seconds([length + 100 for length in lengths], efficiency) > seconds(lengths, efficiency)


def test_adapters_cost_less_than_all_weights_and_a_further_pass_more():
    lengths = [4_000] * 16
    assert update_seconds(lengths, trains="lora") < update_seconds(lengths) < update_seconds(lengths, forwards=1)


def test_an_engine_of_more_gpus_reads_faster_and_holds_more():
    one, two = (engine_settings(GPU, MODEL, gpus=gpus, efficiency=1.0) for gpus in (1, 2))
    assert two["iteration_seconds"] < one["iteration_seconds"]
    assert two["kv_tokens"] > 2 * one["kv_tokens"]
    assert one["kv_tokens"] == pytest.approx((0.9 * 85.5e9 - 4e9 - 2 * 8.19e9) / 147_456, abs=1)


def test_experts_are_read_besides_what_every_token_needs():
    found = engine_settings(SHEETS["H200"], MODELS["Qwen3-30B-A3B"], gpus=2, efficiency=1.0)
    rate = 2 * 4.8e12 * READ_SHARE
    read = found["expert_seconds"] * rate / 2.0
    assert found["expert_share"] == 8 / 128
    assert read == pytest.approx((30.5e9 - 3.3e9) / (1.0 - 8 / 128))


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="do not fit on an engine of 1 GPUs"):
        engine_settings(GPU, MODELS["Qwen2.5-72B"], gpus=1, efficiency=1.0)


@given(SIZE, st.integers(1, 64))
def test_a_sync_moves_every_byte_over_its_path(model, nodes):
    def seconds(path, **options):
        return sync_seconds(model, path, **{"gpu": GPU, "inside": False, "gpus": 8 * nodes} | options)

    assert seconds("nccl", inside=True) < seconds("nccl")
    assert seconds("files", gpus=8 * nodes + 8) < seconds("files")
    assert seconds("ipc", cost=2.0) == pytest.approx(2.0 * seconds("ipc"))
    few, many = (switch_seconds(model, weight_gpus=gpus, moment_gpus=8 * nodes + 8) for gpus in (8, 16))
    assert many < few < switch_seconds(model, weight_gpus=8, moment_gpus=8)


@pytest.mark.parametrize(
    ("name", "flops", "options"),
    [
        ("Qwen3-30B-A3B", 121e12, {"gpus": 16, "ranks": 8, "stages": 2, "expert_gpus": 8}),
        ("Qwen3-235B-A22B", 233e12, {"gpus": 256, "ranks": 16, "stages": 8, "expert_gpus": 32}),
    ],
)
def test_experts_are_trained_as_fast_as_published_within_a_factor_of_two(name, flops, options):
    """Megatron-Bridge 25.11 on H100 (FP8): docs/performance-summary.md at 00b7660, sequences of 4,096 tokens."""
    model = MODELS[name]
    kernels = {"backend": "megatron", "attention": "fa3", "recomputes": False}
    seconds = update_seconds([4_096] * 2_048, model=model, max_tokens=8_192, **kernels, **options)
    published = 2_048 * 4_096 * 6 * model.active / flops / options["gpus"]
    assert published / 2 < seconds < 2 * published


@pytest.mark.parametrize(
    ("name", "trained", "options", "published"),
    [
        ("Qwen3-4B", "full", {"written": 0.5}, 5.04),
        ("Qwen3-4B", "lora", {}, 2.69),
        ("Qwen3-30B-A3B", "lora", {}, 3.96),
    ],
)
def test_a_micro_batch_takes_what_prime_rl_published(name, trained, options, published):
    """8 H100, 16,384 tokens on each, nothing fitted: benchmarks/results/BENCHMARKS.md of prime-rl at 559b447."""
    options = {"gpus": 8, "ranks": 8, "attention": "fa3", **options}
    assert update_seconds([16_384] * 8, model=MODELS[name], trains=trained, **options) == pytest.approx(
        published, rel=0.25
    )


@pytest.mark.parametrize(
    ("model", "gpus", "path", "offloads", "published"),
    [
        ("Qwen2.5-32B", 16, "nccl", True, 17.9),
        ("Qwen2.5-32B", 16, "nccl", False, 14.2),
        ("DeepSeek-V3", 256, "packed", False, 22.9),
    ],
)
def test_a_sync_takes_what_was_published(model, gpus, path, offloads, published):
    """verl 1dda039, delta_weight_sync.md; NeMo-RL 7ea279a, checkpoint-engine-refit.md: 14.2 s, and 36.8 s unsharded."""
    found = sync_seconds(MODELS[model], path, gpu=GPU, inside=False, gpus=gpus, offloads=offloads)
    assert found == pytest.approx(published, rel=0.1)


def test_a_token_of_an_8b_model_takes_what_was_published():
    """Llama-3.1-8B on an H100, one request: 6.48 ms a token (dartsim/sim/gpu.py)."""
    found = engine_settings(GPU, MODEL, gpus=1, efficiency=1.0)
    assert found["iteration_seconds"] + 0.3e-3 == pytest.approx(6.48e-3, rel=0.1)


def test_only_batches_that_one_process_hands_over_cost_by_their_padding():
    """NeMo-RL issue 1877: 512 sequences of 32,768 tokens with 100 logits and ids each (12 bytes) take 135 s."""
    assert call_seconds(1_024, calls=3, padded=0) == call_seconds(1_024, calls=1, padded=0)
    one, two = (call_seconds(512, calls=calls, padded=32_768 * 100 // 4) for calls in (1, 2))
    assert 135 / 2.1 < two - one < 135 * 2.1
