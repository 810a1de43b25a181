"""Vector envs of native batches, where a ``gymnasium.vector.VectorEnv`` steps many envs at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.arguments import whole_number
from rookery.env.native import NativeBatch
from rookery.env.native_recipe import NativeRecipe
from rookery.env.recipe import EnvRecipe, make_recipes
from rookery.errors import ConfigError
from rookery.vector.base import VectorEnv
from rookery.vector.process import ProcessVectorEnv
from rookery.vector.serial import SerialVectorEnv
from rookery.vector.specs import split
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.protocol import BatchMaker


@dataclass(frozen=True)
class NativePlan:
    """Settings of the workers for native batches; see :func:`rookery.make_vec`."""

    num_workers: int | None
    envs_per_batch: int | None
    start_method: str | None
    threads_per_worker: int | None
    faults: FaultPolicy
    copy: bool


def make_native(
    env: Any,
    num_envs: int | None,
    env_kwargs: Mapping[str, Any] | None,
    wrappers: Sequence[Callable[[Any], Any]],
    mode: AutoresetMode,
    plan: NativePlan,
) -> VectorEnv:
    """Create a vector env of one native batch in this process, or of one per worker process.

    Args:
        env: a Gymnasium id or an EnvSpec with a ``vector_entry_point``, or a callable
            ``(num_envs) -> gymnasium.vector.VectorEnv``.
        num_envs: number of envs in all batches; None means 1.
        env_kwargs: keyword arguments of the callable or entry point.
        wrappers: callables ``VectorEnv -> VectorEnv``.
        mode: autoreset mode.
        plan: settings of the workers.

    Raises:
        ConfigError: the arguments contradict each other, or ``env`` has no batched form.
        EnvFailed: a batch cannot be built, or is not a vector env.
    """
    if isinstance(env, (list, tuple)):
        raise ConfigError(
            "backend='native' takes one callable (num_envs) -> gymnasium.vector.VectorEnv, or an "
            f"id; a {type(env).__name__} of callables creates single envs: use backend='process'"
        )
    recipe = make_recipes(env, 1, env_kwargs, wrappers)[0]
    _check_source(recipe)
    num_envs = 1 if num_envs is None else whole_number("num_envs", num_envs, 1)
    ranges = _ranges(num_envs, plan)

    def native_recipe(count: int) -> NativeRecipe:
        return NativeRecipe(recipe.source, count, mode, recipe.kwargs, recipe.wrappers)

    venv: VectorEnv
    if ranges is None:
        _require_no_worker(plan)
        batch = NativeBatch([native_recipe(num_envs)], 0)
        venv = SerialVectorEnv.of_batch(batch, mode, plan.copy)
    else:
        venv = ProcessVectorEnv.of_batches(
            ranges,
            [BatchMaker(NativeBatch, [native_recipe(len(ids))], ids.start) for ids in ranges],
            mode,
            copy=plan.copy,
            start_method=plan.start_method,
            threads_per_worker=plan.threads_per_worker,
            faults=plan.faults,
        )
    venv.backend = "native"
    return venv


def _ranges(num_envs: int, plan: NativePlan) -> list[range] | None:
    """The envs of each worker's batch; None if there is one batch, in this process."""
    workers, size = plan.num_workers, plan.envs_per_batch
    if size is None:
        return split(num_envs, min(workers, num_envs)) if workers else None
    ranges = [range(first, min(first + size, num_envs)) for first in range(0, num_envs, size)]
    if workers is not None and workers != len(ranges):
        raise ConfigError(
            f"envs_per_batch={size} makes {len(ranges)} batches of {num_envs} envs, each in a "
            f"worker, but num_workers={workers} was given; pass only one of the two"
        )
    return ranges


def _check_source(recipe: EnvRecipe) -> None:
    """Raise before anything starts if the env has no batched form."""
    spec = recipe.spec()
    if spec is not None:
        if spec.vector_entry_point is None:
            raise ConfigError(
                f"{spec.id} has no vector_entry_point, so it has no batched form for "
                "backend='native'; pass a callable (num_envs) -> gymnasium.vector.VectorEnv, or "
                "run single envs with backend='process'"
            )
        return
    try:
        signature = inspect.signature(recipe.source)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written in C, without a signature
        return
    try:
        takes_mode = "autoreset_mode" in signature.parameters
        mode = {"autoreset_mode": None} if takes_mode else {}
        signature.bind(1, **{**mode, **recipe.kwargs})
    except TypeError as error:
        raise ConfigError(
            f"backend='native' calls {recipe.name}{signature} with the number of envs, "
            f"{recipe.name}(num_envs), but this call fails: {error}. It must return a "
            "gymnasium.vector.VectorEnv; for single envs use backend='process'"
        ) from error


def _require_no_worker(plan: NativePlan) -> None:
    if plan.faults.restarts or plan.faults.has_deadline:
        raise ConfigError(
            "a native batch in this process cannot be killed at a deadline or restarted; this "
            "FaultPolicy needs worker processes: set num_workers to 1 or more, or envs_per_batch"
        )
