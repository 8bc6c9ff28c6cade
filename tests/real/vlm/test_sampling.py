from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.real.vlm.packing import Example, pack, rows_of, score, split  # noqa: E402
from dartsim.real.vlm.sampling import prompt_rows, reply_keys, sample, score_reply, uniforms  # noqa: E402

SEEDS = [(1, 0), (2, 1), (3, 2), (4, 0)]


def scored(vlm, prompts: list[Any], replies: list[Any], max_tokens: int = 10**6) -> list[tuple[Any, Any]]:
    """Return the learner's log-probabilities and entropies of replies."""
    examples = [Example(prompt, reply.tokens) for prompt, reply in zip(prompts, replies, strict=True)]
    found: dict[int, tuple[Any, Any]] = {}
    for rows in split(rows_of(examples), max_tokens=max_tokens):
        packed = pack(vlm, rows, examples)
        with torch.no_grad():
            logprobs, entropies = score(vlm, packed)
        for number in {int(m) for m in packed.member}:
            mine = packed.member == number
            found[number] = (logprobs[mine].numpy(), entropies[mine].numpy())
    return [found[number] for number in range(len(prompts))]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("max_tokens", [10**6, 1])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_worker_and_learner_agree(make_vlm, prompts_of, family, max_tokens, temperature):
    vlm = make_vlm(family=family, grammar="free", max_new_tokens=40, temperature=temperature)
    prompts = prompts_of(vlm)
    replies = sample(vlm, prompts, SEEDS)
    for reply, (logprobs, entropies) in zip(replies, scored(vlm, prompts, replies, max_tokens), strict=True):
        assert np.abs(reply.logprobs - logprobs).max() < 1e-5
        assert np.abs(reply.entropies - entropies).max() < 1e-5


def test_temperature_0_takes_the_likeliest_tokens_whatever_the_seed(make_vlm, prompts_of):
    warm, cold = (make_vlm(grammar="free", max_new_tokens=12, temperature=heat) for heat in (1.0, 0.0))
    prompts = prompts_of(cold)
    others = [(seed + 7, turn) for seed, turn in SEEDS]
    wanted = [reply.tokens.tolist() for reply in sample(warm, prompts, SEEDS, greedy=True)]
    assert [reply.tokens.tolist() for reply in sample(cold, prompts, others)] == wanted


def test_a_given_reply_is_scored_as_if_it_were_sampled(make_vlm, prompts_of):
    vlm = make_vlm(grammar="free", max_new_tokens=12)
    prompt = prompts_of(vlm)[2]
    (reply,) = sample(vlm, [prompt], [(1, 0)])
    again = score_reply(vlm, prompt, reply.tokens.tolist())
    assert np.array_equal(reply.tokens, again.tokens)
    assert np.allclose(reply.logprobs, again.logprobs, atol=1e-5)
    assert np.allclose(reply.entropies, again.entropies, atol=1e-5)
    with pytest.raises(ValueError, match="not allowed"):
        score_reply(vlm, prompt, [vlm.vocabulary.image])


def test_in_bfloat16_they_agree_to_its_rounding(make_vlm, prompts_of):
    exact, rounded = (make_vlm(grammar="free", max_new_tokens=8, dtype=dtype) for dtype in ("float32", "bfloat16"))
    prompts = prompts_of(rounded)
    replies = sample(rounded, prompts, SEEDS)
    in_bfloat16, in_float32 = scored(rounded, prompts, replies), scored(exact, prompts, replies)
    for reply, (same, _), (other, _) in zip(replies, in_bfloat16, in_float32, strict=True):
        assert np.abs(reply.logprobs - same).max() < 0.05
        assert np.abs(reply.logprobs - other).max() > 1e-3


@pytest.mark.parametrize("grammar", ["free", "actions"])
def test_a_reply_does_not_depend_on_its_batch(make_vlm, prompts_of, grammar):
    vlm = make_vlm(grammar=grammar, max_new_tokens=50)
    prompts = prompts_of(vlm)
    together = sample(vlm, prompts, SEEDS)
    order = [2, 0, 3, 1]
    shuffled = sample(vlm, [prompts[i] for i in order], [SEEDS[i] for i in order])
    for place, number in enumerate(order):
        (alone,) = sample(vlm, [prompts[number]], [SEEDS[number]])
        for other in (shuffled[place], alone):
            assert np.array_equal(together[number].tokens, other.tokens)
            assert np.allclose(together[number].logprobs, other.logprobs, atol=1e-5)


