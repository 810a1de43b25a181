"""Where envs can live: every backend is held to the same model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NUM_ENVS = 3


@dataclass(frozen=True)
class Backend:
    """How to make a vector env, and what it can survive.

    Attributes:
        options: of ``rookery.make_vec``.
        has_processes: whether worker processes step (some of) the envs.
        steps_itself: whether the calling thread steps some.
    """

    options: dict[str, Any] = field(default_factory=dict)
    has_processes: bool = False
    steps_itself: bool = False

    @property
    def can_restart(self) -> bool:
        """Whether failed workers can be replaced."""
        return self.has_processes and not self.steps_itself


def _process(num_workers: int, **options: Any) -> Backend:
    return Backend(
        {"backend": "process", "num_workers": num_workers, **options},
        has_processes=True,
        steps_itself="caller_steps" in options,
    )


BACKENDS = {
    "serial": Backend({"backend": "serial"}, steps_itself=True),
    "thread-1": Backend({"backend": "thread", "num_workers": 1}),
    "thread-2": Backend({"backend": "thread", "num_workers": 2}),
    "process-1": _process(1),
    "process-2": _process(2),
    "caller-steps": _process(1, caller_steps=True),
}
