"""LoRA in engines: served as an adapter, or merged where adapters cannot be served."""

import asyncio
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("httpx")

from dartsim.config import load  # noqa: E402
from dartsim.config.schema import VllmConfig  # noqa: E402
from dartsim.config.sections.trainer import LoraConfig  # noqa: E402
from dartsim.core.sync_modes import SyncMode  # noqa: E402
from dartsim.core.types import Weights  # noqa: E402
from dartsim.real.engines.backend import vllm_workers  # noqa: E402
from dartsim.real.engines.errors import WeightsRefused, WeightsTorn  # noqa: E402
from dartsim.real.engines.launcher import LocalEngine  # noqa: E402
from dartsim.real.engines.ledger import WeightsLedger, is_adapter_folder  # noqa: E402
from dartsim.real.engines.options import EngineOptions, serves_adapters  # noqa: E402
from dartsim.real.engines.weights import Spool  # noqa: E402
from dartsim.real.vlm import VlmPolicy, build  # noqa: E402
from dartsim.real.vlm.export import export, read_weights  # noqa: E402
from dartsim.real.vlm.lora import PREFIX, adapter_of, add_lora, blank_adapter  # noqa: E402
from dartsim.real.vlm.packing import Example, pack, rows_of, score  # noqa: E402
from dartsim.real.vlm.plan import vlm_config  # noqa: E402

pytestmark = pytest.mark.anyio

LOW_RANK = LoraConfig(rank=4, alpha=8)


def moved(vlm, seed: int) -> dict[str, Any]:
    """Train at random: return the adapter of a model whose LoRA is no longer 0."""
    random = torch.Generator().manual_seed(seed)
    for name, parameter in vlm.model.named_parameters():
        if ".lora_B" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=random)
    return adapter_of(vlm.model)


@pytest.fixture
def low_rank(make_vlm):
    vlm = make_vlm()
    add_lora(vlm.model, LOW_RANK, seed=0)
    return vlm


@pytest.mark.parametrize("as_folder", [False, True])
def test_an_adapter_is_passed_on_or_merged_by_those_who_cannot_serve_it(low_rank, tmp_path, as_folder):
    base = export(low_rank, tmp_path / "model", merge=False)
    adapter = moved(low_rank, 1)
    passing, merging = Spool(tmp_path / "passed", like=base), Spool(tmp_path / "merged", like=base, adapters=False)
    passed = asyncio.run(passing.folder(Weights(1, adapter)))
    assert is_adapter_folder(passed)
    assert {name: tensor.tolist() for name, tensor in read_weights(passed, ()).items()} == {
        name: tensor.tolist() for name, tensor in adapter.items()
    }
    folder = asyncio.run(merging.folder(Weights(1, passed if as_folder else adapter)))
    assert not is_adapter_folder(folder)
    whole, before = read_weights(folder, low_rank.snapshot()), read_weights(base, low_rank.snapshot())
    assert whole.keys() == before.keys()
    for name, tensor in whole.items():
        module = PREFIX + name.removesuffix(".weight")
        wanted = before[name].double()
        if f"{module}.lora_A.weight" in adapter:
            # The learner's own: B A, times alpha / rank.
            layer = low_rank.model.get_submodule(name.removesuffix(".weight"))
            a, b = layer.lora_A["default"].weight.double(), layer.lora_B["default"].weight.double()
            wanted = wanted + 2.0 * (b @ a)
        assert torch.allclose(tensor.double(), wanted, atol=1e-5)


def test_a_pool_takes_adapters_of_one_shape_beside_its_model(make_vlm, low_rank, tmp_path):
    ledger = WeightsLedger()
    spool = Spool(tmp_path / "versions")
    ledger.inspect(export(low_rank, tmp_path / "model", merge=False))
    for version in (1, 2):
        ledger.inspect(asyncio.run(spool.folder(Weights(version, moved(low_rank, version)))))
    other = asyncio.run(spool.folder(Weights(3, blank_adapter(make_vlm().model, 5))))
    with pytest.raises(WeightsTorn, match="28 of 28"):
        ledger.inspect(other)


