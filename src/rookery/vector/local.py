"""LocalShare: envs stepped by the calling process itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from rookery.env.batch import EnvBatch
from rookery.errors import RookeryError
from rookery.worker.protocol import ANSWER, DONE


class LocalShare:
    """An EnvBatch as a share; what is begun is done when it is finished.

    Args:
        batch: the envs.
        env_ids: their indices in the vector env.
    """

    def __init__(self, batch: EnvBatch, env_ids: range) -> None:
        self.env_ids = env_ids
        self.pid = os.getpid()
        self._batch = batch
        self._told: dict[int, Any] = {}  # by envs that have answered their mail
        self._begun: tuple[Callable[..., Any], tuple[Any, ...]] | None = None

    @property
    def busy_s(self) -> float:
        """Seconds spent stepping."""
        return self._batch.busy_s

    def begin_step(self, buffer: int) -> None:
        """Note a step of all envs."""
        self._begun = (self._batch.step, (buffer,))

    def request(self, method: str, *args: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A call of a method of the batch."""
        return getattr(self._batch, method), args

    def begin(self, request: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
        """Note what was requested."""
        self._begun = request

    def finish(self, deadline: float | None = None) -> Any:
        """Do what was noted; a deadline cannot interrupt it."""
        if self._begun is None:  # a Ctrl-C cut it short
            return ()
        method, args = self._begun
        self._begun = None
        return method(*args) or ()

    def notify(self) -> None:
        """Mail is answered when somebody waits for it."""

    def obey_next(self) -> bool:
        """Have the next env answer its mail; False if none has any."""
        unanswered = self._batch.unanswered()
        if not unanswered:
            return False
        env_id = unanswered[0]
        try:
            self._told[env_id] = self._batch.obey(env_id)
        except RookeryError as error:
            self._told[env_id] = error
        status = DONE if self._told[env_id] is None else ANSWER
        self._batch.mail.answer(env_id, status, time.perf_counter())
        return True

    def fetch(self, env_id: int) -> Any:
        """What an env that has answered its mail tells beside the arrays; raises its failure."""
        told = self._told.pop(env_id)
        if isinstance(told, RookeryError):
            raise told
        return told or ()

    def check(self) -> None:
        """The calling process is here."""

    def settle(self) -> None:
        """There is nothing to settle."""

    def stop(self, deadline: float) -> None:
        """Nothing is left to give back once the batch is closed."""
