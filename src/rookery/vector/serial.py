"""SerialVectorEnv: all envs in the calling thread. All other backends give equal results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.env_errors import in_words
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe, make_recipes
from rookery.env.seam import Batch
from rookery.errors import ConfigError
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_buffer import RowShape
from rookery.vector.agreement import ObservationMode, parse_autoreset_mode
from rookery.vector.base import VectorEnv
from rookery.vector.local import LocalBackend
from rookery.worker.orders import Orders


class SerialVectorEnv(VectorEnv):
    """A vector env that steps its envs one after the other, in the calling thread.

    Args:
        env_fns: one callable per env (or ids, EnvSpecs or recipes).
        copy: False returns views, which are valid until the step after the next.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.

    Raises:
        EnvFailed: an env cannot be built.
    """

    backend = "serial"

    def __init__(
        self,
        env_fns: Sequence[Callable[..., Any] | EnvRecipe],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        mode = parse_autoreset_mode(autoreset_mode)
        self._open(EnvBatch(as_recipes(env_fns), first_id=0), mode, observation_mode, copy)

    @classmethod
    def of_batch(
        cls, batch: Batch, mode: AutoresetMode, copy: bool, travels: bool = False
    ) -> SerialVectorEnv:
        """Create a vector env of an existing batch, which the vector env closes.

        Args:
            batch: the envs.
            mode: the autoreset mode.
            copy: see the class.
            travels: write and read results as if the batch were in another process.
        """
        venv = cls.__new__(cls)
        venv._open(batch, mode, "same", copy, travels)
        return venv

    def _open(
        self,
        batch: Batch,
        mode: AutoresetMode,
        observation_mode: ObservationMode,
        copy: bool,
        travels: bool = False,
    ) -> None:
        self._batch = batch
        try:
            orders = Orders.in_memory(len(batch.ids), num_workers=0)
            backend = LocalBackend(batch, batch.ids, orders)
            num_buffers = 1 if copy else 2
            spaces = self._agree(
                [batch.ids], [batch.describe()], mode, observation_mode, num_buffers
            )
            arrays = BatchArrays.in_memory(spaces, keeps_objects=not travels)
            backend.attach(arrays, mode, travels)
            self._ready([backend], arrays, orders, copy)
        except BaseException:
            batch.close()
            raise

    @property
    def envs(self) -> Sequence[Any]:
        """The envs themselves."""
        return self._batch.envs

    def _enlarge_rows(self, shape: RowShape) -> None:
        self._arrays.enlarge_rows_in_memory(shape)


def as_recipes(env_fns: Sequence[Any]) -> list[EnvRecipe]:
    """Return one recipe for each callable, id, EnvSpec or recipe.

    Raises:
        ConfigError: ``env_fns`` is empty or not a list.
    """
    if isinstance(env_fns, (str, EnvRecipe)) or not hasattr(env_fns, "__len__"):
        raise ConfigError(
            f"env_fns must be a list of callables that create an env, not {in_words(env_fns)}; "
            "rookery.make_vec takes an id, or one callable, and num_envs"
        )
    if not len(env_fns):
        raise ConfigError("env_fns is empty; a vector env needs at least one env")
    return [fn if isinstance(fn, EnvRecipe) else make_recipes(fn, 1, None, ())[0] for fn in env_fns]
