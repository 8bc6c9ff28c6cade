import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.real.vlm.packing import Example, hidden, pack, rows_of  # noqa: E402

NOTHING = np.zeros(0, dtype=np.int64)


def library_logits(vlm, prompt):
    """Return the logits of the transformers class's own forward pass."""
    ids = torch.from_numpy(prompt.tokens)[None]
    pixels = torch.from_numpy(np.concatenate([p.patches for p in prompt.pictures])).float().view(-1, 3, 1, 14 * 14)
    mean, std = (torch.tensor(value).view(1, 3, 1, 1) for value in (vlm.rules.mean, vlm.rules.std))
    pixels = ((pixels / 255.0 - mean) / std).expand(-1, -1, 2, -1).reshape(len(pixels), -1)
    grids = torch.tensor([[1, *picture.grid] for picture in prompt.pictures])
    kinds = (ids == vlm.vocabulary.image).int()
    with torch.no_grad():
        return vlm.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=pixels,
            image_grid_thw=grids,
            mm_token_type_ids=kinds,
        ).logits[0]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("size", [(56, 56), (112, 112), (168, 224), (224, 224), (84, 140)])
def test_it_computes_what_the_library_does(make_vlm, prompts_of, family, size):
    vlm = make_vlm(family=family)
    prompts = prompts_of(vlm, size)[:3]
    with torch.no_grad():
        for prompt in prompts:
            examples = [Example(prompt, NOTHING)]
            packed = pack(vlm, rows_of(examples), examples)
            got = vlm.trunk.logits(hidden(vlm, packed.inputs, packed.attend))
            assert torch.allclose(got, library_logits(vlm, prompt), atol=2e-5)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_checkpointing_changes_no_gradient(make_vlm, prompts_of, family):
    from dartsim.real.vlm.packing import score

    gradients = []
    for checkpointing in (False, True):
        vlm = make_vlm(family=family)
        vlm.trunk.checkpointing = checkpointing
        examples = [Example(prompt, np.array(vlm.grammar.tokens("click 1 0"))) for prompt in prompts_of(vlm)]
        logprobs, _ = score(vlm, pack(vlm, rows_of(examples), examples))
        logprobs.sum().backward()
        gradients.append([p.grad.clone() for p in vlm.model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