def test_an_engine_is_started_with_room_for_the_adapter():
    options = EngineOptions(vllm=VllmConfig(python="py"), model="m", adapter="/first", lora_rank=20)
    command = options.command(1)
    assert command[command.index("--max-lora-rank") + 1] == "32"
    assert '"path": "/first"' in command[command.index("--lora-modules") + 1]
    assert "--enable-lora" not in EngineOptions(vllm=VllmConfig(python="py"), model="m").command(1)


def test_an_engine_reads_a_copy_of_its_adapter_that_outlives_the_folder(low_rank, tmp_path):
    """Newer versions take the folder's place while the engine has not read it yet."""
    engine = LocalEngine(EngineOptions(vllm=VllmConfig(python="py"), model="m"), tmp_path / "logs", name="engine-0")
    spool = Spool(tmp_path / "versions", keep=1)
    for version in (1, 2):
        adapter = moved(low_rank, version)
        folder = asyncio.run(spool.folder(Weights(version, adapter)))
        asyncio.run(engine.place_adapter(folder))
    shutil.rmtree(folder)
    found = read_weights(tmp_path / "logs" / "engine-0-adapter", ())
    assert {name: tensor.tolist() for name, tensor in found.items()} == {n: t.tolist() for n, t in adapter.items()}
    with pytest.raises(WeightsRefused, match="is not available"):
        asyncio.run(engine.place_adapter(folder))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (["trainer.lora.rank=4"], True),
        ([], False),
        (["trainer.lora.rank=4", 'vllm.addresses=["http://127.0.0.1:1"]'], False),
    ],
)
def test_adapters_are_for_engines_of_the_run(changes, wanted):
    assert serves_adapters(load("tiny", overrides=["backend.workers=vllm", *changes])) is wanted


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-4), ("bfloat16", 0.05)])
async def test_vllm_serves_what_the_learner_computes(vllm_python, request_of, dtype, most):
    """Log-probabilities under each adapter, in every mode of sync; those of the one before are far off."""
    changes = ["backend.workers=vllm", "rollout.num_workers=1", "trainer.lora.rank=4", "trainer.lora.alpha=8"]
    changes += ["backend.desktops=mock", "backend.learner=local", f'vllm.python="{vllm_python}"', f"vllm.dtype={dtype}"]
    config = load("tiny", overrides=changes)
    vlm = build(replace(vlm_config(config), dtype=dtype, output_scale=1.0))
    add_lora(vlm.model, LOW_RANK, seed=0)
    policy = VlmPolicy(vlm.twin())
    requests = [request_of(number, screen=number) for number in range(4)]

    def gap(replies: list[Any], version: int) -> float:
        """Return the largest difference between the engine's log-probabilities and the model's."""
        policy.vlm.use(policy._versions[version])
        examples = [
            Example(
                policy.vlm.prompts.build(request.observation, ()),
                np.asarray(reply.tokens),
            )
            for request, reply in zip(requests, replies, strict=True)
        ]
        with torch.no_grad():
            packed = pack(policy.vlm, rows_of(examples), examples)
            logprobs, _ = score(policy.vlm, packed)
        said = torch.tensor([float(replies[m].logprobs[c]) for m, c in zip(packed.member, packed.column, strict=True)])
        return float((logprobs - said).abs().max())

    async with vllm_workers(config, vlm, version=0) as (worker,):
        for version, mode in enumerate((SyncMode.DRAIN, SyncMode.KEEP, SyncMode.DRAIN), 1):
            weights = Weights(version, moved(vlm, version))
            policy.add(weights)
            await worker.load(weights, mode)
            replies = list(await asyncio.gather(*map(worker.generate, requests)))
            assert {reply.version for reply in replies} == {version}
            assert gap(replies, version) < most
            assert gap(replies, version - 1) > 2 * most
