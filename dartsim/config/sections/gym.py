"""Gymnasium environments as the desktops of a run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dartsim.core.section import Section


class GymConfig(Section):
    """A gymnasium environment with a screen, for ``tasks.source = "gym"``."""

    env: str | None = Field(
        None, description='Environment: "package.module:Class" (or a function), or an id of gymnasium\'s registry.'
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments of the environment.")
    wrapper: str | None = Field(
        None,
        description='Adapter: "package.module:function" takes the environment, and returns one with a screenshot and '
        "actions as text.",
    )
    actions: Literal["pyautogui", "text"] = Field(
        "pyautogui",
        description="What its step reads from a model: pyautogui code, translated from the model's grammar, or the "
        "model's own text. A policy's text is passed on as it is.",
    )
