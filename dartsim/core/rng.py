"""Named random streams of one seed: one more draw in one part shifts no other.

``streams(seed).rng("desktop/17/latency")`` depends on the seed and the name alone: not on which other
streams exist, on the order in which they were asked for, or on the process.
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
        """Start every stream at its beginning.

        Args:
            seed: The seed.
            life: How often the run was begun: what is drawn after a crash is not what was drawn before it.
        """
        if seed < 0:
            raise ValueError(f"a seed must be at least 0, got {seed}")
        self.seed = seed
        self._prefix = "" if life == 1 else f"life-{life}/"
        self._generators: dict[str, np.random.Generator] = {}

    def rng(self, name: str) -> np.random.Generator:
        """Return the stream of that name; asking again returns the same generator, where it stands."""
        generator = self._generators.get(name)
        if generator is None:
            sequence = self._sequence(self._prefix + name)
            generator = self._generators[name] = np.random.Generator(np.random.PCG64(sequence))
        return generator

    def seed_of(self, name: str) -> int:
        """Return a seed in [0, 2**63) that belongs to ``name``; nothing is kept or advanced.

        For what is made in large numbers (attempts), where keeping a generator each would fill memory.
        """
        return int(self._sequence(name).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _sequence(self, name: str) -> np.random.SeedSequence:
        digest = blake2b(name.encode(), digest_size=16).digest()
        words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
        return np.random.SeedSequence(self.seed, spawn_key=words)


def streams(seed: int) -> Streams:
    """Return the named random streams of ``seed``."""
    return Streams(seed)
