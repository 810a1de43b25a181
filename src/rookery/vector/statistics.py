"""Frozen snapshots of what a vector env did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShareStatistics:
    """One process's part.

    Attributes:
        pid: its process id; the caller's own for a share that is stepped there.
        env_ids: its envs.
        busy_s: seconds spent stepping them.
    """

    pid: int
    env_ids: range
    busy_s: float


@dataclass(frozen=True)
class Statistics:
    """A vector env's counters.

    Attributes:
        vector_steps: calls of ``step``.
        env_steps: steps of single envs.
        shares: per process, the calling one included if it steps.
    """

    vector_steps: int
    env_steps: int
    shares: tuple[ShareStatistics, ...]
