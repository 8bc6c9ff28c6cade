"""``PreparedRun``: a configuration whose names are resolved and checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dartsim.config import Config
from dartsim.core.types import Task
from dartsim.sim.env_profiles import EnvTiming
from dartsim.sim.gpu import GpuProfile
from dartsim.sim.learner import UpdateTokens
from dartsim.sim.prompts import PromptModel
from dartsim.sim.surrogate import RecordedOutcomes
from dartsim.sim.task_difficulties import TaskDifficulty


@dataclass(frozen=True)
class PreparedRun:
    """A configuration with the objects it names: tasks, latencies, prompt sizes."""

    config: Config
    tasks: Sequence[Task]
    held_out: Sequence[Task]
    difficulties: Mapping[str, TaskDifficulty]
    timing: EnvTiming
    gpu: GpuProfile
    prompts: PromptModel
    outcomes: RecordedOutcomes | None = None

    @cached_property
    def update_tokens(self) -> UpdateTokens:
        """Counter of the tokens that the modeled trainer computes."""
        return UpdateTokens(self.prompts, packed=self.config.trainer.optimizer.pack == "trajectories")

    @property
    def peak_tokens_per_second(self) -> float:
        """Most response tokens per second that all engines can decode with full prompts."""
        context = self.prompts.cold[self.prompts.max_images].tokens
        return self.config.rollout.num_engines * self.gpu.peak_tokens_per_second(context)
