"""Replies of UI-TARS-1.5 from the engine through the desktop's grammar to the next prompt and the learner."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("httpx")

from dartsim.core.types import Observation, Reply, Turn, Weights
from dartsim.envs.actions import make_grammar
from dartsim.envs.actions.model import Click, Done
from dartsim.real.engines.launcher import AttachedEngine
from dartsim.real.engines.options import WorkerSettings
from dartsim.real.engines.request_codec import RequestCodec
from dartsim.real.engines.worker import VllmWorker
from dartsim.real.vlm import PromptStyle
from dartsim.real.vlm.export import export
from dartsim.real.vlm.model import from_folder
from dartsim.real.vlm.sampling import score_reply
from dartsim.real.vlm.ui_tars import first_message

CLICK = "Thought: Open it.\nAction: click(start_box='<|box_start|>(140,70)<|box_end|>')"
DONE = "Thought: Saved.\nAction: finished(content='it's')"
NONSENSE = "Thought: I do not know."
READABLE = make_grammar("ui_tars", 112, 112).readable


@pytest.fixture(scope="module")
def model(qwen, tmp_path_factory) -> tuple[Any, Path]:
    """A model with Qwen's special tokens, read back from the folder that an engine serves."""
    task = first_message("ui_tars_1_5", language="English", absolute=True)
    style = PromptStyle(system="You are a helpful assistant.", task=task, max_images=5, max_texts=50, box_tokens=True)
    vlm = qwen.qwen_model(style)
    folder = export(vlm, tmp_path_factory.mktemp("qwen") / "model")
    return from_folder(replace(vlm.config, folder=str(folder))), folder


def play(standin, model: tuple[Any, Path], script: list[str], request, **settings):
    """Ask once; return the reply, the worker's counts and the bodies that the engine got."""
    vlm, folder = model
    grammar = vlm.grammar

    async def main():
        async with standin.StandInEngine(folder) as server:
            server.script = [grammar.tokens(text) for text in script]
            worker = VllmWorker(
                0,
                AttachedEngine(server.url),
                RequestCodec(vlm),
                weights=Weights(0, str(folder)),
                settings=WorkerSettings(warm_up=False, **settings),
            )
            async with worker:
                return await worker.generate(request), worker.counts, server.bodies

    return asyncio.run(main())


def test_box_tokens_pass_from_engine_to_desktop_history_and_learner(qwen, standin, model, request_of):
    vlm, _ = model
    request = request_of(1)
    reply, _, bodies = play(standin, model, [CLICK], request)
    assert reply.action == CLICK
    assert list(reply.tokens) == vlm.grammar.tokens(CLICK)
    assert {qwen.BOX_START, qwen.BOX_END} < set(reply.tokens)
    assert bodies[0]["token_ids"].count(qwen.BOX_START) == 6  # those of the action space

    # The desktop reads the coordinates as pixels of the picture the model sees.
    desktop = make_grammar("ui_tars_absolute", 112, 112)
    assert desktop.parse(reply.action) == (Click(56, 28),)

    # The next prompt has the sampled tokens, and so has a history without tokens.
    after = Observation(np.zeros((112, 112, 3), np.uint8), request.observation.instruction)
    prompt = vlm.prompts.build(after, [Turn(request.observation, reply)])
    shown = prompt.tokens.tolist()
    assert shown.count(qwen.BOX_START) == shown.count(qwen.BOX_END) == 7
    imported = vlm.prompts.build(after, [Turn(request.observation, Reply(CLICK, 0, 0, 0, 0, 0))])
    assert imported.tokens.tolist() == shown

    # The learner's distribution is the engine's: every token has a probability, under the same mask.
    scored = score_reply(vlm, vlm.prompts.build(request.observation, []), reply.tokens.tolist())
    assert np.isfinite(scored.logprobs).all()
    refused = {int(token) for token in bodies[0]["sampling_params"]["logit_bias"]}
    assert refused == set(np.flatnonzero(~vlm.grammar.allowed))
    assert not refused & {qwen.BOX_START, qwen.BOX_END}


def test_a_reply_that_cannot_be_read_is_sampled_again(standin, model, request_of):
    reply, counts, bodies = play(standin, model, [NONSENSE, NONSENSE, CLICK], request_of(1), readable=READABLE, tries=3)
    assert (reply.action, counts["malformed"], counts["requests"]) == (CLICK, 2, 1)
    assert len({body["sampling_params"]["seed"] for body in bodies}) == 3
    assert len({tuple(body["token_ids"]) for body in bodies}) == 1


def test_after_three_tries_the_attempt_is_done(standin, model, request_of):
    reply, counts, bodies = play(standin, model, [NONSENSE] * 3, request_of(1), readable=READABLE, tries=3)
    assert (reply.action, counts["malformed"], len(bodies)) == (NONSENSE, 2, 3)
    assert make_grammar("ui_tars", 112, 112, malformed="done").parse(reply.action) == (Done(),)


def test_an_unescaped_quote_is_no_reason_to_try_again(standin, model, request_of):
    reply, counts, _ = play(standin, model, [DONE], request_of(1), readable=READABLE, tries=3)
    assert (reply.action, counts["malformed"]) == (DONE, 0)
    assert make_grammar("ui_tars", 112, 112).parse(reply.action) == (Done(),)
