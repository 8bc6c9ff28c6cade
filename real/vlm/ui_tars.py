"""What a model that writes in UI-TARS's form is told before its first screenshot.

The words are ours; the form and the names of the actions are UI-TARS's (``envs.actions.ui_tars``). A model that was
trained on other words does best with those: ``policy.instructions`` names a file that has them.
"""

from __future__ import annotations

from pathlib import Path

from dartsim.core.errors import ConfigError

SYSTEM = "You are a helpful assistant."
"""Qwen's default system message, which its chat template puts before a conversation."""

_TASK = """You work on a computer by mouse and keyboard. You are told a task, and see the newest screenshots and what
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


def ui_tars_task(absolute: bool) -> str:
    """Return the user's first words; ``{instruction}`` stands for the task's instruction.

    Args:
        absolute: Coordinates are pixels of the screenshot; otherwise thousandths of its sides.
    """
    return _TASK.format(unit="pixels of the screenshot" if absolute else "thousandths of the screen's sides")


def read_task(file: Path) -> str:
    """Return the words of a file.

    Raises:
        ConfigError: If it cannot be read, or does not say where the instruction goes.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"policy.instructions = {str(file)!r} cannot be read: {error.strerror}") from None
    if "{instruction}" not in text:
        raise ConfigError(f"policy.instructions = {str(file)!r} does not say where the task goes: put {{instruction}}")
    return text.rstrip()
