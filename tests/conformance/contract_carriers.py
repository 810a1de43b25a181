"""Gymnasium's vector envs and rookery's carriers, opened with the same arguments."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from contract_envs import Scripted
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import rookery

Carrier = Callable[..., gym.vector.VectorEnv[Any, Any, Any]]
Open = Callable[..., Any]  # the fixtures that open carriers

# Fork starts fastest, and how Gymnasium's processes start is not what is tested here.
_CONTEXT = "fork" if "fork" in multiprocessing.get_all_start_methods() else None


def _open_async(env_fns: Any, **options: Any) -> AsyncVectorEnv[Any, Any]:
    with warnings.catch_warnings():
        # From Python 3.12 on, forking beside threads is warned of; torch may have started some.
        warnings.simplefilter("ignore", DeprecationWarning)
        return AsyncVectorEnv(env_fns, context=_CONTEXT, **options)


GYMNASIUM: dict[str, Carrier] = {"SyncVectorEnv": SyncVectorEnv, "AsyncVectorEnv": _open_async}
OURS: dict[str, Carrier] = {
    "serial": rookery.SerialVectorEnv,
    "process": partial(rookery.ProcessVectorEnv, num_workers=2),
    "caller-steps": partial(rookery.ProcessVectorEnv, num_workers=1, caller_steps=True),
}
CARRIERS = {**GYMNASIUM, **OURS}
WITH_ASYNC_CALLS = [name for name in CARRIERS if name != "SyncVectorEnv"]
WITH_WORKERS = ["AsyncVectorEnv", "process", "caller-steps"]
MODES = {mode.name.lower(): mode for mode in AutoresetMode}

NUM_ENVS = 3


def scripted(num_envs: int = NUM_ENVS, **options: Any) -> list[Callable[[], Any]]:
    """As many env functions as asked for."""
    return [partial(Scripted, **options)] * num_envs


def cues(*numbers: int) -> Any:
    """Actions for :class:`contract_envs.Scripted`, int64 ``[num_envs]``."""
    return np.array(numbers)
