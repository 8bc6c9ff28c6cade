"""What this package counts on in an engine, checked on the stand-ins always and on vLLM where it is installed.

The stand-in is only worth something while it passes the same tests as the real server.
"""

import asyncio
import json
import shutil
from typing import Any

import httpx
import numpy as np
import pytest

from dartsim.core.errors import WorkerFault, WorkerRestarted
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Reply, Weights
from dartsim.testing import ports as checks

pytest.importorskip("httpx")
pytest.importorskip("torch")

from dartsim.real.engines.client import EngineClient
from dartsim.real.engines.errors import EngineAborted, EngineBadReply, EngineHung, WeightsRefused, WeightsUnconfirmed
from dartsim.real.engines.launcher import AttachedEngine
from dartsim.real.engines.options import WorkerSettings
from dartsim.real.engines.request_codec import RequestCodec
from dartsim.real.engines.sent_images import image_part
from dartsim.real.engines.worker import VllmWorker
from dartsim.real.vlm.sampling import score_reply

pytestmark = pytest.mark.anyio

SETTINGS = WorkerSettings(request_seconds=60.0, patience_seconds=0.05, retry_seconds=0.02)


def worker_at(server, models, **more) -> VllmWorker:
    codec = more.pop("codec", None) or RequestCodec(models.vlms[0], top_logprobs=8)
    weights = more.pop("weights", Weights(0, str(models.folders[0])))
    settings = more.pop("settings", SETTINGS)
    return VllmWorker(3, AttachedEngine(server.url), codec, weights=weights, settings=settings, **more)


def body_of(models, request, **sampling) -> dict[str, Any]:
    asked = RequestCodec(models.vlms[0]).encode(request)
    parts = [json.loads(image_part(picture)) for picture in asked.pictures]
    params = {"max_tokens": 1, "temperature": 1.0, "logprobs": 0, "detokenize": False, "seed": 1, **sampling}
    named = {"request_id": f"raw-{request.attempt.id}", "cache_salt": "raw"}
    return {**asked.body, "content_parts": parts, "sampling_params": params, **named}


async def num_running(client: EngineClient) -> float:
    """Return the requests that the engine computes now, from its page of metrics."""
    async with httpx.AsyncClient(trust_env=False) as browser:
        page = (await browser.get(f"{client.url}/metrics")).text
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("vllm:num_requests_running"))


async def settled(client: EngineClient, running: int):
    """Wait until the engine computes so many requests; the engine publishes its numbers now and then."""
    async with asyncio.timeout(30):
        while await num_running(client) != running:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


def endless(models) -> dict[str, Any]:
    """Return sampling parameters of a reply that takes long."""
    special = models.vlms[0].vocabulary.special
    return {"max_tokens": 1_800, "logit_bias": {str(token): -100.0 for token in special}, "ignore_eos": True}


async def test_a_turn_goes_in_as_tokens_and_screenshots_and_comes_back_as_tokens(server, models, request_of):
    request = request_of(turn=2)
    prompt = models.vlms[0].prompts.build(request.observation, request.history)
    body = body_of(models, request, max_tokens=3, logprobs=2, **{"ignore_eos": True})
    async with EngineClient(server.url) as client:
        answer = await client.generate({**body, "return_token_ids": True}, seconds=60)
    assert answer["prompt_token_ids"] == prompt.tokens.tolist()
    starts = [place["offset"] for place in answer["mm_placeholders"]["image"]]
    assert starts == list(prompt.image_starts)
    assert answer["request_id"] == "generate-tokens-raw-0"
    usage, choice = answer["usage"], answer["choices"][0]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt.tokens), 3)
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0
    assert (choice["finish_reason"], choice["stop_reason"], len(choice["token_ids"])) == ("length", None, 3)
    assert [(s["start"], s["end"]) for s in choice["weight_versions"]] == [(0, 3)]
    for token, place in zip(choice["token_ids"], choice["logprobs"]["content"], strict=True):
        assert place["token_id"] == place["top_logprobs"][0]["token_id"] == token
        assert place["logprob"] <= 0
        assert place["rank"] >= 1
        assert len(place["top_logprobs"]) == 2


