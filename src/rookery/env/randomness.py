"""The global random streams of a process: numpy's legacy one, ``random``'s and torch's.

Every worker that is forked from one server starts with the same streams, so envs that draw from
them, rather than from their own ``np_random``, would repeat each other. Therefore a worker's
streams are seeded differently at its start, and again from the seed of its first seeded reset.

torch is seeded only if it is already imported. Libraries that an env imports later start with
their default streams.
"""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Sequence

import numpy as np

_WORD_BITS = 32
_ENTROPY_WORDS = 4
_FRESH, _SEEDED = 0, 1  # keeps streams from random entropy apart from seeded streams


def fresh_entropy() -> tuple[int, ...]:
    """Return entropy from the system, for a worker's streams before any seed is given."""
    return (_FRESH, *(secrets.randbits(_WORD_BITS) for _ in range(_ENTROPY_WORDS)))


def seeded_entropy(seed: int, worker: int) -> tuple[int, ...]:
    """Return entropy for a worker's streams that depends on seed and worker only.

    Args:
        seed: seed of the first seeded reset, at least 0.
        worker: index of the worker in its vector env.
    """
    return (_SEEDED, worker, seed)


def seed_global_streams(entropy: Sequence[int]) -> None:
    """Seed each global stream of this process from its own child ``SeedSequence``.

    Args:
        entropy: ints of at least 0.
    """
    for_numpy, for_random, for_torch = np.random.SeedSequence(list(entropy)).spawn(3)
    np.random.seed(for_numpy.generate_state(8))  # noqa: NPY002 - it is what envs draw from
    random.seed(for_random.generate_state(8).tobytes())
    seed_torch = getattr(sys.modules.get("torch"), "manual_seed", None)
    if seed_torch is not None:  # torch is imported completely
        seed_torch(int(for_torch.generate_state(1, np.uint64)[0]))
