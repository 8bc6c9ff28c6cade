import base64
import io
import json
import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dartsim.core.png import Screenshot, encode_png
from dartsim.real.engines.errors import EngineBadReply
from dartsim.real.engines.request_codec import RequestCodec, lower_bounds
from dartsim.real.engines.sent_images import SentImages, image_part
from dartsim.real.vlm.config import VlmConfig
from dartsim.real.vlm.images import ImageRules


def answer_of(asked, tokens: list[int], **changes) -> dict[str, Any]:
    content = [{"token_id": token, "logprob": -0.5, "rank": 1, "top_logprobs": []} for token in tokens]
    choice = {
        "token_ids": tokens,
        "finish_reason": "stop",
        "logprobs": {"content": content},
        "weight_versions": [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 9}],
    }
    usage = {"prompt_tokens": asked.prompt_tokens, "prompt_tokens_details": {"cached_tokens": 32}}
    return {"usage": usage, "choices": [choice | changes]}


def test_a_prompt_is_sent_with_one_token_a_screenshot(models, request_of):
    vlm, request = models.vlms[0], request_of(turn=2)
    prompt = vlm.prompts.build(request.observation, request.history)
    short = prompt.short_tokens
    assert short.count(vlm.vocabulary.image) == 3
    again: list[int] = []
    counts = iter(picture.grid[0] * picture.grid[1] // 4 for picture in prompt.pictures)
    for token in short:
        again += [token] * next(counts) if token == vlm.vocabulary.image else [token]
    assert again == prompt.tokens.tolist()
    assert prompt.length == len(again)


@pytest.mark.parametrize("size", [(112, 112), (84, 140), (100, 75)])
@pytest.mark.parametrize("file", [False, True])
def test_a_screenshot_is_sent_as_it_was_seen(size, file):
    rules = ImageRules.of(VlmConfig())
    shot = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    picture = rules.picture(Screenshot(encode_png(shot)) if file else shot)
    part = json.loads(image_part(picture))
    data = base64.b64decode(part["url"].partition(",")[2])
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), shot)
    assert (part["uuid"], part["type"]) == (picture.key.hex(), "image_url")
    assert json.loads(image_part(picture, sent=True)) == {**part, "url": None}


def test_the_mask_goes_the_way_that_is_exact(models, request_of):
    from dartsim.real.vlm import build, tiny

    def sampling_of(vlm) -> dict[str, Any]:
        params: dict[str, Any] = RequestCodec(vlm).encode(request_of()).body["sampling_params"]
        return params

    single = sampling_of(build(tiny()))
    assert len(single["allowed_token_ids"]) == 9
    assert single["max_tokens"] == 1
    vlm = models.vlms[0]
    free = sampling_of(vlm)
    assert free["max_tokens"] == 24
    assert {int(token) for token in free["logit_bias"]} == vlm.vocabulary.special - {vlm.vocabulary.end}
    assert free["stop_token_ids"] == [vlm.vocabulary.end]


def test_a_reply_depends_on_its_seed_and_turn(models, request_of):
    codec = RequestCodec(models.vlms[0])
    seeds = {codec.encode(request_of(n, turn=turn)).body["sampling_params"]["seed"] for n in (1, 2) for turn in (0, 1)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    again = codec.encode(request_of(1, turn=1)).body
    assert again == codec.encode(request_of(1, turn=1)).body


def test_an_answer_is_read(models, request_of):
    vlm = models.vlms[0]
    codec = RequestCodec(vlm)
    asked = codec.encode(request_of())
    tokens = vlm.grammar.tokens("click 3 4")
    read = codec.decode(answer_of(asked, tokens), asked)
    assert (read.action, read.oldest, read.newest, read.cached_tokens) == ("click 3 4", 4, 5, 32)
    assert read.tokens.tolist() == tokens
    assert read.entropies is None
    # What comes after the end is cut.
    longer = codec.decode(answer_of(asked, [*tokens, tokens[0]]), asked)
    assert longer.tokens.tolist() == tokens


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weight_versions": None}, "missing or odd"),
        ({"weight_versions": [{"version": "default", "start": 0, "end": 1}]}, "default"),
        ({"logprobs": None}, "missing or odd"),
        ({"token_ids": []}, "0 tokens"),
        ({"token_ids": [3]}, "token 3 is not allowed"),
    ],
)
def test_an_odd_answer_is_refused(models, request_of, changes, words):
    codec = RequestCodec(models.vlms[0])
    asked = codec.encode(request_of())
    with pytest.raises(EngineBadReply, match=words):
        codec.decode(answer_of(asked, [3], **changes), asked)


@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": None}])
def test_an_engine_that_does_not_say_what_it_found_in_its_cache_is_believed(models, request_of, details):
    codec = RequestCodec(models.vlms[0])
    asked = codec.encode(request_of())
    answer = answer_of(asked, models.vlms[0].grammar.tokens("click 3 4"))
    answer["usage"]["prompt_tokens_details"] = details
    assert codec.decode(answer, asked).cached_tokens is None


def test_another_prompt_than_the_learners_is_refused(models, request_of):
    codec = RequestCodec(models.vlms[0])
    asked = codec.encode(request_of())
    answer = answer_of(asked, [3])
    with pytest.raises(EngineBadReply):
        codec.decode(answer, asked._replace(prompt_tokens=7))


@given(
    limit=st.integers(1, 6),
    uses=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=30),
    lost=st.integers(0, 9),
)
def test_what_an_engine_was_sent_is_remembered_up_to_a_limit(limit, uses, lost):
    images, newest = SentImages(limit), []
    for use in uses:
        images.add(bytes([n]) for n in use)
        newest = [n for n in newest if n not in use] + [n for i, n in enumerate(use) if n not in use[i + 1 :]]
        newest = newest[-limit:]
        assert {n for n in range(10) if bytes([n]) in images} == set(newest)
    images.remove([bytes([lost])])
    assert bytes([lost]) not in images
    assert len(images) == len(set(newest) - {lost})


@given(st.lists(st.floats(-4.0, 4.0), min_size=2, max_size=12), st.integers(1, 12), st.integers(0, 11))
def test_the_bound_is_below_the_entropy_and_exact_where_all_is_known(logits, top, sampled):
    x = np.asarray(logits)
    logprobs = x - np.log(np.exp(x).sum())
    entropy = float(-(np.exp(logprobs) * logprobs).sum())
    chosen = sampled % len(x)
    likeliest = [int(i) for i in np.argsort(-logprobs)[:top] if i != chosen]
    entries = [{"token_id": i, "logprob": float(logprobs[i])} for i in likeliest]
    place = {"token_id": chosen, "logprob": float(logprobs[chosen]), "top_logprobs": entries}
    fewer = {**place, "top_logprobs": entries[:1]}  # a position of its own, whatever is beside it
    bound, alone = lower_bounds([place, fewer], len(x))
    assert alone == lower_bounds([fewer], len(x))[0]
    assert bound <= entropy + 1e-5
    if len(likeliest) == len(x) - 1:
        assert math.isclose(bound, entropy, abs_tol=1e-5)


def test_masked_tokens_add_nothing():
    entries = [{"token_id": 5, "logprob": math.log(0.25)}, {"token_id": 6, "logprob": math.log(0.75)}]
    place = {"token_id": 5, "logprob": math.log(0.25), "top_logprobs": [*entries, {"token_id": 7, "logprob": -9999.0}]}
    assert lower_bounds([place], 2)[0] == pytest.approx(0.5623351)
