"""check_vector_env: compares any vector env with plain envs, over random calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from rookery.testing.scripted import Scripted
from rookery.testing.walk import Walk

Make = Callable[..., Any]

# Methods and attributes of Scripted envs.
_CALLS: tuple[tuple[Any, ...], ...] = (("double", 21), ("steps_ever",), ("np_random_seed",))
_ATTRIBUTES: Mapping[str, Sequence[Any]] = {"label": ("a", "b", 3, None)}


def check_vector_env(
    make: Make,
    env_fns: Sequence[Callable[[], gym.Env[Any, Any]]] | None = None,
    *,
    autoreset_modes: Iterable[str] = ("next_step", "same_step", "disabled"),
    copies: Iterable[bool] = (True, False),
    views_outlive: int = 1,
    calls: Sequence[tuple[Any, ...]] | None = None,
    attributes: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    num_operations: int = 100,
) -> None:
    """Make random calls to a vector env and compare every result with that of plain envs.

    Observations, rewards, flags, infos in Gymnasium's vector form, dtypes, shapes and results of
    ``call`` are compared to the last bit. Earlier results must not change. If the vector env has
    them, ``step_async`` and ``step_wait``, ``send_reset``, ``send`` and ``recv``, ``statistics``
    and ``pids`` are called too.

    Args:
        make: called as ``make(env_fns, autoreset_mode=mode, copy=copy)``; returns a
            ``gymnasium.vector.VectorEnv``. It may apply wrappers and ignore arguments.
        env_fns: one callable per env. The results of an env must depend only on its seed and
            actions. None means two sets of built-in envs, with array and with nested observations.
        autoreset_modes: Gymnasium's names of the modes to check.
        copies: values of ``copy`` to check.
        views_outlive: with ``copy=False``, number of later steps during which an array must not
            change: 1 for
            rookery, 0 for Gymnasium's own vector envs.
        calls: names of attributes of the envs, or methods and their arguments, for ``call``.
        attributes: names for ``set_attr``, each with the values to choose from.
        seed: seed of the random calls.
        num_operations: number of calls for each combination of mode and copy.

    Raises:
        CheckFailed: a result differs. The message names the operation, the env, the place, the
            expected and the actual value, and lists all operations so far.
    """
    if env_fns is None:
        nested = (partial(Scripted, 0.2, True, 5, "rgb_array"),) * 4
        plain = (partial(Scripted, 0.2, False, 5, "rgb_array"),) * 3
        sets: list[Sequence[Callable[[], gym.Env[Any, Any]]]] = [plain, nested]
        calls = _CALLS if calls is None else calls
        attributes = _ATTRIBUTES if attributes is None else attributes
    else:
        sets = [env_fns]
    for chosen in sets:
        for mode in autoreset_modes:
            for copy in copies:
                walk = Walk(
                    make,
                    chosen,
                    AutoresetMode[mode.upper()],
                    copy,
                    views_outlive=views_outlive,
                    calls=calls or (),
                    attributes=attributes or {},
                    rng=np.random.default_rng(seed),
                )
                walk.go(num_operations)
