"""Prompts of UI-TARS-1.5, as OSWorld's agent writes them: golden texts, with Qwen2.5-VL's special tokens."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.core.errors import ConfigError
from dartsim.core.types import Observation, Reply, Turn
from dartsim.real.vlm import PromptStyle
from dartsim.real.vlm.ui_tars import first_message, reply_parts, shown_reply

FIRST_MESSAGE = (
    "You are a GUI agent. You are given a task and your action history, with screenshots. You need to perform the next "
    "action to complete the task. \n\n"
    "## Output Format\n```\nThought: ...\nAction: ...\n```\n\n"
    "## Action Space\n\n"
    "click(start_box='<|box_start|>(x1,y1)<|box_end|>')\n"
    "left_double(start_box='<|box_start|>(x1,y1)<|box_end|>')\n"
    "right_single(start_box='<|box_start|>(x1,y1)<|box_end|>')\n"
    "drag(start_box='<|box_start|>(x1,y1)<|box_end|>', end_box='<|box_start|>(x3,y3)<|box_end|>')\n"
    "hotkey(key='')\n"
    "type(content='') #If you want to submit your input, use \"\\n\" at the end of `content`.\n"
    "scroll(start_box='<|box_start|>(x1,y1)<|box_end|>', direction='down or up or right or left')\n"
    "wait() #Sleep for 5s and take a screenshot to check for any changes.\n"
    "finished(content='xxx') # Use escape characters \\', \\\", and \\n in content part to ensure we can parse the "
    "content in normal python string format.\n\n\n"
    "## Note\n- Use English in `Thought` part.\n"
    "- Write a small plan and finally summarize your next action (with its target element) in one sentence in "
    "`Thought` part.\n\n"
    "## User Instruction\n{instruction}\n"
)
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
IMAGE = "<|vision_start|><|image_pad|><|image_pad|><|image_pad|><|image_pad|><|vision_end|>"
SCREEN = f"<|im_start|>user\n{IMAGE}<|im_end|>\n"
CLICK = "Thought: Open it.\nAction: click(start_box='<|box_start|>(14,28)<|box_end|>')"


def style(prompt: str = "ui_tars_1_5", **more) -> PromptStyle:
    task = first_message(prompt, language="English", absolute=True)
    options = {"max_images": 5, "max_texts": 1_000, "image_with_task": prompt == "dart", **more}
    return PromptStyle(system="You are a helpful assistant.", task=task, box_tokens=True, **options)


def turns(replies: list[str], qwen=None) -> tuple[Observation, list[Turn]]:
    """Return the present screen and a turn for each reply; with the tokens of replies if ``qwen`` is given."""
    screens = [np.full((56, 56, 3), number, np.uint8) for number in range(len(replies) + 1)]
    seen = [Observation(screen, "Save {it}.") for screen in screens]
    history = []
    for observation, text in zip(seen, replies, strict=False):
        vocabulary = qwen and qwen.qwen_vocabulary()
        tokens = qwen and np.array([*vocabulary.spell(reply_parts(text)), vocabulary.end])
        history.append(Turn(observation, Reply(text, 0, 0, 0, 0, 0, tokens)))
    return seen[-1], history


def prompt_text(vlm, replies: list[str], qwen=None) -> str:
    prompt = vlm.prompts.build(*turns(replies, qwen))
    return vlm.vocabulary.tokenizer.decode(prompt.tokens.tolist(), skip_special_tokens=False)


def said(text: str) -> str:
    return f"<|im_start|>assistant\n{text}<|im_end|>\n"


def test_the_first_message_is_the_published_one():
    assert first_message("ui_tars_1_5", language="English", absolute=True) == FIRST_MESSAGE
    assert "- Use Chinese in" in first_message("ui_tars_1_5", language="Chinese", absolute=True)
    note = "- My computer's password is 'password', feel free to use it when you need sudo rights.\n"
    dart = FIRST_MESSAGE.replace("task. \n", "task.\n").replace("\n\n\n##", "\n\n##")
    dart = dart.replace("part.\n\n## User", f"part.\n{note}\n## User")
    assert first_message("dart", language="English", absolute=True) == dart
    with pytest.raises(ConfigError, match="no prompt 'other'"):
        first_message("other", language="English", absolute=True)


def test_the_first_prompt_is_that_of_osworld_s_agent(qwen):
    vlm = qwen.qwen_model(style())
    user = f"<|im_start|>user\n{FIRST_MESSAGE.replace('{instruction}', 'Save {it}.')}<|im_end|>\n"
    assert prompt_text(vlm, []) == f"{SYSTEM}{user}{SCREEN}<|im_start|>assistant\n"
    tokens = vlm.prompts.build(*turns([])).tokens
    assert (tokens == qwen.BOX_START).sum() == (tokens == qwen.BOX_END).sum() == 6


@pytest.mark.parametrize("sampled", [True, False])
def test_all_replies_and_the_newest_five_screenshots_are_shown(qwen, sampled):
    replies = [f"{CLICK}\n\nwait() #{number}" for number in range(6)]
    text = prompt_text(qwen.qwen_model(style()), replies, qwen if sampled else None)
    user = f"<|im_start|>user\n{FIRST_MESSAGE.replace('{instruction}', 'Save {it}.')}<|im_end|>\n"
    first, second, *others = map(said, replies)
    rest = "".join(SCREEN + reply for reply in others)
    assert text == f"{SYSTEM}{user}{first}{second}{rest}{SCREEN}<|im_start|>assistant\n"


def test_dart_shows_the_first_screenshot_in_the_first_message(qwen):
    vlm = qwen.qwen_model(style("dart", max_images=2))
    user = "## User Instruction\nSave {it}.\n"
    assert prompt_text(vlm, []).endswith(f"{user}{IMAGE}<|im_end|>\n<|im_start|>assistant\n")
    second = f"{user}{IMAGE}<|im_end|>\n{said(CLICK)}{SCREEN}<|im_start|>assistant\n"
    assert prompt_text(vlm, [CLICK]).endswith(second)
    third = f"{user}<|im_end|>\n{said(CLICK)}{SCREEN}{said(CLICK)}{SCREEN}<|im_start|>assistant\n"
    assert prompt_text(vlm, [CLICK, CLICK]).endswith(third)


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (CLICK, CLICK),
        (CLICK.replace("<|box_start|>", "").replace("<|box_end|>", ""), CLICK),
        (f"  {CLICK}\n", CLICK),
        (
            "Action: drag(start_box='(1,2)', end_box='(3,4)')",
            "Action: drag(start_box='<|box_start|>(1,2)<|box_end|>', end_box='<|box_start|>(3,4)<|box_end|>')",
        ),
        # Coordinates with a space or a fraction stay as they are, and so does what is no action.
        ("Action: click(start_box='<|box_start|>(1, 2)<|box_end|>')", "Action: click(start_box='(1, 2)')"),
        ("Action: click(start_box='(1.5,2)')", "Action: click(start_box='(1.5,2)')"),
        ("click(start_box='(1,2)')", "click(start_box='(1,2)')"),
        ("<|box_start|>(1,2)<|box_end|>", "(1,2)"),
        ("<|box_<|box_start|>start|>(1,2)", "(1,2)"),
        ("Action: type(content='(1,2)')", "Action: type(content='(1,2)')"),
        # Only the first "Action: " stays.
        (
            "Action: click(start_box='(1,2)')\nAction: wait()",
            "Action: click(start_box='<|box_start|>(1,2)<|box_end|>')\n\nwait()",
        ),
    ],
)
def test_a_reply_is_shown_as_osworld_s_agent_shows_it(reply, shown):
    assert shown_reply(reply) == shown


def test_the_sampled_tokens_are_shown_if_they_spell_what_the_agent_shows(qwen):
    vlm = qwen.qwen_model(style())
    vocabulary = vlm.vocabulary
    tokens = vocabulary.spell(reply_parts(CLICK))
    reply = Reply("", 0, 0, 0, 0, 0, np.array([*tokens, vocabulary.end]))
    assert vlm.prompts.reply_tokens(Turn(Observation(None, ""), reply)) == list(tokens)
    bare = [token for token in tokens if token not in vocabulary.grounding]
    other = reply._replace(tokens=np.array([*bare, vocabulary.end]))
    assert vlm.prompts.reply_tokens(Turn(Observation(None, ""), other)) == tokens


def test_replies_may_hold_grounding_tokens_and_no_token_of_images_or_the_chat(qwen):
    vlm = qwen.qwen_model(style())
    tokens = vlm.grammar.tokens(CLICK)
    assert {qwen.BOX_START, qwen.BOX_END} < set(tokens)
    assert vlm.vocabulary.decode(tokens) == CLICK
    refused = {token for token in range(qwen.FIRST, vlm.vocabulary.size) if not vlm.grammar.allowed[token]}
    assert refused == {151_643, 151_644, *range(151_652, 151_657)}
