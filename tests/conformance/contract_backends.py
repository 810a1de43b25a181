"""Gymnasium's vector envs and rookery's backends, opened with the same arguments."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import backends
import gymnasium as gym
import numpy as np
import pytest
from contract_envs import Scripted
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import rookery

Backend = Callable[..., gym.vector.VectorEnv[Any, Any, Any]]
Open = Callable[..., Any]  # the fixtures that open backends

# Fork starts fastest, and how Gymnasium's processes start is not what is tested here.
_CONTEXT = "fork" if "fork" in multiprocessing.get_all_start_methods() else None


def _open_async(env_fns: Any, **options: Any) -> AsyncVectorEnv[Any, Any]:
    with warnings.catch_warnings():
        # From Python 3.12 on, forking beside threads is warned of; torch may have started some.
        warnings.simplefilter("ignore", DeprecationWarning)
        return AsyncVectorEnv(env_fns, context=_CONTEXT, **options)


GYMNASIUM: dict[str, Backend] = {"SyncVectorEnv": SyncVectorEnv, "AsyncVectorEnv": _open_async}
OURS: dict[str, Backend] = {
    name: partial(rookery.make_vec, **backend.options)
    for name, backend in backends.BACKENDS.items()
}
BACKENDS = {**GYMNASIUM, **OURS}
WITH_ASYNC_CALLS = [name for name in BACKENDS if name != "SyncVectorEnv"]
WITH_WORKERS = [
    "AsyncVectorEnv",
    *(name for name, backend in backends.BACKENDS.items() if backend.has_workers),
]
MODES = {mode.name.lower(): mode for mode in AutoresetMode}

NUM_ENVS = 3


def params(names: Iterable[str]) -> list[Any]:
    """Parameters of a test; Gymnasium's own classes are tried with --whole only."""
    peer = pytest.mark.peer
    return [pytest.param(name, marks=peer) if name in GYMNASIUM else name for name in names]


def scripted(num_envs: int = NUM_ENVS, **options: Any) -> list[Callable[[], Any]]:
    """As many env functions as asked for."""
    return [partial(Scripted, **options)] * num_envs


def cues(*numbers: int) -> Any:
    """Actions for :class:`contract_envs.Scripted`, int64 ``[num_envs]``."""
    return np.array(numbers)