async def test_replies_follow_the_grammar_and_carry_the_log_probabilities_they_were_sampled_with(
    server, models, request_of
):
    vlm = models.vlms[0]
    requests = [request_of(number, turn=number % 3, screen=number) for number in range(12)]
    async with worker_at(server, models) as worker:
        replies = await asyncio.gather(*(worker.generate(request) for request in requests))
        again = await worker.generate(requests[0])
    assert again.tokens.tolist() == replies[0].tokens.tolist()
    for request, reply in zip(requests, replies, strict=True):
        vlm.grammar.check(reply.tokens.tolist())
        assert reply.action == vlm.vocabulary.decode(reply.tokens.tolist())
        assert (reply.worker, reply.version, reply.oldest_version) == (3, 0, 0)
        assert len(reply.logprobs) == len(reply.entropies) == reply.response_tokens == len(reply.tokens)
        if server.real:
            prompt = vlm.prompts.build(request.observation, request.history)
            scored = score_reply(vlm, prompt, reply.tokens)
            assert np.abs(scored.logprobs - reply.logprobs).max() < 1e-4
            assert (reply.entropies < scored.entropies + 1e-4).all()
            assert reply.prompt_tokens == len(prompt.tokens)
    assert len({tuple(reply.tokens) for reply in replies}) > 4


async def test_masks_are_exact(server, models, request_of):
    special = sorted(models.vlms[0].vocabulary.special)
    async with EngineClient(server.url) as client:
        body = body_of(models, request_of(), allowed_token_ids=[7, 8, 9], logprobs=3)
        place = (await client.generate(body, seconds=60))["choices"][0]["logprobs"]["content"][0]
        assert {entry["token_id"] for entry in place["top_logprobs"]} == {7, 8, 9}
        assert sum(np.exp(entry["logprob"]) for entry in place["top_logprobs"]) == pytest.approx(1.0, abs=1e-5)
        bias = {str(token): -100.0 for token in special}
        body = body_of(models, request_of(), logit_bias=bias, max_tokens=50, ignore_eos=True)
        assert not set((await client.generate(body, seconds=60))["choices"][0]["token_ids"]) & set(special)


async def test_a_bad_request_is_refused_with_its_reason(server, models, request_of):
    body = body_of(models, request_of(), allowed_token_ids=[10**6])
    async with EngineClient(server.url) as client:
        with pytest.raises(EngineBadReply, match="allowed_token_ids") as caught:
            await client.generate(body, seconds=60)
    assert caught.value.status == 400


async def test_a_cancelled_request_frees_the_engine(server, models, request_of):
    body = body_of(models, request_of(), **endless(models))
    async with EngineClient(server.url) as client:
        asking = asyncio.create_task(client.generate(body, seconds=60))
        await settled(client, 1)
        asking.cancel()
        await settled(client, 0)


async def test_an_aborted_request_comes_back_at_once_with_what_it_has(server, models, request_of):
    body = body_of(models, request_of(), **endless(models))
    async with EngineClient(server.url) as client:
        asking = asyncio.create_task(client.generate(body, seconds=60))
        await settled(client, 1)
        await client.abort("raw-0")
        choice = (await asking)["choices"][0]
        assert choice["finish_reason"] == "abort"
        assert len(choice["token_ids"]) < 1_800
        await settled(client, 0)


@pytest.mark.parametrize("server", ["standin-0.32", "standin-0.33", "vllm"], indirect=True)
@pytest.mark.parametrize("mode", ["keep", "wait", "abort"])
async def test_a_request_to_a_paused_engine_is_answered_after_it_is_resumed(server, models, request_of, mode):
    """vLLM 0.32 lets it wait in every mode; 0.33 refuses it in two of them. The worker sees to both."""

    async with worker_at(server, models) as worker, EngineClient(server.url) as client:
        await client.pause(mode)
        assert await client.paused()
        body = body_of(models, request_of())
        raw = asyncio.create_task(client.generate(body, seconds=60))
        asking = asyncio.create_task(worker.generate(request_of(1)))
        done, _ = await asyncio.wait([raw, asking], timeout=0.3)
        if server.refuses and mode != "keep":
            assert done == {raw}
            error = raw.exception()
            assert isinstance(error, EngineBadReply)
            assert error.status == 503
        else:
            assert not done
        await client.resume()
        assert (await asking).version == 0
        await asyncio.wait([raw])
        assert not await client.paused()


