"""The vector envs that are compared; a library is imported when its contender opens."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rookery.env.deferred import Workshop
from rookery.env.recipe import EnvRecipe, make_recipes
from rookery.run.env_source import EnvSource
from rookery.vector.make import make_vec

LOOP, SERIAL = "plain loop", "rookery serial"


@dataclass(frozen=True)
class Contender:
    """A way of stepping envs that is measured.

    Attributes:
        name: name in tables and pictures.
        library: a key of ``OPENERS``, or ``"loop"`` or ``"probe"``.
        options: keyword arguments of its vector env.
        note: remark for comparisons with other contenders.
    """

    name: str
    library: str
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class BenchSubject:
    """The env that all contenders step.

    Attributes:
        name: name of the env.
        recipe: recipe that builds one env.
        batch: arguments of `make_vec` for the native batch of the env; None without one.
    """

    name: str
    recipe: EnvRecipe
    batch: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, source: EnvSource) -> BenchSubject:
        """Return the env as training uses it.

        Raises:
            UsageError: the env is invalid.
        """
        arguments = source.arguments()
        (recipe,) = make_recipes(
            arguments["env"], 1, arguments["env_kwargs"], arguments["wrappers"]
        )
        return cls(source.name, recipe.self_contained(), _batch_of(source, recipe))


class Stepper(NamedTuple):
    """A started and reset vector env.

    Attributes:
        step: function that steps all envs once.
        action_space: batched action space.
    """

    step: Callable[[Any], object]
    action_space: Any


def contenders_for(
    subject: BenchSubject, num_workers: int | None = None, start_method: str | None = None
) -> list[Contender]:
    """Return all available contenders, the plain loop first.

    Args:
        subject: env to step.
        num_workers: number of rookery's worker processes; None means one per usable CPU.
        start_method: start method of rookery's worker processes; None means the default.
    """
    workers = {"backend": "process", "num_workers": num_workers, "start_method": start_method}
    found = [
        Contender(LOOP, "loop"),
        Contender(SERIAL, "rookery", {"backend": "serial"}),
        Contender("rookery process", "rookery", {**workers, "caller_steps": False}),
        Contender("rookery process, caller steps", "rookery", {**workers, "caller_steps": True}),
        Contender("rookery thread", "rookery", {"backend": "thread"}),
    ]
    if subject.batch is not None:
        note = "native batch of the env; its rules may differ"
        found.append(Contender("rookery native", "rookery", {"backend": "native"}, note))
    found += [
        Contender("gymnasium SyncVectorEnv", "gymnasium", {"kind": "SyncVectorEnv"}),
        Contender("gymnasium AsyncVectorEnv", "gymnasium", {"kind": "AsyncVectorEnv"}),
    ]
    if importlib.util.find_spec("stable_baselines3") is not None:
        # The start method does not affect the speed of steps; fork starts fastest.
        start = {"start_method": "fork"} if sys.platform == "linux" else {}
        found += [
            Contender("SB3 DummyVecEnv", "sb3", {"kind": "DummyVecEnv"}),
            Contender("SB3 SubprocVecEnv", "sb3", {"kind": "SubprocVecEnv", **start}),
        ]
    return found


def _batch_of(source: EnvSource, recipe: EnvRecipe) -> dict[str, Any] | None:
    """Return the arguments of `make_vec` for the native batch, if it is the same env."""
    family = source.family()
    if family is not None:
        if family.batch is None or source.wrappers:
            return None
        return {**source.batch_arguments(), "autoreset_mode": "same_step"}
    spec = recipe.spec()
    if spec is None or spec.vector_entry_point is None or recipe.wrappers:
        return None
    return {"env": recipe.source, "env_kwargs": dict(recipe.kwargs)}


@contextmanager
def _rookery(subject: BenchSubject, num_envs: int, **options: Any) -> Iterator[Stepper]:
    arguments: dict[str, Any]
    if options["backend"] == "native":
        arguments = dict(subject.batch or {})
    else:
        recipe = subject.recipe
        arguments = {
            "env": recipe.source, "env_kwargs": recipe.kwargs, "wrappers": recipe.wrappers
        }  # fmt: skip
    with make_vec(**arguments, num_envs=num_envs, **options) as venv:
        venv.reset(seed=0)
        yield Stepper(venv.step, venv.action_space)


@contextmanager
def _gymnasium(
    subject: BenchSubject, num_envs: int, kind: str, **options: Any
) -> Iterator[Stepper]:
    import gymnasium

    venv = getattr(gymnasium.vector, kind)([_maker(subject)] * num_envs, **options)
    try:
        venv.reset(seed=0)
        yield Stepper(venv.step, venv.action_space)
    finally:
        venv.close()


@contextmanager
def _sb3(subject: BenchSubject, num_envs: int, kind: str, **options: Any) -> Iterator[Stepper]:
    from gymnasium.vector.utils import batch_space
    from stable_baselines3.common import vec_env

    venv = getattr(vec_env, kind)([_maker(subject)] * num_envs, **options)
    try:
        venv.reset()
        yield Stepper(venv.step, batch_space(venv.action_space, num_envs))
    finally:
        venv.close()


OPENERS: dict[str, Callable[..., Any]] = {
    "rookery": _rookery,
    "gymnasium": _gymnasium,
    "sb3": _sb3,
}


def _maker(subject: BenchSubject) -> Callable[[], Any]:
    return functools.partial(_build, subject.recipe)


def _build(recipe: EnvRecipe) -> Any:
    return recipe.build(Workshop())
