"""Batch: the seam between envs that are stepped together and whoever has them stepped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from rookery.env.description import Description
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_writer import RowSink
from rookery.shared.slab import News


class Batch(Protocol):
    """Consecutive envs of a vector env, which step into rows of arrays.

    What the envs are is known here alone: many ``gymnasium.Env`` s
    (:class:`rookery.env.batch.EnvBatch`) or one ``gymnasium.vector.VectorEnv``
    (:class:`rookery.env.native.NativeBatch`). Where they live, and who asks, is not: a batch serves
    the calling thread, a worker thread and a worker process alike.

    Attributes:
        ids: indices of the envs in the vector env.
        envs: the environments, as they were built.
        busy_s: seconds spent stepping and resetting so far.
        passes_on: exceptions that come from outside while an env is busy, and end the call: they
            are no failures of the env.
    """

    ids: range
    busy_s: float
    passes_on: tuple[type[BaseException], ...]

    @property
    def envs(self) -> Sequence[Any]: ...

    def describe(self) -> Description:
        """Say what was built."""

    def attach(
        self,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
        progress: Any = None,
        *,
        travels: bool = False,
        sink: RowSink | None = None,
    ) -> None:
        """Say where results go and what happens when an episode ends.

        Args:
            arrays: for observations, rewards and flags.
            autoreset_mode: one of those that :meth:`describe` names, if it names any.
            progress: int64 ``[3]``, where the busy env, the steps of the batch and the number of
                orders carried out for single envs are noted for whoever watches.
            travels: whether the caller is another process.
            sink: where infos of all buffers go; None means into the slab of ``arrays``.
        """

    def step(self, buffer: int, env_ids: Sequence[int] | None = None) -> News | None:
        """Step envs with the actions noted for them; results go into buffer ``buffer``.

        Args:
            buffer: where to write.
            env_ids: which envs of this batch; None means all.

        Returns:
            What to tell of infos and free values; None if there are none.

        Raises:
            EnvFailed: when an env raises; whatever else could be stepped was stepped.
        """

    def reset(
        self,
        buffer: int,
        env_ids: Iterable[int],
        seeds: Iterable[int | None],
        options: Iterable[dict[str, Any] | None],
    ) -> News | None:
        """Reset envs; results go into buffer ``buffer``, with reward 0 and no flag.

        Args:
            buffer: where to write.
            env_ids: which envs of this batch.
            seeds: one, or None, for each of them.
            options: what each env's reset is given.

        Returns:
            What to tell of infos and free values; None if there are none.

        Raises:
            EnvFailed: when an env raises; whatever else could be reset was reset.
        """

    def replace(self, seeds: Sequence[int | None]) -> None:
        """Stand in for a batch that was lost: all episodes are over, none of the envs is reset.

        Args:
            seeds: for the next reset of each env, should it be given none.
        """

    def check_after_env(self, check: Callable[[], None]) -> None:
        """Have something called whenever an env returns, before what it returned is written."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Per env, what its method ``name`` returns, or its attribute ``name``."""

    def apply(
        self, function: Callable[[Any], Any], env_ids: Sequence[int]
    ) -> list[tuple[int, Any]]:
        """For those of ``env_ids`` that are of this batch: id and ``function(env)``."""

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set the attribute ``name`` of each env, one value for each."""

    def close(self) -> None:
        """Close all envs, then what was built for them; the first error is raised at the end."""


class CheckedEnv:
    """An env to step and to reset, with ``check`` called whenever it returns or raises."""

    def __init__(self, env: Any, check: Callable[[], None]) -> None:
        self._env, self._check = env, check

    def step(self, action: Any) -> Any:
        """Step the env."""
        try:
            return self._env.step(action)
        finally:
            self._check()

    def reset(self, *, seed: Any, options: Any) -> Any:
        """Reset the env."""
        try:
            return self._env.reset(seed=seed, options=options)
        finally:
            self._check()
