import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.errors import WorkerFault  # noqa: E402
from dartsim.core.types import Attempt, Observation, Request, Task, Weights  # noqa: E402
from dartsim.real.vlm import VlmPolicy  # noqa: E402


def requests(count: int = 6) -> list[Request]:
    shot = np.random.default_rng(0).integers(0, 256, (56, 56, 3), dtype=np.uint8)
    shown = Observation(shot, "press the red button")
    return [Request(Attempt(i, Task("t", "press"), 0, i, i, 1, 0), 0, shown, []) for i in range(count)]


def test_each_version_answers_with_its_own_weights(make_vlm):
    vlm, other = make_vlm(seed=0), make_vlm(seed=1)
    policy = VlmPolicy(vlm)
    policy.add(Weights(1, other.snapshot()))
    alone = VlmPolicy(other).compute(requests(), 0)
    old = policy.compute(requests(), 0)
    new = policy.compute(requests(), 1)
    assert [c.logprobs[0] for c in new] == [c.logprobs[0] for c in alone]
    assert [c.logprobs[0] for c in new] != [c.logprobs[0] for c in old]
    assert [c.logprobs[0] for c in policy.compute(requests(), 0)] == [c.logprobs[0] for c in old]


def test_only_the_newest_versions_are_kept(make_vlm):
    vlm = make_vlm()
    policy = VlmPolicy(vlm, keep_versions=2)
    for version in (1, 2):
        policy.add(Weights(version, make_vlm(seed=version).snapshot()))
    assert policy.versions == (1, 2)
    with pytest.raises(WorkerFault, match="version 0 was asked for"):
        policy.compute(requests(), 0)


def test_weights_are_read_from_a_file(make_vlm, tmp_path):
    from safetensors.torch import save_file

    other = make_vlm(seed=1)
    save_file(other.snapshot(), tmp_path / "model.safetensors")
    policy = VlmPolicy(make_vlm())
    policy.add(Weights(1, str(tmp_path)))
    wanted = VlmPolicy(other).compute(requests(), 0)
    assert [c.logprobs[0] for c in policy.compute(requests(), 1)] == [c.logprobs[0] for c in wanted]


@pytest.mark.parametrize("source", [None, "/nowhere/at/all"])
def test_missing_weights_are_a_fault(make_vlm, source):
    with pytest.raises(WorkerFault):
        VlmPolicy(make_vlm()).add(Weights(1, source))


def test_weights_of_another_model_are_refused(make_vlm):
    policy = VlmPolicy(make_vlm())
    policy.add(Weights(1, make_vlm(family="qwen3_vl").snapshot()))
    with pytest.raises(ValueError, match="weights of this model"):
        policy.compute(requests(), 1)
