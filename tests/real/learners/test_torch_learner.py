import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402

from dartsim.config import load  # noqa: E402
from dartsim.config.sections.trainer import ObjectiveConfig  # noqa: E402
from dartsim.core.errors import LearnerFault  # noqa: E402
from dartsim.core.types import Batch, Request  # noqa: E402
from dartsim.real.learners.gradient_steps import TINY  # noqa: E402
from dartsim.real.learners.torch_learner import TorchLearner  # noqa: E402
from dartsim.real.vlm import PromptStyle, VlmPolicy  # noqa: E402
from dartsim.real.vlm.lora import merged  # noqa: E402
from dartsim.real.vlm.packing import Example, pack, rows_of, score  # noqa: E402
from dartsim.trainer.objective import objective  # noqa: E402

FREE = {"grammar": "free", "max_new_tokens": 6}
OBJECTIVE = ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.02)


def weights(learner: TorchLearner) -> dict[str, Any]:
    return dict(learner.weights().source)


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def edited(batch: Batch, change) -> Batch:
    """Return a batch whose trajectories are changed."""
    groups = [replace(g, trajectories=tuple(change(t) for t in g.trajectories)) for g in batch.groups]
    return replace(batch, groups=tuple(groups))


def scored(batch: Batch) -> Batch:
    """Return a batch whose rewards alternate, so that every group has a signal."""
    return edited(batch, lambda t: replace(t, reward=float(t.attempt.index % 2)))


@pytest.fixture
def batch(make_vlm, play_batch) -> Batch:
    return scored(play_batch(VlmPolicy(make_vlm())))


def test_an_update_makes_the_version_of_its_number(make_vlm, batch):
    learner = TorchLearner(make_vlm(), TINY)
    before = weights(learner)
    result = learner.train(batch)
    assert result.weights.version == batch.update == 1
    assert not equal(before, result.weights.source)
    assert equal(weights(learner), result.weights.source)
    assert result.metrics["learner/turns"] == batch.num_turns == 16
    assert result.metrics["learner/sequences"] == 4, "attempts share a prompt, and replies are single tokens"
    assert result.metrics["learner/computed_tokens"] == result.metrics["learner/turn_tokens"] / 4
    assert all(np.isfinite(value) for value in result.metrics.values())


@pytest.mark.parametrize("grammar", [{}, FREE])
def test_at_equal_weights_worker_and_learner_agree(make_vlm, play_batch, grammar):
    vlm = make_vlm(**grammar)
    policy = VlmPolicy(vlm.twin())
    policy.vlm.model.requires_grad_(False)
    learner = TorchLearner(vlm, TINY)
    batch = play_batch_text(play_batch, policy) if grammar else play_batch(policy)
    metrics = learner.train(scored(batch)).metrics
    assert metrics["importance/mismatch_max"] < 1e-4
    assert metrics["objective/missing_share"] == 0.0


def play_batch_text(play_batch, policy: VlmPolicy) -> Batch:
    """Play a batch where any text is a click."""

    class Clicks:
        def compute(self, requests, version: int):
            return [c._replace(action="click 0 0") for c in policy.compute(requests, version)]

    return play_batch(Clicks())


def test_published_weights_never_change(make_vlm, batch):
    learner = TorchLearner(make_vlm(), TINY)
    first = learner.train(batch).weights.source
    copy = {name: tensor.clone() for name, tensor in first.items()}
    learner.train(replace(batch, update=2))
    assert equal(first, copy)


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        TINY.replace(optimizer={"minibatches": 2, "epochs": 2}),
        TINY.replace(lora={"rank": 2}),
    ],
    ids=["one step", "mini-batches", "lora"],
)
def test_a_checkpoint_goes_on_exactly(make_vlm, play_batch, tmp_path, config):
    batches = [scored(play_batch(VlmPolicy(make_vlm()), update, 0)) for update in (1, 2, 3, 4)]
    straight = TorchLearner(make_vlm(), config, seed=5)
    for batch in batches:
        straight.train(batch)

    first = TorchLearner(make_vlm(), config, seed=5)
    for batch in batches[:2]:
        first.train(batch)
    first.save(tmp_path / "step")
    first.save(tmp_path / "step")  # over an older one
    second = TorchLearner(make_vlm(), config, seed=5)
    second.load(tmp_path / "step")
    assert second.updates == 2
    for batch in batches[2:]:
        second.train(batch)
    assert equal(weights(straight), weights(second))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step"]
    assert not list(tmp_path.rglob("*.pt"))


