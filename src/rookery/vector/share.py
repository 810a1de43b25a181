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

    def stop(self, deadline: float) -> None:
        """Give back everything; the envs are closed already, or cannot be."""
