"""What is served is what the learner computes, in every precision: small steps arrive from the first update on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch.distributed as dist  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch._C._distributed_c10d import HashStore  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from dartsim.config import load  # noqa: E402
from dartsim.config.sections.trainer import ObjectiveConfig, TrainerConfig  # noqa: E402
from dartsim.core.errors import BatchUntrainable  # noqa: E402
from dartsim.core.types import Batch, Weights  # noqa: E402
from dartsim.real.learners.fsdp.files import Setup, write_turns  # noqa: E402
from dartsim.real.learners.fsdp.rank import Rank  # noqa: E402
from dartsim.real.learners.gradient_steps import TINY, GradientSteps  # noqa: E402
from dartsim.real.learners.ranks import Ranks  # noqa: E402
from dartsim.real.learners.torch_learner import TorchLearner  # noqa: E402
from dartsim.real.learners.turn_data import read_turns  # noqa: E402
from dartsim.real.vlm import VlmPolicy  # noqa: E402
from dartsim.real.vlm.export import export, read_weights  # noqa: E402
from dartsim.real.vlm.lora import PREFIX, add_lora, merged  # noqa: E402
from dartsim.real.vlm.packing import pack, rows_of, score  # noqa: E402

UPDATES = (1, 5, 20)
OBJECTIVE = ObjectiveConfig(kl_coefficient=0.0, importance="off")
LORA = {"rank": 4, "alpha": 8}
TRAINED = {
    "full": (TrainerConfig(objective=OBJECTIVE), "osworld-8gpu"),
    "lora": (TrainerConfig(objective=OBJECTIVE, lora=LORA), "osworld-1gpu"),
}
everything = pytest.mark.parametrize("trained", TRAINED)
everywhere = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def settings(trained: str) -> TrainerConfig:
    """Return the settings with the rate of the preset that trains so."""
    config, preset = TRAINED[trained]
    rate = load(preset).trainer.optimizer.learning_rate
    return config.replace(optimizer={"learning_rate": rate})


def scored(batch: Batch) -> Batch:
    groups = [
        replace(g, trajectories=tuple(replace(t, reward=float(t.attempt.index % 2)) for t in g.trajectories))
        for g in batch.groups
    ]
    return replace(batch, groups=tuple(groups))


@pytest.fixture
def batch(make_vlm, play_batch) -> Batch:
    return scored(play_batch(VlmPolicy(make_vlm())))


def change(weights, first) -> dict[str, Any]:
    """Return what the weights and the adapter among them have changed since the first ones, in float64."""
    changes = {name: weights[name].double() - first[name].double() for name in first}
    for name in weights:
        if name.startswith(PREFIX) and name.endswith(".lora_A.weight"):
            module = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
            changes[f"{module}.weight"] += weights[f"{PREFIX}{module}.lora_B.weight"].double() @ weights[name].double()
    return changes


def arrived(served, computed) -> float:
    """Return the share of a change that another one has: 1 if they are equal, 0 if it is none of it."""
    total = sum(float(tensor.square().sum()) for tensor in computed.values())
    return sum(float((served[name] * tensor).sum()) for name, tensor in computed.items()) / total


def outputs(vlm, data):
    with torch.no_grad():
        return score(vlm, pack(vlm, rows_of(data.examples), data.examples))[0]


@everything
@everywhere
def test_a_policy_computes_what_its_learner_does(make_vlm, batch, dtype, trained):
    vlm = make_vlm(dtype=dtype)
    policy, data = VlmPolicy(vlm.twin()), read_turns(batch, vlm, OBJECTIVE.advantage)
    first = vlm.snapshot()
    learner = TorchLearner(vlm, settings(trained))
    for update in range(1, max(UPDATES) + 1):
        published = learner.train(replace(batch, update=update)).weights
        if update not in UPDATES:
            continue
        policy.add(published)
        policy.vlm.use(policy._versions[update])
        assert torch.equal(outputs(policy.vlm, data), outputs(vlm, data))
        computed = change(vlm.snapshot(), first)
        assert arrived(change(policy.vlm.snapshot(), first), computed) == pytest.approx(1.0)
        assert all(t.dtype == torch.float32 for t in learner._steps.parameters.values())
        assert {t.dtype for state in learner.optimizer.state.values() for t in state.values()} == {torch.float32}


@everything
@everywhere
def test_equal_steps_add_up_and_go_on_after_a_restart(make_vlm, batch, tmp_path, dtype, trained):
    """With equal gradients each of AdamW's steps is the learning rate, whatever the weights are held in."""
    config = settings(trained)
    rate = config.optimizer.learning_rate

    def steps_of() -> tuple[Any, GradientSteps]:
        vlm = make_vlm(dtype=dtype)
        if trained == "lora":
            add_lora(vlm.model, config.lora, seed=0)
        ours = [p for p in vlm.model.parameters() if p.requires_grad]

        def linear(packed) -> tuple[Any, Any]:
            total = torch.stack([p.float().sum() for p in ours]).sum()
            return (1.0 + packed.member % 2) * total, torch.zeros(len(packed.member))

        return vlm, GradientSteps(vlm, config, seed=0, scorers=(linear, None))

    vlm, steps = steps_of()
    data = read_turns(batch, vlm, OBJECTIVE.advantage)
    begin = {name: tensor.double().clone() for name, tensor in steps.parameters.items()}
    for update in range(1, 21):
        if update == 11:
            state = steps.state()
            vlm, steps = steps_of()
            steps.restore(state)
        steps.fit(data, update)
        if update in UPDATES:
            moved = torch.cat([(p.double() - begin[name]).flatten() for name, p in steps.parameters.items()])
            assert float(moved.detach().abs().mean()) == pytest.approx(update * rate, rel=0.01)
            # The model holds the sums, rounded once.
            for name, parameter in vlm.model.named_parameters():
                if parameter.requires_grad:
                    assert torch.equal(parameter.detach(), steps.parameters[name].detach().to(parameter.dtype))


