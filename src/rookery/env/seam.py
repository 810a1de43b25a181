"""Batch: the interface between envs that are stepped together and the code that steps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from rookery.shared.arrays import BatchArrays
from rookery.shared.row_buffer import RowExtras
from rookery.shared.row_writer import RowSink


@dataclass(frozen=True)
class Description:
    """Spaces, metadata and abilities of the envs that a batch has built.

    Attributes:
        spaces: (observation space, action space) of each env; a single pair if all are equal.
        metadata: metadata of the first env.
        render_mode: render mode of the first env.
        spec: spec of the first env.
        autoreset_modes: the modes that the batch supports; None means all.
        steps_together: True if one call steps all envs of the batch, and single envs cannot be
            stepped.
    """

    spaces: list[tuple[Space[Any], Space[Any]]]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: EnvSpec | None
    autoreset_modes: tuple[AutoresetMode, ...] | None = None
    steps_together: bool = False

    @classmethod
    def of(cls, envs: Sequence[Any]) -> Description:
        """Return the description of ``envs``."""
        first = envs[0]
        spaces = [(env.observation_space, env.action_space) for env in envs]
        if all(pair == spaces[0] for pair in spaces):
            spaces = spaces[:1]
        return cls(spaces, dict(first.metadata), first.render_mode, first.spec)


class Batch(Protocol):
    """Consecutive envs of a vector env, which step into rows of arrays.

    A batch knows what its envs are: many ``gymnasium.Env`` objects
    (:class:`rookery.env.batch.EnvBatch`) or one ``gymnasium.vector.VectorEnv``
    (:class:`rookery.env.native.NativeBatch`). It does not know where it runs: in the calling
    thread, in a worker thread or in a worker process.

    Attributes:
        ids: indices of the envs in the vector env.
        envs: the environments, as they were built.
        busy_s: seconds spent stepping and resetting so far.
        passes_on: exceptions that interrupt the process while an env is busy. They end the call and
            are not treated as failures of the env.
    """

    ids: range
    busy_s: float
    passes_on: tuple[type[BaseException], ...]

    @property
    def envs(self) -> Sequence[Any]: ...

    def describe(self) -> Description:
        """Return the spaces and metadata of the envs that were built."""

    def attach(
        self,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
        progress: Any = None,
        *,
        pickles: bool = False,
        sink: RowSink | None = None,
    ) -> None:
        """Set the arrays for results, and the autoreset mode.

        Args:
            arrays: arrays for observations, rewards and flags.
            autoreset_mode: one of the modes that :meth:`describe` names, if it names any.
            progress: int64 ``[3]``: the busy env, the steps of the batch, and the number of orders
                carried out for single envs. The batch writes it, and a supervisor reads it.
            pickles: write results in the form for another process.
            sink: receives the infos of all buffers; None means the row buffer of ``arrays``.
        """

    def step(self, buffer: int, env_ids: Sequence[int] | None = None) -> RowExtras | None:
        """Step envs with the actions in the action columns, and write results into a buffer.

        Args:
            buffer: index of the buffer to write into.
            env_ids: envs of this batch; None means all.

        Returns:
            Infos and free values that did not fit into the rows, or None.

        Raises:
            EnvFailed: an env raised. All other envs were stepped.
        """

    def reset(
        self,
        buffer: int,
        env_ids: Iterable[int],
        seeds: Iterable[int | None],
        options: Iterable[dict[str, Any] | None],
    ) -> RowExtras | None:
        """Reset envs and write results into a buffer, with reward 0 and all flags False.

        Args:
            buffer: index of the buffer to write into.
            env_ids: envs of this batch.
            seeds: a seed or None for each of ``env_ids``.
            options: the reset options for each of ``env_ids``.

        Returns:
            Infos and free values that did not fit into the rows, or None.

        Raises:
            EnvFailed: an env raised. All other envs were reset.
        """

    def replace(self, seeds: Sequence[int | None]) -> None:
        """Continue in place of a lost batch: all episodes are over and no env is reset yet.

        Args:
            seeds: the seed for the next reset of each env, used if that reset has no seed.
        """

    def check_after_env(self, check: Callable[[], None]) -> None:
        """Call ``check`` whenever an env returns, before its result is written."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Call the method ``name`` of each env, or read its attribute ``name``."""

    def apply(
        self, function: Callable[[Any], Any], env_ids: Sequence[int]
    ) -> list[tuple[int, Any]]:
        """Return (id, ``function(env)``) for the ids of this batch among ``env_ids``."""

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set the attribute ``name`` of each env to its own entry of ``values``."""

    def close(self) -> None:
        """Close all envs and then the deferred arguments. Raise the first error at the end."""


class CheckedEnv:
    """An env that calls ``check`` whenever its ``step`` or ``reset`` returns or raises."""

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
