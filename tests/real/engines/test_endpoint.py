"""An OpenAI-compatible endpoint behind the worker's port: messages, replies, and every way to misbehave."""

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from dartsim.config import load
from dartsim.core.errors import ConfigError, WorkerFault, cause_of
from dartsim.core.types import Attempt, Observation, Reply, Request, Task, Turn

pytest.importorskip("aiohttp")
from PIL import Image

from dartsim.real.engines import endpoint as module
from dartsim.real.engines.endpoint import EndpointRefused, EndpointWorker, base_url
from dartsim.real.engines.errors import EngineBadReply

CLICK = "Thought: so.\nAction: click(start_box='(3,4)')"
BOXED = "Thought: so.\nAction: click(start_box='<|box_start|>(3,4)<|box_end|>')"


@pytest.fixture
def fake(module_of):
    return module_of(Path(__file__).with_name("openai_endpoint.py"))


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    monkeypatch.setattr(module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.0)


def config(url: str, *more: str):
    changes = ["backend.desktops=mock", "backend.workers=endpoint", "backend.learner=local", "policy.grammar=ui_tars"]
    changes += [f'endpoint.url="{url}"', 'endpoint.model="agent-1"', "policy.max_images=2", "policy.max_texts=9", *more]
    return load("tiny", overrides=changes)


def request(turns: int = 0) -> Request:
    shots = [np.full((8, 12, 3), number, dtype=np.uint8) for number in range(turns + 1)]
    history = [Turn(Observation(shot, "Do it."), Reply(CLICK, 0, 0, 0, 0, 1)) for shot in shots[:-1]]
    attempt = Attempt(0, Task("t", "Do it."), 0, 0, 0, 30, 4)
    return Request(attempt, turns, Observation(shots[-1], "Do it."), history)


def ask(served, *more: str, turns: int = 0) -> Reply:
    async def main() -> Reply:
        async with EndpointWorker(0, config(served.url, *more)) as worker:
            return await worker.generate(request(turns))

    return asyncio.run(main())


def test_a_turn_is_a_conversation_of_the_task_the_replies_and_the_newest_screenshots(fake):
    with fake.endpoint(lambda messages: CLICK) as served:
        reply = ask(served, "policy.temperature=0", "endpoint.options.top_p=0.9", turns=2)
    assert (reply.action, reply.version, reply.prompt_tokens, reply.response_tokens) == (CLICK, 4, 1001, 7)
    assert reply.tokens is reply.logprobs is None
    (body,) = served.bodies
    assert (body["temperature"], body["max_tokens"], body["top_p"]) == (0.0, 500, 0.9)
    system, first, *rest = body["messages"]
    assert system == {"role": "system", "content": "You are a helpful assistant."}
    assert first["content"].endswith("## User Instruction\nDo it.\n")
    assert [each["role"] for each in rest] == ["assistant", "user", "assistant", "user"]
    assert rest[0]["content"] == rest[2]["content"] == BOXED  # as OSWorld's agent of UI-TARS-1.5 shows it
    shown = [np.asarray(Image.open(io.BytesIO(fake.picture(each["content"][0])))) for each in (rest[1], rest[3])]
    assert [screen[0, 0, 0] for screen in shown] == [1, 2]
    assert shown[0].shape == (8, 12, 3)


@pytest.mark.parametrize(
    "name", ["<|image_pad|>", "<|im_end|>", "<｜User｜>", "<|box_start|>", "<image>", "</s>", "<tool_call>", "[INST]"]
)
def test_text_that_spells_a_control_token_is_broken_and_those_of_the_prompt_are_not(fake, name):
    broken = f"{name[0]}\u200b{name[1:]}"
    asked = request(1)
    said = f"Thought: {name}.\nAction: click(start_box='(3,4)')"
    history = [asked.history[0]._replace(reply=asked.history[0].reply._replace(action=said))]
    observation = asked.observation._replace(instruction=f"Write {name} <b>so</b>.")
    with fake.endpoint(lambda messages: CLICK) as served:

        async def main():
            async with EndpointWorker(0, config(served.url)) as worker:
                await worker.generate(asked._replace(observation=observation, history=history))

        asyncio.run(main())
    _, first, *rest = served.bodies[0]["messages"]
    reply = next(each for each in rest if each["role"] == "assistant")
    assert first["content"].endswith(f"Write {broken} <b>so</b>.\n")
    assert "click(start_box='<|box_start|>(x1,y1)<|box_end|>')" in first["content"]
    shown = "" if name == "<|box_start|>" else broken  # OSWorld's agent takes these away
    assert reply["content"] == f"Thought: {shown}.\nAction: click(start_box='<|box_start|>(3,4)<|box_end|>')"


