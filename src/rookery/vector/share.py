"""Share: the seam between a vector env and what steps its envs."""

from __future__ import annotations

from typing import Any, Protocol


class Share(Protocol):
    """Some consecutive envs of a vector env, wherever they live."""

    @property
    def env_ids(self) -> range:
        """The indices of its envs."""

    @property
    def pid(self) -> int:
        """The process that steps them."""

    @property
    def busy_s(self) -> float:
        """Seconds spent stepping."""

    def begin_step(self, buffer: int) -> None:
        """Begin to step all envs with the actions noted."""

    def request(self, method: str, *args: Any) -> Any:
        """Prepare a call of a method of the share's EnvBatch; nothing happens yet."""

    def begin(self, request: Any) -> None:
        """Begin what was prepared."""

    def finish(self, deadline: float | None = None) -> Any:
        """Wait for what was begun and return its result."""

    def notify(self) -> None:
        """Have its envs look for mail, see :mod:`rookery.env.mail`."""

    def obey_next(self) -> bool:
        """Have the next env answer its mail, if that is for the calling process to do."""

    def fetch(self, env_id: int) -> Any:
        """What an env that has answered its mail tells beside the arrays; raises its failure."""

    def check(self) -> None:
        """Raise what keeps its envs from ever answering their mail, if anything does."""

    def settle(self) -> None:
        """Be ready for other calls than mail, once no env has any."""

    def stop(self, deadline: float) -> None:
        """Give back everything; the envs are closed already, or cannot be."""
