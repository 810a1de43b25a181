"""Vector envs that a test opens are closed after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from contract_backends import (
    BACKENDS,
    OURS,
    WITH_ASYNC_CALLS,
    WITH_WORKERS,
    Open,
    params,
    scripted,
)


@pytest.fixture(scope="session")
def gymnasiums_arena() -> None:
    """Make multiprocessing map its permanent arena before a test counts mappings."""
    for _ in range(2):
        BACKENDS["AsyncVectorEnv"](scripted()).close()
    gc.collect()


def _opener(name: str) -> Iterator[Open]:
    opened: list[gym.vector.VectorEnv[Any, Any, Any]] = []

    def open_one(env_fns: Any = None, **options: Any) -> Any:
        opened.append(BACKENDS[name](scripted() if env_fns is None else env_fns, **options))
        return opened[-1]

    open_one.__name__ = name
    yield open_one
    while opened:  # Gymnasium's give their pipes back only when nobody holds them
        opened.pop().close()


@pytest.fixture(params=params(BACKENDS))
def open_any(request: pytest.FixtureRequest, gymnasiums_arena: None) -> Iterator[Open]:
    """Opens Gymnasium's and rookery's vector envs."""
    yield from _opener(request.param)


@pytest.fixture(params=params(WITH_ASYNC_CALLS))
def open_async(request: pytest.FixtureRequest, gymnasiums_arena: None) -> Iterator[Open]:
    """Opens the vector envs that have ``step_async`` and ``step_wait``."""
    yield from _opener(request.param)


@pytest.fixture(params=params(WITH_WORKERS))
def open_workers(request: pytest.FixtureRequest, gymnasiums_arena: None) -> Iterator[Open]:
    """Opens the vector envs that have worker processes."""
    yield from _opener(request.param)


@pytest.fixture(params=list(OURS))
def open_ours(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens rookery's vector envs."""
    yield from _opener(request.param)
