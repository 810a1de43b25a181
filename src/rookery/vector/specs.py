"""The division of envs among workers, and the pickled specification of each worker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

from rookery.common.pickling import advice_for, by_value, find_unpicklable
from rookery.env import registrations
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.errors import PicklingError
from rookery.worker.protocol import BatchMaker, WorkerSpec

_FORK = "inherit it with start_method='fork', "


def split(num_envs: int, num_parts: int) -> list[range]:
    """Return consecutive ranges of ``num_envs`` envs, with lengths that differ by at most 1."""
    bounds = [num_envs * i // num_parts for i in range(num_parts + 1)]
    return [range(a, b) for a, b in pairwise(bounds)]


def make_specs(
    makers: Sequence[BatchMaker], environment: dict[str, str] | None
) -> list[WorkerSpec]:
    """Return the specification of each worker.

    Args:
        makers: factories of the workers' batches.
        environment: environment variables of the workers. None for workers on other machines, where
            the variables and the working directory of this machine have no meaning.
    """
    registered = registrations.collect()
    folder = None if environment is None else _working_directory()
    return [WorkerSpec(maker, registered, environment, folder) for maker in makers]


def remote_specs(recipes: Sequence[EnvRecipe], ranges: Sequence[range]) -> list[bytes]:
    """Return the pickled specifications of workers on other machines, one per range of envs.

    Raises:
        PicklingError: see :func:`pickled_spec`.
    """
    makers = [BatchMaker(EnvBatch, recipes[ids.start : ids.stop], ids.start) for ids in ranges]
    return [pickled_spec(spec) for spec in make_specs(makers, None)]


def pickled_spec(spec: WorkerSpec) -> bytes:
    """Pickle a specification, before any process starts.

    Raises:
        PicklingError: an env cannot be pickled; the message has the path to the part at fault.
    """
    try:
        return by_value(spec)
    except Exception as error:
        is_near = spec.environment is not None
        raise _not_picklable(spec.make_batch, error, _FORK if is_near else "") from error


def _not_picklable(maker: BatchMaker, error: Exception, fork: str) -> PicklingError:
    env_id, recipe, what, advice = _unpicklable_part(maker)
    advice = advice or (
        f"Ways out: build it in the worker with rookery.Deferred(factory, ...), {fork}"
        "or keep the envs in this process with backend='serial' or backend='thread'"
    )
    return PicklingError(
        f"Env {env_id} ({recipe.name}) cannot be sent to a worker process, because of {what} "
        f"({error}). {advice}."
    )


def _unpicklable_part(maker: BatchMaker) -> tuple[int, EnvRecipe, str, str]:
    """Return env id, recipe, path to the unpicklable part, and advice for such a part."""
    for env_id, recipe in enumerate(maker.recipes, maker.first_id):
        parts = [("env", recipe.source), ("wrappers", recipe.wrappers)]
        parts += [(f"env_kwargs[{name!r}]", value) for name, value in recipe.kwargs.items()]
        for name, value in parts:
            found = find_unpicklable(value, name)
            if found is not None:
                path, part = found
                kind = f"{type(part).__module__}.{type(part).__qualname__}"
                what = f"{path}: {kind.removeprefix('builtins.')}"
                return env_id, recipe, what, advice_for(part)
    return maker.first_id, maker.recipes[0], "its recipe", ""


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None
