"""Which parts are real."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Section


class BackendConfig(Section):
    """Which parts exist, and which are modelled."""

    desktops: Literal["sim", "mock", "desktop", "osworld"] = Field(
        "sim",
        description="Modelled; the mock desktop as fast as it is; containers of our desktop image; OSWorld's image.",
    )
    workers: Literal["sim", "local", "vllm"] = Field(
        "sim", description="Modelled; the model in threads of this process; vLLM servers."
    )
    learner: Literal["sim", "local", "fsdp"] = Field(
        "sim", description="With modelled time; as fast as it is, in this process; or in several (trainer.fsdp)."
    )
    real_time: bool = Field(False, description="By the machine's clock, although every part is modelled.")

    @property
    def virtual(self) -> bool:
        """Whether the run's time is virtual: nothing in it takes real time."""
        return not self.real_time and {self.desktops, self.workers, self.learner} == {"sim"}

    @property
    def boots(self) -> bool:
        """Whether desktops are booted, so that an attempt costs minutes rather than milliseconds."""
        return self.desktops in ("desktop", "osworld")
