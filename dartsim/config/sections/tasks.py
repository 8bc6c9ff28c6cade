"""Which tasks are offered."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Positive, Section


class TasksConfig(Section):
    """Which tasks are offered."""

    source: Literal["generated", "osworld", "mock", "desktop"] = Field(
        "generated",
        description="Tasks without content, OSWorld's task files, the mock desktop's, or those of our desktop image.",
    )
    count: Positive = Field(181, description="Generated or mock tasks (DART run history: 181).")
    mock: str = Field("click_button", description="mock: a family, or a suite (easy, hard, never, mixed).")
    desktop: str = Field(
        "panel", description="desktop: panel (clicks, generated) or apps (real applications, one to 15 steps)."
    )
    difficulty: int = Field(1, ge=1, le=10, description="mock: difficulty of a family's tasks.")
    held_out: int = Field(0, ge=0, description="mock: tasks that are only evaluated on.")
    folder: str | None = Field(None, description="OSWorld: folder that holds the list file and examples/.")
    list_name: str = Field("test_nogdrive", description="OSWorld: list file, without .json.")
    missing: Literal["error", "skip"] = Field("error", description="OSWorld: what to do about absent task files.")
    unsupported: Literal["refuse", "skip"] = Field(
        "refuse", description="OSWorld: what to do about tasks that cannot be read, set up or scored here."
    )
    exclude: list[str] = Field(default_factory=list, description="Ids of tasks that are left out.")
    forgeable: bool = Field(
        False, description="Keep tasks whose metric runs the agent's answer as code, which can forge its score."
    )
    do_nothing: Literal["ignore", "report", "exclude"] = Field(
        "ignore", description="Before training on real desktops: tasks that score above 0 if nothing is done."
    )
