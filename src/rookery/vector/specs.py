"""What new worker processes are told, and what keeps it from travelling, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rookery.common.pickling import by_value
from rookery.common.unpicklable import advice_for, find_culprit
from rookery.env import registrations
from rookery.env.recipe import EnvRecipe
from rookery.errors import PicklingError
from rookery.worker.protocol import BatchMaker, WorkerSpec

_FORK = "inherit it with start_method='fork', "


def make_specs(
    makers: Sequence[BatchMaker], environment: dict[str, str] | None
) -> list[WorkerSpec]:
    """What each worker is told.

    Args:
        makers: of their envs.
        environment: their environment variables; None for workers on other machines, where those
            of this one and its working directory mean nothing.
    """
    registered = registrations.collect()
    folder = None if environment is None else _working_directory()
    return [WorkerSpec(maker, registered, environment, folder) for maker in makers]


def pickled_spec(spec: WorkerSpec) -> bytes:
    """What a worker is told that inherits nothing; nothing has started if that fails.

    Raises:
        PicklingError: when an env's recipe cannot travel; it names the culprit.
    """
    try:
        return by_value(spec)
    except Exception as error:
        is_near = spec.environment is not None
        raise _cannot_travel(spec.make_batch, error, _FORK if is_near else "") from error


def _cannot_travel(maker: BatchMaker, error: Exception, fork: str) -> PicklingError:
    env_id, recipe, what, advice = _culprit(maker)
    advice = advice or (
        f"Ways out: build it in the worker with rookery.Deferred(factory, ...), {fork}"
        "or keep the envs in this process with backend='serial' or backend='thread'"
    )
    return PicklingError(
        f"Env {env_id} ({recipe.name}) cannot be sent to a worker process, because of {what} "
        f"({error}). {advice}."
    )


def _culprit(maker: BatchMaker) -> tuple[int, EnvRecipe, str, str]:
    """Return env, recipe, the path to what in it cannot be pickled, and advice for such a part."""
    for env_id, recipe in enumerate(maker.recipes, maker.first_id):
        parts = [("env", recipe.source), ("wrappers", recipe.wrappers)]
        parts += [(f"env_kwargs[{name!r}]", value) for name, value in recipe.kwargs.items()]
        for name, value in parts:
            culprit = find_culprit(value, name)
            if culprit is not None:
                path, part = culprit
                kind = f"{type(part).__module__}.{type(part).__qualname__}"
                what = f"{path}: {kind.removeprefix('builtins.')}"
                return env_id, recipe, what, advice_for(part)
    return maker.first_id, maker.recipes[0], "its recipe", ""


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None