async def test_requests_that_a_pause_aborts_are_killed_and_not_cut(server, models, request_of):
    async with worker_at(server, models) as worker, EngineClient(server.url) as client:
        # Frozen at first, so that they are surely under way when the pause that aborts comes. A frozen engine
        # publishes no numbers, so nothing can be waited for.
        await client.pause("keep")
        asking = [asyncio.create_task(worker.generate(request_of(number))) for number in range(3)]
        await asyncio.sleep(1.0 if server.real else 0.1)
        await client.pause("abort")
        await client.resume()
        ended = await asyncio.gather(*asking, return_exceptions=True)
    assert sum(isinstance(each, EngineAborted) for each in ended) >= 1
    assert all(isinstance(each, EngineAborted | Reply) for each in ended)


async def test_tokens_name_the_weights_that_made_them(server, models, request_of):
    body = body_of(models, request_of(), **endless(models))
    async with EngineClient(server.url) as client:
        asking = asyncio.create_task(client.generate(body, seconds=60))
        await settled(client, 1)
        await asyncio.sleep(0.1)
        await client.pause("keep")
        await client.rpc("reload_weights", weights_path=str(models.folders[1]))
        await client.label(1)
        assert not await client.reset_caches()  # a frozen request holds blocks of the prefix cache
        await client.resume()
        spans = (await asking)["choices"][0]["weight_versions"]
    assert [span["version"] for span in spans] == ["0", "1"] or not server.real
    assert [span["version"] for span in spans][-1] == "1"
    assert spans[0]["start"] == 0
    assert spans[0]["end"] == spans[1]["start"]
    assert spans[1]["end"] == 1_800


@pytest.mark.parametrize("mode", [SyncMode.KEEP, SyncMode.DRAIN, SyncMode.RESTART])
async def test_new_weights_answer_after_a_load(server, models, request_of, mode):
    async with worker_at(server, models) as worker:
        before = await worker.generate(request_of(turn=1))
        for version in (1, 2):
            live = [asyncio.create_task(worker.generate(request_of(n))) for n in range(4)]
            if mode.drains:
                await asyncio.gather(*live)
            else:
                await asyncio.sleep(0.01)
            await worker.load(Weights(version, str(models.folders[version])), mode)
            for ended in await asyncio.gather(*live, return_exceptions=True):
                if isinstance(ended, BaseException):
                    assert mode.kills_requests
                    assert isinstance(ended, WorkerRestarted)
                else:
                    assert version - 1 <= ended.oldest_version <= ended.version <= version
            reply = await worker.generate(request_of(turn=1))
            assert (reply.version, reply.oldest_version) == (version, version)
            assert reply.logprobs[0] != before.logprobs[0]
            if server.real:
                # The same screenshots as before: nothing of the old weights is left in any cache.
                vlm, request = models.vlms[version], request_of(turn=1)
                scored = score_reply(vlm, vlm.prompts.build(request.observation, request.history), reply.tokens)
                assert np.abs(scored.logprobs - reply.logprobs).max() < 1e-4


async def test_a_load_that_fails_in_the_engine_leaves_nothing_served_until_a_good_one(
    server, models, request_of, tmp_path, monkeypatch
):
    """The folder is cut after it was inspected: only the engine can see it."""
    torn = tmp_path / "torn"
    shutil.copytree(models.folders[1], torn)
    file = torn / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    rpc = EngineClient.rpc

    async def cut(self: EngineClient, method: str, *, weights_path: str):
        return await rpc(self, method, weights_path=weights_path.replace(str(models.folders[1]), str(torn)))

    monkeypatch.setattr(EngineClient, "rpc", cut)

    async with worker_at(server, models) as worker:
        live = asyncio.create_task(worker.generate(request_of(9)))
        await asyncio.sleep(0)
        with pytest.raises(WeightsRefused, match="version 1"):
            await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
        with pytest.raises(WorkerFault, match="unloaded"):
            await worker.generate(request_of(1))
        await worker.load(Weights(2, str(models.folders[2])), SyncMode.KEEP)
        assert (await live).version in (0, 2)
        reply = await worker.generate(request_of(1))
        assert reply.version == 2
        if server.real:
            vlm, request = models.vlms[2], request_of(1)
            scored = score_reply(vlm, vlm.prompts.build(request.observation, request.history), reply.tokens)
            assert np.abs(scored.logprobs - reply.logprobs).max() < 1e-4


