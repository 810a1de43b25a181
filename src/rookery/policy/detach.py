"""Random numbers of policies: apart from all others of a run, and in every process its own."""

from __future__ import annotations

import numpy as np

# What random numbers are for. Envs' seeds are the children [0], [1], ... of a run's seed; these
# are grandchildren, so that no two of all are the same.
WEIGHTS, ACTIONS, MINIBATCHES, EXPLORATION = range(4)
_OURS = 2**31


def seed_for(seed: int, purpose: int, *more: int) -> int:
    """Derive the seed of one purpose from that of a run.

    Args:
        seed: of the run.
        purpose: `WEIGHTS`, `ACTIONS`, `MINIBATCHES` or `EXPLORATION`.
        more: tells apart several of one purpose.
    """
    child = np.random.SeedSequence(seed, spawn_key=(_OURS, purpose, *more))
    return int(child.generate_state(1, np.uint64)[0]) >> 1


def stream(rng: np.random.Generator, index: int) -> np.random.Generator:
    """Return the ``index``-th of the generators that the state of ``rng`` leads to; 0 is ``rng``.

    They follow from the state, not from the seed, so that a run which goes on from a checkpoint
    does not repeat the numbers of its beginning.
    """
    if index == 0:
        return rng
    words = rng.integers(2**32, size=4)
    return np.random.default_rng([*words.tolist(), index])
