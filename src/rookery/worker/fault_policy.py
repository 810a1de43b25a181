"""FaultPolicy: what happens when an env raises, hangs, or takes its process with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rookery.common.arguments import check_choice, check_positive, whole_number
from rookery.errors import ConfigError


@dataclass(frozen=True)
class FaultPolicy:
    """What to do about faults. The default raises an error and sets no deadline.

    Attributes:
        on_fault: ``"raise"`` ends the call with an error; ``"restart"`` replaces the worker, closes
            the running transitions of its envs as truncated, and goes on.
        max_restarts: of one worker within ``window_s``; one more fault raises.
        window_s: seconds over which restarts are counted.
        step_timeout_s: the longest that one env's step may take; None means for ever.
        reset_timeout_s: the longest that one env's reset may take; None means for ever.
        max_worker_rss_mb: a worker whose resident memory exceeds this is replaced when the next
            episode of one of its envs ends; None means never. Needs ``on_fault="restart"``.
        make_timeout_s: the longest that a worker may take to start and build its envs; None means
            for ever.
    """

    on_fault: Literal["raise", "restart"] = "raise"
    max_restarts: int = 3
    window_s: float = 60.0
    step_timeout_s: float | None = None
    reset_timeout_s: float | None = None
    max_worker_rss_mb: float | None = None
    make_timeout_s: float | None = None

    def __post_init__(self) -> None:
        check_choice("on_fault", self.on_fault, ("raise", "restart"))
        whole_number("max_restarts", self.max_restarts, 0)
        check_positive("window_s", self.window_s)
        for name in ("step_timeout_s", "reset_timeout_s", "make_timeout_s", "max_worker_rss_mb"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        if self.max_worker_rss_mb is not None and self.on_fault != "restart":
            raise ConfigError("max_worker_rss_mb replaces workers, which needs on_fault='restart'")

    @property
    def restarts(self) -> bool:
        """Whether faults are survived."""
        return self.on_fault == "restart"

    @property
    def has_deadline(self) -> bool:
        """Whether anything has a deadline."""
        limits = (self.step_timeout_s, self.reset_timeout_s, self.make_timeout_s)
        return any(limit is not None for limit in limits)


@dataclass(frozen=True)
class RestartCause:
    """Why a worker was replaced.

    Attributes:
        fault: the name of the error, ``"EnvFailed"`` for instance, or ``"max_worker_rss_mb"``.
        env_ids: envs that the error names; all of the worker's where it names none.
    """

    fault: str
    env_ids: tuple[int, ...]

    def __str__(self) -> str:
        word = "env" if len(self.env_ids) == 1 else "envs"
        return f"{self.fault} ({word} {', '.join(map(str, self.env_ids))})"
