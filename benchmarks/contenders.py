"""Everybody who is measured, one opener each; a library is imported when its contender opens.

Peers run from their released packages. Where a setting cannot change what a case measures, the one
that starts fastest is used: stepping is measured with forked children, since how they were started
does not matter once they run; the start-up subject keeps every library's default.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.cases import Case
from benchmarks.environments import MAKERS


class Stepper(NamedTuple):
    """A started and reset vector env.

    Attributes:
        step: Steps all envs once.
        encode: Makes a batch of actions what ``step`` takes.
        note: What the contender chose by itself.
    """

    step: Callable[[Any], object]
    encode: Callable[[npt.NDArray[Any]], Any] = np.asarray
    note: str = ""


Opener = Callable[[Case], AbstractContextManager[Stepper]]


@contextmanager
def _rookery(case: Case, **options: Any) -> Iterator[Stepper]:
    import rookery

    options = {
        key: case.num_workers if value == "case" else value for key, value in options.items()
    }
    venv = rookery.make_vec(MAKERS[case.env], num_envs=case.num_envs, **options)
    try:
        venv.reset(seed=0)
        yield Stepper(
            venv.step, note=str(venv.choice or "") if options["backend"] == "auto" else ""
        )
    finally:
        venv.close()


@contextmanager
def _gymnasium(case: Case, kind: str, **options: Any) -> Iterator[Stepper]:
    import gymnasium

    venv = getattr(gymnasium.vector, kind)([MAKERS[case.env]] * case.num_envs, **options)
    try:
        venv.reset(seed=0)
        yield Stepper(venv.step)
    finally:
        venv.close()


@contextmanager
def _sb3(case: Case, kind: str, **options: Any) -> Iterator[Stepper]:
    venv = open_sb3(case, kind, **options)
    try:
        venv.reset()
        yield Stepper(venv.step)
    finally:
        venv.close()


def open_sb3(case: Case, kind: str, **options: Any) -> Any:
    """Open an SB3 vector env of one process per env, or of none."""
    from stable_baselines3.common import vec_env

    return getattr(vec_env, kind)([MAKERS[case.env]] * case.num_envs, **options)


@contextmanager
def _torchrl(case: Case) -> Iterator[Stepper]:
    import torch
    from torchrl.envs import GymWrapper, ParallelEnv

    def make() -> GymWrapper:
        return GymWrapper(MAKERS[case.env](), categorical_action_encoding=True)

    venv = ParallelEnv(case.num_envs, make, mp_start_method="fork")
    state = [venv.reset()]

    def step(action: torch.Tensor) -> None:
        _, state[0] = venv.step_and_maybe_reset(state[0].set("action", action))

    try:
        yield Stepper(step, encode=torch.as_tensor)
    finally:
        venv.close()


_ISOLATED = {"backend": "process", "caller_steps": False, "num_workers": "case"}

STEPPERS: dict[str, Opener] = {
    "rookery workers": functools.partial(_rookery, **_ISOLATED),
    "rookery caller_steps": functools.partial(_rookery, backend="process", caller_steps=True),
    "rookery views": functools.partial(_rookery, copy=False, **_ISOLATED),
    "rookery auto": functools.partial(_rookery, backend="auto"),
    "rookery serial": functools.partial(_rookery, backend="serial"),
    "rookery default": functools.partial(_rookery, backend="process"),
    "rookery isolate": functools.partial(_rookery, backend="process", isolate=True),
    "gymnasium Sync": functools.partial(_gymnasium, kind="SyncVectorEnv"),
    "gymnasium Async": functools.partial(_gymnasium, kind="AsyncVectorEnv"),
    "gymnasium Async, pickled": functools.partial(
        _gymnasium, kind="AsyncVectorEnv", shared_memory=False
    ),
    "SB3 Dummy": functools.partial(_sb3, kind="DummyVecEnv"),
    "SB3 Subproc": functools.partial(_sb3, kind="SubprocVecEnv", start_method="fork"),
    "SB3 Subproc, default start": functools.partial(_sb3, kind="SubprocVecEnv"),
    "TorchRL Parallel": _torchrl,
}

LIBRARIES: Sequence[str] = (
    "rookery",
    "gymnasium",
    "numpy",
    "torch",
    "stable-baselines3",
    "torchrl",
    "mujoco",
    "ale-py",
)
