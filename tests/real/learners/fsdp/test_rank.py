"""One rank in this process: what a learner can be set to gives the single process's weights."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import HashStore  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from dartsim.config.sections.trainer import ObjectiveConfig  # noqa: E402
from dartsim.real.learners.fsdp.files import Setup, write_turns  # noqa: E402
from dartsim.real.learners.fsdp.rank import Rank  # noqa: E402
from dartsim.real.learners.gradient_steps import TINY  # noqa: E402
from dartsim.real.learners.ranks import Ranks  # noqa: E402
from dartsim.real.learners.torch_learner import TorchLearner  # noqa: E402
from dartsim.real.learners.turn_data import read_turns  # noqa: E402
from dartsim.real.vlm.export import export, read_weights  # noqa: E402


@pytest.fixture
def peers() -> Iterator[Ranks]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield Ranks(torch.device("cpu"))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("default")  # torch's own
@pytest.mark.parametrize(
    ("family", "config", "precision"),
    [
        ("qwen2_5_vl", TINY.replace(lora={"rank": 2}), "float32"),
        ("qwen3_vl", TINY.replace(fsdp={"checkpointing": True}, optimizer={"max_tokens": 60}), "float32"),
        (
            "qwen2_5_vl",
            TINY.replace(
                objective=ObjectiveConfig(kl_coefficient=0.1),
                optimizer={"minibatches": 2, "epochs": 2},
            ),
            "float32",
        ),
        ("qwen2_5_vl", TINY.replace(fsdp={"checkpointing": True}), "bfloat16"),
        ("qwen3_vl", TINY, "bfloat16"),
    ],
    ids=["lora", "checkpointing", "reference", "half", "half qwen3"],
)
def test_settings_are_those_of_the_single_process(make_vlm, batches, peers, tmp_path, family, config, precision):
    vlm = make_vlm(family=family)
    model = replace(vlm.config, folder=str(export(vlm, tmp_path / "model")))
    config = config.replace(fsdp={"ranks": 1, "precision": precision})
    setup = Setup(model=model, trainer=config, seed=5)
    setup.write(tmp_path)
    assert Setup.read(tmp_path) == setup
    rank = Rank(setup, init_device_mesh("cpu", (1,)), peers)
    alone = TorchLearner(vlm, config, seed=5)
    found: Any = {}
    wanted: Any = {}
    for update, batch in enumerate(batches[:2], 1):
        wanted = alone.train(batch).metrics
        write_turns(read_turns(batch, vlm, config.objective.advantage), tmp_path / "turns")
        order = {"do": "train", "turns": str(tmp_path / "turns"), "update": update, "weights": str(tmp_path / "new")}
        found = rank.do(order)["metrics"]
    published = alone.weights().source
    weights = read_weights(tmp_path / "new", published)
    assert weights.keys() == published.keys()
    gaps = [float((weights[name] - t).abs().max()) for name, t in published.items()]
    if precision == "float32":
        assert max(gaps) == 0.0
        assert found == wanted
    else:  # 8 bits of mantissa: log-probabilities are off by some 1e-2; weights stay in float32
        assert found["learner/loss"] == pytest.approx(wanted["learner/loss"], abs=0.02)
        assert 0.0 < max(gaps) < 4 * config.optimizer.learning_rate
        assert all(tensor.dtype is torch.float32 for tensor in weights.values())


@pytest.mark.filterwarnings("default")  # torch's own
@pytest.mark.parametrize("config", [TINY, TINY.replace(lora={"rank": 2})], ids=["full", "lora"])
def test_a_checkpoint_from_before_the_first_update_is_the_reference(make_vlm, batches, peers, tmp_path, config):
    vlm = make_vlm(seed=2)
    config = config.replace(objective={"kl_coefficient": 0.1}, fsdp={"ranks": 1})
    TorchLearner(make_vlm(seed=1), config, seed=5).save(tmp_path / "base")
    model = replace(vlm.config, folder=str(export(vlm, tmp_path / "model")))
    rank = Rank(Setup(model=model, trainer=config, seed=5), init_device_mesh("cpu", (1,)), peers)
    rank.do({"do": "load", "folder": str(tmp_path / "base"), "version": None})
    write_turns(read_turns(batches[0], vlm, config.objective.advantage), tmp_path / "turns")
    order = {"do": "train", "turns": str(tmp_path / "turns"), "weights": str(tmp_path / "new")}
    first, second = (rank.do({**order, "update": update})["metrics"] for update in (1, 2))
    assert first["objective/kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert second["objective/kl_reference"] > 1e-6
