"""Independent random numbers for every purpose, all from a run's one seed."""

from __future__ import annotations

from typing import Literal

import numpy as np

Purpose = Literal["weights", "actions", "critics", "batches", "noise"]

# Envs have the first children of the seed; these are grandchildren of one far behind them.
_BRANCH = 2**31
_PLACES: dict[Purpose, int] = {
    "weights": 0,
    "actions": 1,
    "critics": 2,
    "batches": 3,
    "noise": 4,
}


def stream_seed(seed: int, purpose: Purpose) -> int:
    """Derive a seed that no other purpose, and no env, has: an int below 2**63."""
    child = np.random.SeedSequence(seed, spawn_key=(_BRANCH, _PLACES[purpose]))
    return int(child.generate_state(1, np.uint64)[0] >> np.uint64(1))
