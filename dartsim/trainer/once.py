"""``Once``: an update that was done is not done again because what came after it failed.

update --> done --> judged, checkpointed, evaluated --> answered
             ^                    |
             +-- UpdateUncertain -+ (asked for again with the same batch: only what failed is repeated)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dartsim.core.errors import UpdateUncertain
from dartsim.core.ports import Learner
from dartsim.core.types import Batch, UpdateResult


class Once:
    """Remembers what an update made until everything that follows it is done too.

    Args:
        learner: What learns.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._done: UpdateResult | None = None

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch, unless that was done and what follows it failed.

        Raises:
            LearnerFault: As the learner.
        """
        if self._done is None:
            self._done = await self._learner.update(batch)
        return self._done

    @contextmanager
    def then(self, batch: Batch, what: str) -> Iterator[None]:
        """Do what follows an update; once it is done, the update is forgotten.

        Raises:
            UpdateUncertain: If it failed, in any way: the weights have changed, so the batch must not go back.
        """
        try:
            yield
        except Exception as exc:
            raise UpdateUncertain(f"update {batch.update} is done, but {what} failed: {exc!r}") from exc
        self._done = None
