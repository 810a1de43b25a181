"""Desk: where a worker's requests are answered, by its batch or by what was installed beside it.

A worker steps envs for a caller who decides every action. Whoever wants more done there (a policy
that acts in the worker, say) lends it memory and installs something: a factory travels by
reference, is called with the worker's premises, and returns further methods, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from rookery.env.arrays import BatchArrays
from rookery.env.batch import EnvBatch
from rookery.memory import SharedBlock
from rookery.worker.board import Board
from rookery.worker.doorbell import Doorbell
from rookery.worker.protocol import ADOPT_SLAB, INSTALL, LEND, SETTLE

Methods = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Premises:
    """What an installed factory finds in a worker.

    Attributes:
        batch: the envs.
        arrays: that the batch writes to and the caller watches.
        progress: int64 ``[3]``, see :meth:`rookery.env.batch.EnvBatch.attach`.
        memory: of the block that was lent.
    """

    batch: EnvBatch
    arrays: BatchArrays
    progress: Any
    memory: Any


class Desk:
    """Finds the method that a request names; methods that were installed go first."""

    def __init__(
        self, batch: EnvBatch, board: Board, progress: Any, pipe: Connection, go: Doorbell
    ) -> None:
        self._batch = batch
        self._arrays = board.arrays
        self._progress = progress
        self._pipe = pipe
        self._memory: Any = None
        self._methods: dict[str, Callable[..., Any]] = {
            ADOPT_SLAB: partial(board.receive_slab, pipe),
            SETTLE: go.forget_rings,
            LEND: self._receive,
            INSTALL: self._install,
        }

    def answer(self, method: str, args: tuple[Any, ...]) -> Any:
        """Do what a request asks."""
        function = self._methods.get(method)
        if function is None:
            function = getattr(self._batch, method)
        return function(*args)

    def _receive(self) -> None:
        self._memory = SharedBlock.receive(self._pipe)

    def _install(self, factory: Callable[..., Methods], *args: Any) -> None:
        premises = Premises(self._batch, self._arrays, self._progress, self._memory)
        self._methods.update(factory(premises, *args))
