"""Frozen snapshots of what a vector env did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CarrierStatistics:
    """One carrier's part.

    Attributes:
        pid: the process in which its envs are; the caller's own for threads and for what the
            caller steps itself.
        env_ids: its envs.
        busy_s: seconds spent stepping them.
        in_caller: whether the calling thread steps them itself.
        restarts: how often the worker was replaced.
    """

    pid: int
    env_ids: range
    busy_s: float
    in_caller: bool
    restarts: int = 0


@dataclass(frozen=True)
class Statistics:
    """A vector env's counters.

    Attributes:
        vector_steps: calls of ``step``.
        env_steps: steps of single envs, by ``step`` or by ``send``.
        carriers: per worker, and for the calling thread if it steps.
    """

    vector_steps: int
    env_steps: int
    carriers: tuple[CarrierStatistics, ...]