async def test_the_first_load_into_an_engine_of_unknown_weights_is_proven(server, models, request_of, monkeypatch):
    """Also if it holds these very weights already, so that nothing seems to change."""

    async def idle(self: EngineClient, method: str, *, weights_path: str): ...

    async with worker_at(server, models, weights=Weights(0)) as worker:
        first = Weights(0, str(models.folders[0]))
        with monkeypatch.context() as patch:
            patch.setattr(EngineClient, "rpc", idle)
            with pytest.raises(WeightsUnconfirmed):
                await worker.load(first, SyncMode.DRAIN)
        await worker.load(first, SyncMode.DRAIN)
        request = request_of(1)
        reply = await worker.generate(request)
        assert reply.version == 0
        if server.real:
            vlm = models.vlms[0]
            scored = score_reply(vlm, vlm.prompts.build(request.observation, request.history), reply.tokens)
            assert np.abs(scored.logprobs - reply.logprobs).max() < 1e-4


async def test_a_time_out_frees_the_engine(server, models, request_of):
    settings = WorkerSettings(request_seconds=0.2, warm_up=True)
    async with worker_at(server, models) as warm:
        await warm.generate(request_of(5))
    async with worker_at(server, models, settings=settings) as worker, EngineClient(server.url) as client:
        await client.pause("keep")
        with pytest.raises(EngineHung, match=r"0\.2 s"):
            await worker.generate(request_of(1))
        await client.resume()
        await settled(client, 0)
        assert worker.counts["fault/engine_hung"] == 1


async def test_the_turns_of_an_attempt_hit_its_prefix(server, models, request_of):
    async with worker_at(server, models) as worker:
        replies = [await worker.generate(request_of(1, turn=turn, screen=77)) for turn in (1, 2)]
        cached = worker.counts["cached_tokens"]
        assert sum(reply.cached_tokens or 0 for reply in replies) == cached >= 32
        assert all(0 <= (reply.cached_tokens or 0) <= reply.prompt_tokens for reply in replies)
        await worker.load(Weights(1, str(models.folders[1])), SyncMode.KEEP)
        await worker.generate(request_of(1, turn=2, screen=77))
        assert worker.counts["cached_tokens"] == cached  # nothing of the old weights is hit


async def test_a_screenshot_is_sent_once_and_named_from_then_on(server, models, request_of):
    vlm = models.vlms[0]
    late = request_of(5, turn=2, screen=31)
    asked = RequestCodec(vlm).encode(late)
    whole = body_of(models, late)
    parts = whole.pop("content_parts")
    named = [{**part, "url": None} for part in parts]
    async with EngineClient(server.url) as client:
        wanted = await client.generate({**whole, "content_parts": parts}, seconds=60)
        answers = [await client.generate({**whole, "content_parts": named}, seconds=60)]
        answers += [await client.generate(whole, asked.pictures, seconds=60) for _ in range(2)]
        strange = [{"type": "image_url", "url": None, "uuid": "0" * 64}, *named[1:]]
        with pytest.raises(EngineBadReply, match="Cache miss"):
            await client.generate({**whole, "content_parts": strange}, seconds=60)
    for answer in answers:
        assert answer["choices"][0]["token_ids"] == wanted["choices"][0]["token_ids"]
        assert answer["usage"]["prompt_tokens"] == asked.prompt_tokens


async def test_the_worker_conforms_to_its_port(server, models, request_of):
    async with worker_at(server, models) as worker:
        observation = request_of().observation
        await checks.check_policy_worker(worker, observation, source=str(models.folders[0]))