def test_a_key_of_the_environment_is_sent_and_shown_nowhere(fake, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret-key-of-mine")
    with fake.endpoint(lambda messages: CLICK, key="s3cret-key-of-mine") as served:
        assert ask(served).action == CLICK
        served.key = "another"
        with pytest.raises(EndpointRefused, match="answered 401") as refused:
            ask(served)
    assert "OPENAI_API_KEY" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "trouble",
    [
        [503, (429, {"Retry-After": "0"}), 500],
        ["close"],
        [(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})],
    ],
)
def test_what_may_pass_is_tried_again(fake, trouble):
    with fake.endpoint(lambda messages: CLICK) as served:
        served.script.extend(trouble)
        assert ask(served).action == CLICK
    assert not served.script


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>Welcome</html>",
        b"[1, 2]",
        b'{"choices": [{"message": "hello"}]}',
        json.dumps({"choices": [{"message": {"role": "assistant", "content": None}}]}).encode(),
        400,
    ],
)
def test_an_answer_that_makes_no_sense_is_a_fault_of_the_endpoint(fake, garbage):
    with fake.endpoint(lambda messages: CLICK) as served:
        served.script.append(garbage)
        with pytest.raises(EngineBadReply):
            ask(served)


@pytest.mark.parametrize(
    ("content", "said"), [("", ""), (None, ""), ("half \ud83d", "half \ufffd"), ("\ud83d\ude00", "\U0001f600")]
)
def test_what_the_model_ended_itself_is_its_own_reply(fake, content, said):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    with fake.endpoint(lambda messages: CLICK) as served:
        served.script.append(json.dumps({"choices": [choice]}).encode())
        assert ask(served, "policy.malformed_tries=1").action == said


def test_an_endpoint_that_stays_away_masks_the_attempt_in_the_end(fake, monkeypatch):
    monkeypatch.setattr(module, "DOWN_SECONDS", 0.05)
    with fake.endpoint(lambda messages: CLICK) as served:
        gone = served.url
    served.url = gone
    with pytest.raises(WorkerFault) as fault:
        ask(served)
    assert cause_of(fault.value) in ("engine_refused", "engine_lost")


def test_a_reply_that_cannot_be_read_is_asked_for_again_not_at_temperature_0(fake):
    replies = iter(["I would rather not.", "Nor now.", CLICK])
    with fake.endpoint(lambda messages: next(replies)) as served:
        assert ask(served, "policy.malformed_tries=3", "policy.temperature=0").action == CLICK
    assert [body["temperature"] for body in served.bodies] == [0.0, 1.0, 1.0]


def check(served, *more: str):
    async def main():
        async with EndpointWorker(0, config(served.url, *more)) as worker:
            await worker.check()

    asyncio.run(main())


def test_an_endpoint_is_checked_with_one_question_before_anything_starts(fake):
    with fake.endpoint(lambda messages: CLICK, key="wanted-key") as served:
        with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
            check(served)
        served.key = None
        check(served)
        with pytest.raises(ConfigError, match="agent-2"):
            check(served, 'endpoint.model="agent-2"')
        served.script.append(b"<html>")
        with pytest.raises(ConfigError, match="wanted JSON"):
            check(served)
    with pytest.raises(ConfigError, match="nothing listens"):
        check(served)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("endpoint.url=none", "is no address"),
        ('endpoint.url="api.example.com"', "is no address"),
        ("endpoint.model=none", "endpoint.model is missing"),
        ("policy.grammar=clicks", "an endpoint writes text"),
        ('endpoint.url="https://me:secret@example.com/v1"', "holds a password"),
    ],
)
def test_settings_that_cannot_work_are_refused(change, said):
    with pytest.raises(ConfigError, match=said):
        config("http://127.0.0.1:1/v1", change)


def test_a_run_cannot_train_an_endpoint(tmp_path):
    from dartsim.run.execute import execute

    with pytest.raises(ConfigError, match="train"):
        execute(config("http://127.0.0.1:1/v1"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_address_without_a_path_is_openai_s():
    assert base_url("http://host:8000/") == base_url("http://host:8000/v1/") == "http://host:8000/v1"
    assert base_url("https://host/proxy/openai/v1") == "https://host/proxy/openai/v1"
