"""Named random streams of one seed: draws from one stream do not shift another.

``Streams(seed).rng("desktop/17/latency")`` depends only on the seed and the name.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


class Streams:
    """The streams of one seed.

    Attributes:
        seed: The seed of all of them, at least 0.
    """

    def __init__(self, seed: int, *, life: int = 1) -> None:
        """Create the streams; ``life`` counts the run's starts, so that draws after a crash differ."""
        if seed < 0:
            raise ValueError(f"a seed must be at least 0, got {seed}")
        self.seed = seed
        self._prefix = "" if life == 1 else f"life-{life}/"
        self._generators: dict[str, np.random.Generator] = {}

    def rng(self, name: str) -> np.random.Generator:
        """Return the stream of a name; repeated calls return the same generator."""
        generator = self._generators.get(name)
        if generator is None:
            sequence = self._sequence(self._prefix + name)
            generator = self._generators[name] = np.random.Generator(np.random.PCG64(sequence))
        return generator

    def seed_of(self, name: str) -> int:
        """Return a seed in [0, 2**63) by name, for objects too numerous for a generator each, such as attempts."""
        return int(self._sequence(name).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _sequence(self, name: str) -> np.random.SeedSequence:
        digest = blake2b(name.encode(), digest_size=16).digest()
        words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
        return np.random.SeedSequence(self.seed, spawn_key=words)
