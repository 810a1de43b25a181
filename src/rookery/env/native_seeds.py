"""NativeSeeds: gives a native env its seeds in the form that its ``reset`` takes.

Gymnasium says of ``VectorEnv.reset(seed=)`` only that it may be an int. ``SyncVectorEnv`` takes a
list with one seed for each env, ALE an array with one for each env that is reset, others an int
alone, from which they draw what all their envs need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

Seeds = Sequence[int | None]
Mask = npt.NDArray[np.bool_]

_REFUSALS = (TypeError, ValueError, gym.error.Error)
_NO_SEED = -1  # among ALE's


class NativeSeeds:
    """Resets a native env, and keeps in mind which form of seeds it did not refuse."""

    def __init__(self) -> None:
        self._forms: tuple[Callable[[Seeds, Mask], Any], ...] = (_as_list, _as_array, _as_int)

    def reset(
        self, reset: Callable[..., Any], seeds: Seeds, mask: Mask, options: dict[str, Any] | None
    ) -> Any:
        """Call a native env's reset.

        Args:
            reset: its method.
            seeds: one, or None, for each env.
            mask: bool ``[n]``, which are reset; ``options`` say so, too, unless all are.
            options: given to it.
        """
        first = seeds[0]
        if all(seed is None for seed in seeds):
            return reset(seed=None, options=_own(options))
        if first is not None and mask.all() and list(seeds) == _consecutive(first, len(seeds)):
            return reset(seed=first, options=_own(options))
        refusal: Exception | None = None
        for form in self._forms:
            try:
                result = reset(seed=form(seeds, mask), options=_own(options))
            except _REFUSALS as error:
                refusal = refusal or error
            else:
                self._forms = (form,)
                return result
        assert refusal is not None
        raise refusal


def _own(options: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if options is None else dict(options)  # Gymnasium's own take the mask out


def _consecutive(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _as_list(seeds: Seeds, mask: Mask) -> list[int | None]:
    return list(seeds)


def _as_array(seeds: Seeds, mask: Mask) -> npt.NDArray[np.int64]:
    chosen = np.flatnonzero(mask).tolist()
    return np.array([_NO_SEED if seeds[i] is None else seeds[i] for i in chosen], np.int64)


def _as_int(seeds: Seeds, mask: Mask) -> int:
    """One seed that depends on all of them, below 2**31."""
    words = [0 if seed is None else seed + 1 for seed in seeds]
    return int(np.random.SeedSequence(words).generate_state(1)[0]) >> 1
