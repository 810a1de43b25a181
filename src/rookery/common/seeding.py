"""Seeds of envs: from one root seed to one seed per env."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rookery.common.arguments import as_int, unfit, whole_number
from rookery.errors import ConfigError


def env_seeds(root_seed: int | None, num_envs: int) -> list[int]:
    """Return independent seeds for ``num_envs`` envs.

    They are the first words of the children of a ``numpy.random.SeedSequence``. Unlike
    ``root_seed + i``, seeds of runs with neighbouring root seeds do not overlap.

    Args:
        root_seed: any non-negative int; None draws one from the system.
        num_envs: number of envs.

    Returns:
        Distinct ints below 2**31.
    """
    children = np.random.SeedSequence(root_seed).spawn(num_envs)
    seeds = [int(child.generate_state(1)[0]) >> 1 for child in children]
    taken: set[int] = set()
    for i, seed in enumerate(seeds):
        while seed in taken:
            seed = (seed + 1) % 2**31
        taken.add(seed)
        seeds[i] = seed
    return seeds


def remember_seeds(
    known: list[int | None], seeds: Sequence[int | None], mask: Sequence[bool] | None
) -> None:
    """Store in ``known`` the seeds of a reset that are not None, for envs in ``mask``."""
    for i, seed in enumerate(seeds):
        if seed is not None and (mask is None or mask[i]):
            known[i] = seed


def first_seed(seeds: Iterable[int | None]) -> int | None:
    """Return the first seed that is not None, or None."""
    return next((seed for seed in seeds if seed is not None), None)


def derived_seed(seed: int | None, attempt: int) -> int | None:
    """Return the seed of the n-th replacement of an env that was seeded with ``seed``.

    Repeating ``seed`` would repeat the lost episode, and perhaps the fault.
    """
    if seed is None:
        return None
    return int(np.random.SeedSequence([seed, attempt]).generate_state(1)[0]) >> 1


def consecutive_seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """Return a seed or None for each env; an int means ``seed + i``, as in Gymnasium.

    Raises:
        ConfigError: ``seed`` is neither a seed nor a sequence of ``num_envs`` seeds or Nones.
    """
    if seed is None:
        return [None] * num_envs
    first = as_int(seed)
    if first is not None:
        first = whole_number("seed", first, 0)
        return [first + i for i in range(num_envs)]
    if not _is_sequence(seed):
        raise unfit("seed", "None, a whole number, or a sequence with one for each env", seed)
    several: Any = seed
    if len(several) != num_envs:
        raise ConfigError(f"seed has {len(several)} entries for {num_envs} envs")
    return [
        None if value is None else whole_number(f"seed[{i}]", value, 0)
        for i, value in enumerate(several)
    ]


def _is_sequence(value: Any) -> bool:
    """Return True for sequences and arrays, which are not a ``Sequence`` in Python."""
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0:
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")
