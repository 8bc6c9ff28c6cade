r"""Prompts of models that use UI-TARS's format: the first message, and how earlier replies are shown.

UI-TARS-1.5 is prompted as by OSWorld's own agent (``mm_agents/uitars15_v1.py``, mode ``qwen25vl_normal``):

    system      You are a helpful assistant.
    user        the first message, which ends with the task
    user        the screenshot of the first turn          only the newest 5 screenshots are shown
    assistant   the reply to it                           all replies are shown
    …
    user        the present screenshot

That agent reads replies without special tokens, trims them, and puts integer coordinates of ``start_box`` and
``end_box`` between box tokens before it shows them again. DART's prompts differ in four points: a line about the
password, no space at the end of the first line, at most 35 replies, and the first screenshot in the first message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dartsim.core.errors import ConfigError
from dartsim.real.vlm.vocabulary import GROUNDING, Parts

_BOX = "<|box_start|>{}<|box_end|>"
_POINT, _OTHER = _BOX.format("(x1,y1)"), _BOX.format("(x3,y3)")

_UI_TARS_1_5 = rf"""You are a GUI agent. You are given a task and your action history, with screenshots. You need to \
perform the next action to complete the task.{{space}}

## Output Format
```
Thought: ...
Action: ...
```

## Action Space

click(start_box='{_POINT}')
left_double(start_box='{_POINT}')
right_single(start_box='{_POINT}')
drag(start_box='{_POINT}', end_box='{_OTHER}')
hotkey(key='')
type(content='') #If you want to submit your input, use "\n" at the end of `content`.
scroll(start_box='{_POINT}', direction='down or up or right or left')
wait() #Sleep for 5s and take a screenshot to check for any changes.
finished(content='xxx') # Use escape characters \', \", and \n in content part to ensure we can parse the content in \
normal python string format.
{{gap}}
## Note
- Use {{language}} in `Thought` part.
- Write a small plan and finally summarize your next action (with its target element) in one sentence in `Thought` part.
{{note}}
## User Instruction
{{{{instruction}}}}
""".replace("\\\n", "")
"""The published interface of UI-TARS-1.5. A line that ends with a backslash continues."""

_PASSWORD = "- My computer's password is 'password', feel free to use it when you need sudo rights.\n"

_PLAIN = """You work on a computer by mouse and keyboard. You are told a task, and see the newest screenshots and what
you said before. Choose the next action.

Write in this form:
Thought: ...
Action: ...

Actions, one in a reply; x and y are {unit}:
click(start_box='(x,y)')
left_double(start_box='(x,y)')
right_single(start_box='(x,y)')
drag(start_box='(x1,y1)', end_box='(x2,y2)')
scroll(start_box='(x,y)', direction='up')   up, down, left or right
type(content='...')   end with \\n to press enter
hotkey(key='ctrl c')
wait()
finished(content='...')   the task is done
call_user()   the task cannot be done

Plan in a sentence or two as your thought.

Task: {{instruction}}"""
"""For other models: it names the unit of coordinates, and how to give up."""


def first_message(prompt: str, *, language: str, absolute: bool) -> str:
    """Return the user's first message, in which ``{instruction}`` stands for the task.

    Args:
        prompt: ``ui_tars_1_5``, ``dart`` or ``plain``, see ``PolicyConfig.prompt``.
        language: In which the model thinks; not of ``plain``.
        absolute: ``plain``: coordinates are pixels, not thousandths of the sides.
    """
    if prompt == "plain":
        return _PLAIN.format(unit="pixels of the screenshot" if absolute else "thousandths of the screen's sides")
    if prompt == "dart":
        return _UI_TARS_1_5.format(space="", gap="", note=_PASSWORD, language=language)
    if prompt == "ui_tars_1_5":
        return _UI_TARS_1_5.format(space=" ", gap="\n", note="", language=language)
    raise ConfigError(f"there is no prompt {prompt!r}; wanted ui_tars_1_5, dart or plain")


_GROUNDING = re.compile("|".join(map(re.escape, GROUNDING)))
_BEFORE = r"(?:(?<=start_box=')|(?<=end_box='))"
_COORDINATES = re.compile(_BEFORE + r"(\(\d+,\d+\))(?=')")
_BOXED = re.compile(_BEFORE + r"<\|box_start\|>(\(\d+,\d+\))<\|box_end\|>(?=')")


def task_parts(message: str, instruction: str) -> Parts:
    """Return the first message with a task's instruction, which is text whatever it spells."""
    parts = re.split(f"({_GROUNDING.pattern})", message)
    parts[::2] = [text.replace("{instruction}", instruction) for text in parts[::2]]
    return tuple(parts)


def shown_parts(text: str) -> Parts:
    """Return a reply as OSWorld's agent of UI-TARS-1.5 shows it in later prompts."""
    plain, found = text, 1
    while found:  # what is left may spell another one
        plain, found = _GROUNDING.subn("", plain)
    plain = plain.strip()
    lead, marker, calls = plain.partition("Action: ")
    if not marker or "start_box=" not in plain:
        return (plain,)
    first, *others = _COORDINATES.split("\n\n".join(part.strip() for part in calls.split(marker)))
    return _with_boxes([lead + marker + first, *others])


def shown_reply(text: str) -> str:
    """Return ``shown_parts`` as one text."""
    return "".join(shown_parts(text))


def reply_parts(text: str) -> Parts:
    """Return a reply as a model writes it: box tokens are those around coordinates, and only these."""
    return _with_boxes(_BOXED.split(text))


def _with_boxes(pieces: Sequence[str]) -> Parts:
    """Return text with box tokens around the coordinates, which are the pieces at odd places."""
    parts = [pieces[0]]
    for coordinates, text in zip(pieces[1::2], pieces[2::2], strict=True):
        parts += ["<|box_start|>", coordinates, "<|box_end|>", text]
    return tuple(parts)
