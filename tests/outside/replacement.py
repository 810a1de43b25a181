"""A pytest plugin that puts RookeryVecEnv where Stable-Baselines3 has its own vector envs.

It is imported before any test file, so that the tests, and the library itself, find it under the
names ``SubprocVecEnv`` and ``DummyVecEnv``.
"""

from __future__ import annotations

import multiprocessing
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import known
import pytest
import sb3_contrib
import stable_baselines3.common.env_util
from stable_baselines3.common import vec_env

from rookery.integrations.sb3 import RookeryVecEnv

_NUM_WORKERS = 2  # fewer than most tests have envs: some share a process

_opened: weakref.WeakSet[RookeryVecEnv] = weakref.WeakSet()


class InPlaceOfSubproc(RookeryVecEnv):
    """Worker processes, as ``SubprocVecEnv`` has them."""

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], start_method: str | None = None, **options: Any
    ) -> None:
        _opened.add(self)
        super().__init__(
            env_fns, start_method, backend="process", num_workers=_NUM_WORKERS, **options
        )


class InPlaceOfDummy(RookeryVecEnv):
    """Worker processes too, but for tests that look at env objects of their own process.

    Workers are forked: most envs of the tests are defined beside torch, which every other worker
    would import anew.
    """

    backend = "process"

    def __init__(self, env_fns: Sequence[Callable[[], Any]], **options: Any) -> None:
        _opened.add(self)
        if self.backend == "process":
            options.update(num_workers=_NUM_WORKERS, start_method=_cheapest_start_method())
        super().__init__(env_fns, backend=self.backend, **options)


def _cheapest_start_method() -> str | None:
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else None


def _replace() -> None:
    replacements: dict[Any, type[RookeryVecEnv]] = {
        vec_env.SubprocVecEnv: InPlaceOfSubproc,
        vec_env.DummyVecEnv: InPlaceOfDummy,
    }
    for original, replacement in replacements.items():
        replacement.__name__ = original.__name__  # pytest names parametrised tests after it
    libraries = (stable_baselines3.__name__, sb3_contrib.__name__)
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] in libraries]
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in replacements:
                setattr(module, name, replacements[value])


_replace()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose where the envs that replace ``DummyVecEnv`` live."""
    InPlaceOfDummy.backend = "serial" if known.find(item.nodeid, "own-process") else "process"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close what the test left open."""
    while _opened:
        _opened.pop().close()
