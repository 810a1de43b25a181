"""RequestHandler: where a worker's requests are answered, by its batch or by what was installed.

A worker steps envs for a caller who decides every action. Whoever wants more done there (a policy
that acts in the worker, say) lends it memory and installs something: a factory travels by
reference, is called with the worker's parts, and returns further methods, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rookery.env.arrays import BatchArrays
from rookery.env.batches import Batch
from rookery.worker.protocol import INSTALL, PREPARE_RESET

Methods = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class WorkerParts:
    """What an installed factory finds in a worker.

    Attributes:
        batch: the envs.
        arrays: that the batch writes to and the caller watches.
        progress: int64 ``[3]``, see :meth:`rookery.env.batch.EnvBatch.attach`.
        memory: of the block that was lent.
    """

    batch: Batch
    arrays: BatchArrays
    progress: Any
    memory: Any


class RequestHandler:
    """Finds the method that a request names; methods that were installed go first.

    Args:
        batch: the envs.
        arrays: that the batch writes to.
        progress: see :class:`WorkerParts`.

    Attributes:
        prepared: by env id, seed and options of a reset that will be ordered.
        memory: of a block that was lent.
    """

    def __init__(self, batch: Batch, arrays: BatchArrays, progress: Any) -> None:
        self.prepared: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        self.memory: Any = None
        self._batch = batch
        self._arrays = arrays
        self._progress = progress
        self._methods: dict[str, Callable[..., Any]] = {
            PREPARE_RESET: self.prepared.update,
            INSTALL: self._install,
        }

    def add(self, methods: Methods) -> None:
        """Answer further requests."""
        self._methods.update(methods)

    def answer(self, method: str, args: tuple[Any, ...]) -> Any:
        """Do what a request asks."""
        function = self._methods.get(method)
        if function is None:
            function = getattr(self._batch, method)
        return function(*args)

    def _install(self, factory: Callable[..., Methods], *args: Any) -> None:
        parts = WorkerParts(self._batch, self._arrays, self._progress, self.memory)
        self.add(factory(parts, *args))
