"""NativeSeeds: passes seeds to a native env in the form that its ``reset`` accepts.

Gymnasium specifies only that ``VectorEnv.reset(seed=)`` may be an int. ``SyncVectorEnv`` accepts a
list with one seed per env, ALE an array with one seed for each env that is reset, and other envs
only an int, from which they derive the seeds of all their envs.
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
_NO_SEED = -1  # in ALE's arrays


class NativeSeeds:
    """Resets a native env, and remembers the first form of seeds that it accepted."""

    def __init__(self) -> None:
        self._forms: tuple[Callable[[Seeds, Mask], Any], ...] = (_as_list, _as_array, _as_int)

    def reset(
        self, reset: Callable[..., Any], seeds: Seeds, mask: Mask, options: dict[str, Any] | None
    ) -> Any:
        """Call a native env's reset.

        Args:
            reset: the env's ``reset`` method.
            seeds: a seed or None for each env.
            mask: bool ``[n]``, the envs to reset. ``options`` contain it too, unless it is all
                True.
            options: the reset options.
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
    # Gymnasium's envs remove the mask from the dict.
    return None if options is None else dict(options)


def _consecutive(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _as_list(seeds: Seeds, mask: Mask) -> list[int | None]:
    return list(seeds)


def _as_array(seeds: Seeds, mask: Mask) -> npt.NDArray[np.int64]:
    chosen = np.flatnonzero(mask).tolist()
    return np.array([_NO_SEED if seeds[i] is None else seeds[i] for i in chosen], np.int64)


def _as_int(seeds: Seeds, mask: Mask) -> int:
    """Return one seed below 2**31 that depends on all seeds."""
    words = [0 if seed is None else seed + 1 for seed in seeds]
    return int(np.random.SeedSequence(words).generate_state(1)[0]) >> 1
