"""Samples of a run's attempts as pictures: what the model saw, what it did, and what it got for it."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from dartsim.core.types import Trajectory
from dartsim.envs.actions import ActionGrammar
from dartsim.envs.render import episode_png
from dartsim.observe import Instrument

KEPT = 8
"""Attempts kept from the beginning, and from the end."""


class Samples(Instrument):
    """Keeps the first and the last attempts that were scored."""

    def __init__(self) -> None:
        self._first: list[Trajectory] = []
        self._last: deque[Trajectory] = deque(maxlen=KEPT)

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        if trajectory.masked or not trajectory.turns:
            return
        if len(self._first) < KEPT:
            self._first.append(trajectory)
        else:
            self._last.append(trajectory)

    def write(self, folder: Path, grammar: ActionGrammar) -> list[dict[str, Any]]:
        """Write pictures into the run's folder and return their files and captions."""
        written = []
        for kind, kept in (("first", self._first), ("last", self._last)):
            for number, trajectory in enumerate(kept):
                file = Path("samples") / f"{kind}-{number}.png"
                (folder / file).parent.mkdir(exist_ok=True)
                frames = [np.asarray(turn.observation.screenshot) for turn in trajectory.turns]
                actions = [turn.reply.action for turn in trajectory.turns]
                episode_png(frames, actions, folder / file, grammar=grammar)
                caption = (
                    f"{trajectory.attempt.task.instruction} Reward {trajectory.reward:g}, version "
                    f"{trajectory.newest_version}, attempt {trajectory.attempt.id}"
                )
                written.append({"file": str(file), "caption": caption})
        return written