@pytest.fixture
def peers() -> Iterator[Ranks]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield Ranks(torch.device("cpu"))
    dist.destroy_process_group()


def masters(folder: Path, first, scale: float) -> dict[str, Any]:
    """Return what a learner of several processes trains, from its checkpoint of any number of them, as weights."""
    parts: dict[str, Any] = {}
    for file in sorted((folder / "parts").glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            assert tensor.dtype == torch.float32, name
            parts.setdefault(name, []).append(tensor)
    weights = dict(first)
    for name, pieces in parts.items():
        if name.startswith("weight/"):
            own = name.removeprefix("weight/")
            whole = torch.cat(pieces)  # parameters are divided along their first dimension
            if ".lora_" in own:
                weights[PREFIX + own.replace(".default.", ".")] = whole * (scale if "lora_B" in own else 1.0)
            else:
                weights[own] = whole
    return weights


def check_published(folder: Path, kept: Path, first, dtype):
    """Check that what is published in the type of an engine is what the processes compute with in this type."""
    served, computed = read_weights(folder, first), masters(kept, first, LORA["alpha"] / LORA["rank"])
    rounded = {name: tensor.to(getattr(torch, dtype)) for name, tensor in computed.items()}
    for name, tensor in served.items():
        assert torch.equal(tensor, rounded[name]), name
    if all(name.startswith(PREFIX) for name in served):
        assert arrived(change({**first, **served}, first), change(computed, first)) == pytest.approx(1.0, abs=0.01)


@pytest.mark.filterwarnings("default")  # torch's own
@everything
@everywhere
def test_a_rank_publishes_what_it_computes(make_vlm, batch, peers, tmp_path, dtype, trained):
    vlm = make_vlm(dtype=dtype)
    config = settings(trained).replace(fsdp={"ranks": 1, "precision": dtype})
    model = replace(vlm.config, folder=str(export(vlm, tmp_path / "model")))
    setup = Setup(model=model, trainer=config, seed=5, export_dtype=dtype)
    rank = Rank(setup, init_device_mesh("cpu", (1,)), peers)
    write_turns(read_turns(batch, vlm, OBJECTIVE.advantage), tmp_path / "turns")
    order = {"do": "train", "turns": str(tmp_path / "turns"), "weights": str(tmp_path / "new")}
    for update in range(1, max(UPDATES) + 1):
        more = {"checkpoint": str(tmp_path / "kept")} if update in UPDATES else {}
        rank.do({**order, **more, "update": update})
        if more:
            check_published(tmp_path / "new", tmp_path / "kept", vlm.snapshot(), dtype)


def test_merged_into_bfloat16_a_small_change_is_lost_and_that_is_said(make_vlm, batch, caplog):
    """Adapters exist for this: in float32 nothing is lost."""
    left = {}
    for dtype in ("float32", "bfloat16"):
        vlm = make_vlm(dtype=dtype)
        first = vlm.snapshot()
        learner = TorchLearner(vlm, settings("lora"))
        learner.train(batch)
        caplog.clear()
        left[dtype] = arrived(change(merged(vlm.snapshot()), first), change(vlm.snapshot(), first))
        assert bool(caplog.records) == (dtype == "bfloat16")
    assert left["float32"] == pytest.approx(1.0, abs=1e-3)
    assert left["bfloat16"] < 0.5


def silent(batch: Batch) -> Batch:
    """Return a batch whose workers gave no log-probabilities."""
    groups = [
        replace(
            group,
            trajectories=tuple(
                replace(t, turns=tuple(u._replace(reply=u.reply._replace(logprobs=None)) for u in t.turns))
                for t in group.trajectories
            ),
        )
        for group in batch.groups
    ]
    return replace(batch, groups=tuple(groups))


def even(batch: Batch) -> Batch:
    """Return a batch whose attempts have equal rewards, but for a sum's last digit."""
    rewards = [0.3, 0.3, 0.3, 0.1 + 0.2]
    groups = [
        replace(g, trajectories=tuple(replace(t, reward=r) for t, r in zip(g.trajectories, rewards, strict=True)))
        for g in batch.groups
    ]
    return replace(batch, groups=tuple(groups))


@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.parametrize("spoil", [silent, even])
def test_a_batch_without_a_signal_is_no_update(make_vlm, batch, minibatches, spoil):
    """Momentum and weight decay would move the weights."""
    config = TINY.replace(
        objective=ObjectiveConfig(kl_coefficient=0.0), optimizer={"minibatches": minibatches, "weight_decay": 0.1}
    )
    learner = TorchLearner(make_vlm(), config)
    learner.train(batch)
    before, state = learner.weights(), learner._steps.state()[0]
    with pytest.raises(BatchUntrainable):
        learner.train(replace(spoil(batch), update=2))
    after = learner.weights()
    assert after.version == before.version == 1
    assert all(torch.equal(tensor, after.source[name]) for name, tensor in before.source.items())
    assert all(torch.equal(tensor, state[name]) for name, tensor in learner._steps.state()[0].items())
    assert learner.train(replace(batch, update=2)).weights.version == 2


@pytest.mark.parametrize("silent_groups", [1, 2, 3])
def test_a_step_without_a_signal_is_left_out(make_vlm, batch, silent_groups):
    """Four mini-batches of one group each: as many steps are taken as there are groups with log-probabilities."""
    config = TINY.replace(objective=ObjectiveConfig(kl_coefficient=0.0), optimizer={"minibatches": 4})
    learner = TorchLearner(make_vlm(), config)
    groups = (*silent(batch).groups[:silent_groups], *batch.groups[silent_groups:])
    learner.train(replace(batch, groups=groups))
    assert {float(state["step"]) for state in learner.optimizer.state.values()} == {4.0 - silent_groups}
    assert isinstance(learner.weights(), Weights)