def test_a_checkpoint_of_another_model_or_seed_is_refused(make_vlm, tmp_path):
    TorchLearner(make_vlm(), TINY, seed=1).save(tmp_path / "a")
    with pytest.raises(ValueError, match="seed 1"):
        TorchLearner(make_vlm(), TINY, seed=2).load(tmp_path / "a")
    with pytest.raises(ValueError, match="another model"):
        TorchLearner(make_vlm(family="qwen3_vl"), TINY, seed=1).load(tmp_path / "a")


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": {"max_tokens": 90}, "fsdp": {"checkpointing": True}},
        {"lora": {"rank": 2}, "objective": {"kl_coefficient": 0.1}},
        {"optimizer": {"minibatches": 2, "learning_rate": 1e-7}, "objective": {"importance": "sequence"}},
    ],
    ids=["small micro-batches", "low rank and reference", "mini-batches"],
)
def test_turns_in_one_sequence_have_the_gradient_of_each_alone(make_vlm, long_batch, family, change):
    prompts = PromptStyle(max_images=4, images_after_cut=2, max_texts=9)
    found = []
    for how in ("turns", "trajectories"):
        vlm = make_vlm(family=family, grammar="free", max_new_tokens=24, prompts=prompts)
        config = TINY.replace(**change).replace(optimizer={"pack": how})
        learner = TorchLearner(vlm, config, select=lambda batch: [n % 4 != 1 for n in range(batch.num_turns)])
        metrics = dict(learner.train(long_batch(vlm, "click 1 0", "press the red button", "wait")).metrics)
        rows = metrics.pop("learner/sequences"), metrics.pop("learner/computed_tokens")
        trained = [p.grad.flatten() for p in vlm.model.parameters() if p.grad is not None]
        found.append((rows, metrics, torch.cat(trained)))
    (apart, wanted, gradient), (shared, metrics, same) = found
    assert shared[0] < apart[0]
    assert shared[1] < 0.7 * apart[1] <= 0.7 * metrics["learner/turn_tokens"]
    assert metrics == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert (same - gradient).norm() <= 1e-5 * gradient.norm()


def test_a_low_rank_learner_publishes_its_adapter(make_vlm, batch):
    vlm = make_vlm()
    learner = TorchLearner(vlm, TINY.replace(lora={"rank": 2}))
    before = make_vlm().snapshot()
    published = learner.train(batch).weights
    assert sum(t.numel() for t in published.source.values()) < 0.1 * vlm.num_parameters
    whole = merged({**before, **published.source})
    changed = {name for name in before if not torch.equal(before[name], whole[name])}
    assert changed
    assert all("language_model" in name and "proj" in name for name in changed)
    policy = VlmPolicy(make_vlm())
    policy.add(published)
    assert equal(vlm.twin().snapshot(), {**before, **published.source})
    shown = batch.trajectories[0].turns[0].observation
    (reply,) = policy.compute([Request(batch.trajectories[0].attempt, 0, shown, [])], 1)
    examples = [Example(vlm.prompts.build(shown, []), reply.tokens)]
    logprobs, _ = score(vlm, pack(vlm, rows_of(examples), examples))
    assert logprobs.detach().numpy() == pytest.approx(reply.logprobs, abs=1e-5)


def state_of(learner: TorchLearner) -> dict[str, torch.Tensor]:
    """Return weights and optimizer as a checkpoint holds them."""
    with tempfile.TemporaryDirectory() as folder:
        learner.save(Path(folder) / "state")
        files = sorted((Path(folder) / "state" / "parts").glob("*.safetensors"))
        return {name: tensor.clone() for file in files for name, tensor in load_file(file).items()}


def test_a_failed_update_changes_nothing(make_vlm, batch):
    raw = {"advantage": {"spread": "none"}}
    learner = TorchLearner(make_vlm(), TINY.replace(optimizer={"minibatches": 4}, objective=raw))
    learner.train(batch)
    before, state = weights(learner), state_of(learner)
    bad = edited(batch, lambda t: replace(t, reward=1e300 * t.reward if t.attempt.group == 12 else t.reward))
    with pytest.raises(LearnerFault, match="not finite"):
        learner.train(replace(bad, update=2))
    assert equal(before, weights(learner))
    assert equal(state, state_of(learner))
    assert learner.updates == 1


