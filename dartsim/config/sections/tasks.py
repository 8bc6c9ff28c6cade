"""Which tasks are offered."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dartsim.core.section import Fuzzed, Section


class TasksConfig(Section):
    """Which tasks are offered."""

    source: Literal["generated", "osworld", "mock", "desktop", "gym"] = Field(
        "generated",
        description="Origin of tasks: generated (no content), osworld (OSWorld's files), mock, desktop (our image), "
        "or gym (of a gymnasium environment).",
    )
    count: Annotated[int, Fuzzed((1, 2, 5))] = Field(
        181, ge=1, le=1_000_000, description="Number of generated, mock or numbered gym tasks (DART run history: 181)."
    )
    mock: str = Field("click_button", description="mock: a family of tasks, or a suite (errands, locks, long).")
    desktop: str = Field(
        "panel",
        description="desktop: panel (generated, one click), or pages (generated, 5 to 7 clicks, then done).",
    )
    held_out: int = Field(
        0,
        ge=0,
        description="Number of tasks that are only evaluated: other ones of the mock desktop, panel and pages; of a "
        "list so many, from each domain in proportion.",
    )
    folder: str | None = Field(None, description="OSWorld: folder with the list file and examples/.")
    list_name: str = Field("test_nogdrive", description="OSWorld: name of the list file, without .json.")
    unsupported: Literal["refuse", "skip"] = Field(
        "refuse",
        description="OSWorld: what to do about tasks that have no file, or cannot be read, set up or scored here.",
    )
    internet: bool = Field(
        True, description="OSWorld: whether desktops reach the internet; otherwise tasks that need it cannot run."
    )
    exclude: list[str] = Field(default_factory=list, description="Ids of tasks to leave out.")
    do_nothing: Literal["auto", "ignore", "report", "exclude"] = Field(
        "auto",
        description="Real desktops: tasks that score above 0 if nothing is done; auto reports those of task files, "
        "and tries none of ours, which are tested.",
    )
