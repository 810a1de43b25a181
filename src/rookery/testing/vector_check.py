"""check_vector_env: a random walk of calls that holds any vector env to plain envs in a list."""

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

# What every Scripted env has; envs of the user's own say theirs.
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
    """Drive a vector env through random calls and compare every result with plain envs in a list.

    Compared to the last bit: observations, rewards, flags, infos in Gymnasium's vector form,
    dtypes, shapes, what calls return. Results that were returned earlier must not change
    afterwards. Where the vector env has them, ``step_async`` and ``step_wait``, ``send_reset``,
    ``send`` and ``recv``, ``statistics`` and ``pids`` are used too.

    Args:
        make: called as ``make(env_fns, autoreset_mode=mode, copy=copy)``; returns a
            ``gymnasium.vector.VectorEnv``. Wrap, or leave out, whatever you like in it.
        env_fns: one callable per env. The envs must follow their seeds. None means four envs of
            three kinds of observations that end now and then.
        autoreset_modes: Gymnasium's names of the modes to check.
        copies: which values of ``copy`` to check.
        views_outlive: with ``copy=False``, how many later steps an array must survive: 1 for
            rookery, 0 for Gymnasium's own vector envs.
        calls: names of attributes of the envs, or methods and their arguments, for ``call``.
        attributes: names for ``set_attr`` and values that they may have.
        seed: of the walk; the same seed makes the same calls.
        num_operations: how many calls in each combination of mode and copy.

    Raises:
        CheckFailed: at the first difference; it names the operation, the env, the place, what was
            expected and what came, and lists the operations that led there.
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