@pytest.mark.parametrize(("where", "trained", "minibatches"), [("backward", 1, 2), ("step", 0, 2), ("backward", 0, 1)])
def test_an_update_that_runs_out_of_memory_changes_nothing(make_vlm, batch, monkeypatch, where, trained, minibatches):
    """In whichever mini-batch: trained again, it makes the very weights that it would have made."""
    learner, other = (TorchLearner(make_vlm(), TINY.replace(optimizer={"minibatches": minibatches})) for _ in range(2))
    for update in range(1, trained + 1):
        learner.train(replace(batch, update=update))
        other.train(replace(batch, update=update))
    before, state = weights(learner), state_of(learner)
    steps: list[int] = []

    def fails(real):
        def call(*args, **kwargs):
            steps.append(1)
            if len(steps) == minibatches:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return real(*args, **kwargs)

        return call

    next_one = replace(batch, update=trained + 1)
    with monkeypatch.context() as patch:
        if where == "step":
            patch.setattr(learner.optimizer, "step", fails(learner.optimizer.step))
        else:
            patch.setattr("dartsim.real.learners.gradient_steps.objective", fails(objective))
        with pytest.raises(torch.OutOfMemoryError):
            learner.train(next_one)
    assert equal(before, weights(learner))
    assert equal(state, state_of(learner))
    assert {name.partition("/")[0] for name in state} >= ({"weight", "step", "exp_avg"} if trained else {"weight"})
    assert learner.updates == trained
    assert equal(weights_after(learner, next_one), weights_after(other, next_one))


def weights_after(learner: TorchLearner, batch: Batch) -> dict[str, Any]:
    return dict(learner.train(batch).weights.source)


def test_missing_log_probabilities_are_counted_and_masked(make_vlm, batch):
    def forget(trajectory):
        if trajectory.attempt.index:
            return trajectory
        (turn,) = trajectory.turns
        return replace(trajectory, turns=(turn._replace(reply=turn.reply._replace(tokens=None, logprobs=None)),))

    metrics = TorchLearner(make_vlm(), TINY).train(edited(batch, forget)).metrics
    assert metrics["objective/missing_share"] == 0.25
    assert metrics["objective/masked_share"] == 0.25
    assert metrics["learner/unwritable_turns"] == 0


def test_actions_that_the_grammar_cannot_write_are_left_out(make_vlm, batch):
    def foreign(trajectory):
        (turn,) = trajectory.turns
        reply = turn.reply._replace(tokens=None, logprobs=None, action="pyautogui.click(1, 2)")
        return replace(trajectory, turns=(turn._replace(reply=reply),))

    with pytest.raises(LearnerFault, match="16 could not be written"):
        TorchLearner(make_vlm(), TINY).train(edited(batch, foreign))


def test_a_reference_holds_the_policy_back(make_vlm, play_batch):
    moved = []
    for coefficient in (0.0, 5.0):
        vlm = make_vlm()
        objective = OBJECTIVE.replace(kl_coefficient=coefficient, entropy_coefficient=0.0)
        learner = TorchLearner(vlm, TINY.replace(objective=objective.replace(importance="off")))
        batch = scored(play_batch(VlmPolicy(make_vlm())))
        for update in range(1, 12):
            metrics = learner.train(replace(batch, update=update)).metrics
        again = TorchLearner(vlm.twin(), TINY.replace(objective=objective.replace(importance="token")))
        moved.append(again.train(batch).metrics["importance/mismatch_mean"])
        assert ("objective/kl_reference" in metrics) == (coefficient > 0)
    assert moved[1] < moved[0]


def test_a_checkpoint_from_before_the_first_update_is_the_reference(make_vlm, play_batch, tmp_path):
    config = TINY.replace(objective={"kl_coefficient": 0.1})
    TorchLearner(make_vlm(seed=1), config).save(tmp_path / "base")
    learner = TorchLearner(make_vlm(seed=2), config)
    learner.load(tmp_path / "base")
    batch = scored(play_batch(VlmPolicy(make_vlm(seed=1))))
    first, second = (learner.train(replace(batch, update=update)).metrics for update in (1, 2))
    assert first["objective/kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert second["objective/kl_reference"] > 1e-5
    learner.save(tmp_path / "later")
    again = TorchLearner(make_vlm(seed=1), config)
    again.load(tmp_path / "later")
    assert again.train(replace(batch, update=3)).metrics["objective/kl_reference"] > 1e-5


async def test_update_runs_inline_in_virtual_time(make_vlm, batch):
    import asyncio

    loop = asyncio.get_running_loop()
    start = loop.time()
    result = await TorchLearner(make_vlm(), TINY).update(batch)
    assert result.weights.version == 1
    assert loop.time() == start


@pytest.mark.parametrize("preset", ["dart", "dart-released", "osworld-1gpu", "osworld-8gpu", "osworld-16gpu"])
def test_ratios_are_clipped_with_the_settings_of_dart(make_vlm, batch, preset):
    """A single gradient step has ratios of 1, and nothing to clip: the released code takes two."""
    settings = load(preset).trainer
    learner = TorchLearner(make_vlm(), settings.replace(optimizer={"learning_rate": 1e-2, "max_tokens": 4_096}))
    metrics = learner.train(batch).metrics
    assert settings.optimizer.minibatches == 2
    assert metrics["objective/clipped_low_share"] + metrics["objective/clipped_high_share"] > 0.0
    assert metrics["objective/kl_old_new"] > 0.0
