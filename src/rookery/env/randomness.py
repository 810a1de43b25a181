"""The global random streams of a process: numpy's legacy one, ``random``'s and torch's.

Envs that draw from them, rather than from their own ``np_random``, would otherwise repeat each
other: every worker that is forked from one server begins with the same streams. A worker is given
streams of its own at its start, and at the first seeded reset such as follow the seed.

torch is seeded only if it was imported before; what an env imports later has whatever stream that
library begins with.
"""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Sequence

import numpy as np

_WORD_BITS = 32
_ENTROPY_WORDS = 4
_FRESH, _SEEDED = 0, 1  # so that no seed gives the streams that chance gave


def fresh_entropy() -> tuple[int, ...]:
    """Entropy drawn from the system, for a worker's streams before any seed was given."""
    return (_FRESH, *(secrets.randbits(_WORD_BITS) for _ in range(_ENTROPY_WORDS)))


def seeded_entropy(seed: int, worker: int) -> tuple[int, ...]:
    """Entropy for a worker's streams that follows from a seed, and from nothing else.

    Args:
        seed: of the first seeded reset, at least 0.
        worker: index of the worker in its vector env.
    """
    return (_SEEDED, worker, seed)


def seed_global_streams(entropy: Sequence[int]) -> None:
    """Seed the global streams of this process, each from a child of its own.

    Args:
        entropy: ints of at least 0.
    """
    for_numpy, for_random, for_torch = np.random.SeedSequence(list(entropy)).spawn(3)
    np.random.seed(for_numpy.generate_state(8))  # noqa: NPY002 - it is what envs draw from
    random.seed(for_random.generate_state(8).tobytes())
    seed_torch = getattr(sys.modules.get("torch"), "manual_seed", None)
    if seed_torch is not None:  # it is neither missing nor half imported
        seed_torch(int(for_torch.generate_state(1, np.uint64)[0]))