def test_seed_and_turn_decide(make_vlm, prompts_of):
    vlm = make_vlm(grammar="free", max_new_tokens=8)
    prompt = prompts_of(vlm)[0]
    seeds = [(1, 0), (1, 1), (2, 0), (1, 0)]
    texts = [tuple(reply.tokens) for reply in sample(vlm, [prompt] * 4, seeds)]
    assert texts[0] == texts[3]
    assert len(set(texts)) == 3


def test_replies_come_in_the_proportions_of_their_probabilities(make_vlm, prompts_of):
    vlm = make_vlm(output_scale=0.3)
    prompt = prompts_of(vlm)[0]
    replies = sample(vlm, [prompt] * 4_000, [(seed, 0) for seed in range(4_000)])
    for token in np.flatnonzero(vlm.grammar.allowed):
        mine = [reply for reply in replies if reply.tokens[0] == token]
        assert abs(len(mine) / 4_000 - np.exp(mine[0].logprobs[0])) < 0.03
    probabilities = {int(r.tokens[0]): float(np.exp(r.logprobs[0])) for r in replies}
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    entropy = -sum(p * np.log(p) for p in probabilities.values())
    assert replies[0].entropies[0] == pytest.approx(entropy, abs=1e-5)


def test_no_special_token_but_the_end_is_sampled(make_vlm, prompts_of):
    vlm = make_vlm(grammar="free", max_new_tokens=30, output_scale=0.0)
    prompt = prompts_of(vlm)[0]
    replies = sample(vlm, [prompt] * 100, [(seed, 0) for seed in range(100)])
    special = vlm.vocabulary.special - {vlm.vocabulary.end}
    assert not special & {int(token) for reply in replies for token in reply.tokens}
    ended = [reply for reply in replies if reply.tokens[-1] == vlm.vocabulary.end]
    assert 0 < len(ended) < 100
    assert all(len(reply.tokens) == 30 for reply in replies if reply.tokens[-1] != vlm.vocabulary.end)


def test_it_samples_as_the_library_would_have_scored(make_vlm, prompts_of):
    """Likeliest replies are those of ``model.generate``."""
    vlm = make_vlm(grammar="free", max_new_tokens=12)
    prompt = prompts_of(vlm)[0]
    (mine,) = sample(vlm, [prompt], [(0, 0)], greedy=True)
    ids = torch.from_numpy(prompt.tokens)[None]
    pixels = torch.from_numpy(np.concatenate([p.patches for p in prompt.pictures])).float().view(-1, 3, 1, 14 * 14)
    mean, std = (torch.tensor(value).view(1, 3, 1, 1) for value in (vlm.rules.mean, vlm.rules.std))
    theirs = vlm.model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == vlm.vocabulary.image).int(),
        pixel_values=((pixels / 255.0 - mean) / std).expand(-1, -1, 2, -1).reshape(len(pixels), -1),
        image_grid_thw=torch.tensor([[1, *picture.grid] for picture in prompt.pictures]),
        do_sample=False,
        max_new_tokens=12,
        eos_token_id=vlm.vocabulary.end,
        pad_token_id=vlm.vocabulary.pad,
        suppress_tokens=sorted(vlm.vocabulary.special - {vlm.vocabulary.end}),
    )
    assert theirs[0, ids.shape[1] :].tolist() == mine.tokens.tolist()


def test_uniform_numbers_are_uniform_and_their_own():
    keys = reply_keys([(seed, turn) for seed in range(100) for turn in range(20)])
    assert len(set(keys.tolist())) == 2_000
    numbers = np.concatenate([uniforms(keys, place) for place in range(10)])
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts = np.bincount((numbers * 20).astype(int), minlength=20)
    assert np.abs(counts / 1_000 - 1).max() < 0.15
    assert abs(np.corrcoef(uniforms(keys, 0), uniforms(keys, 1))[0, 1]) < 0.1


def test_prompts_of_like_length_are_computed_together(make_vlm, prompts_of):
    vlm = make_vlm()
    prompts = prompts_of(vlm) * 3
    longest = max(len(prompt.tokens) for prompt in prompts)
    batches = prompt_rows(prompts, max_tokens=2 * longest)
    assert sorted(len(row.members) for batch in batches for row in batch) == [3, 3, 6]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(len(row.prompt.tokens) for row in batch) <= 2 * longest
