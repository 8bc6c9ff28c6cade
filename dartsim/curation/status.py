"""``CurationStatus``: why there is no batch, and why a waiting slot gets no attempt."""

from __future__ import annotations

from dataclasses import dataclass

from dartsim.core.words import plural

NUM_LISTED = 3
"""Maximum number of open groups listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationStatus:
    """What the data manager waits for at one moment."""

    eligible: int
    min_groups: int
    open_groups: tuple[tuple[int, int, int], ...]
    running: int
    leased: int
    publish_wait: str = "nothing"
    blocked_by: str | None = None

    def batch(self) -> str:
        """Return what the next batch lacks, as a sentence."""
        lacking = self.min_groups - self.eligible
        if lacking <= 0:
            return f"{self.eligible} groups are eligible, a batch needs {self.min_groups}"
        text = f"the batch needs {plural(lacking, 'more group')} of {self.min_groups}"
        nearest = sorted(self.open_groups, key=lambda group: (group[2] - group[1], group[0]))[:NUM_LISTED]
        for group, ended, planned in nearest:
            text += f"; group {group} lacks {planned - ended} of {planned} attempts"
        more = len(self.open_groups) - len(nearest)
        return text + (f"; {more} more groups are open" if more else "")

    def publication(self) -> str:
        """Return what a publication waits for, as a sentence."""
        running = f"{plural(self.running, 'attempt')} that new weights wait for"
        return f"{running}; {self.batch()}" if self.publish_wait == "batch" else running

    def admission(self) -> str:
        """Return why a waiting slot gets no attempt, as a sentence."""
        return self.blocked_by or "no bound on groups is reached"
