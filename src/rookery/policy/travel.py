"""How policies come to live in other processes: whole, and with random numbers of their own."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

P = TypeVar("P")


def rebuilt(kind: type[P], model: Any, rng: np.random.Generator, version: int) -> P:
    """Make a policy of what it was pickled as.

    A policy holds views of its model's parameters; a plain pickle would cut them off from the
    array that new weights are written into.
    """
    policy: Any = kind(model)  # type: ignore[call-arg]
    policy.rng, policy.version = rng, version
    made: P = policy
    return made


def stream(rng: np.random.Generator, index: int) -> np.random.Generator:
    """Return the ``index``-th of the generators that the state of ``rng`` leads to; 0 is ``rng``.

    They follow from the state, not from the seed, so that a run which goes on from a checkpoint
    does not repeat the numbers of its beginning.
    """
    if index == 0:
        return rng
    words = rng.integers(2**32, size=4)
    return np.random.default_rng([*words.tolist(), index])
