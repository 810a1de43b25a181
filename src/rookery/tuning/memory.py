"""The memory limit of a run, the memory of processes, and the number of envs that fit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from rookery.common.resources import MemoryRoom
from rookery.errors import ConfigError

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SAFE = 0.9  # share of the available memory; the rest is left for the system


@dataclass(frozen=True)
class Ceiling:
    """The largest amount of memory for a run.

    Attributes:
        size_bytes: the limit in bytes.
        reason: source of the limit, as text.
    """

    size_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{in_units(self.size_bytes)} ({self.reason})"


@dataclass(frozen=True)
class MemoryModel:
    """A model of the memory that a run needs.

    Attributes:
        caller_bytes: memory of the calling process, with the policy and without envs.
        worker_bytes: memory of a worker without envs.
        env_bytes: memory of one env.
        row_bytes: size of one observation.
        num_steps: length of a rollout. A run holds about three rollouts at once: that of the
            collector, the previous one, and the learner's batch.
        replay_bytes: size of a full replay.
    """

    caller_bytes: int
    worker_bytes: int
    env_bytes: int
    row_bytes: int = 0
    num_steps: int = 0
    replay_bytes: int = 0

    @property
    def each_bytes(self) -> int:
        """Memory of one more env, including its part of the rollouts."""
        return max(self.env_bytes + 3 * self.num_steps * self.row_bytes, 1)

    def needed(self, num_envs: int, num_workers: int) -> int:
        """Return the bytes of a run with a number of envs and workers."""
        fixed = self.caller_bytes + self.replay_bytes + num_workers * self.worker_bytes
        return fixed + num_envs * self.each_bytes

    def carries(self, ceiling: Ceiling, num_workers: int) -> int:
        """Return the number of envs that fit under a ceiling, at least 0."""
        left = ceiling.size_bytes - self.needed(0, num_workers)
        return max(left // self.each_bytes, 0)


def model_of(
    one_bytes: int, some_bytes: int, some: int, caller_bytes: int, **rest: int
) -> MemoryModel:
    """Return the model that fits the memory of two workers.

    Args:
        one_bytes: memory of a worker with one env.
        some_bytes: memory of a worker with ``some`` envs.
        some: number of envs of the second worker, at least 2.
        caller_bytes: memory of the calling process without envs.
        **rest: further fields of `MemoryModel`.
    """
    env_bytes = max((some_bytes - one_bytes) // (some - 1), 0)
    return MemoryModel(caller_bytes, max(one_bytes - env_bytes, 0), env_bytes, **rest)


def ceiling_of(room: MemoryRoom, wanted: int | None = None) -> Ceiling:
    """Return the smaller of the available memory and the limit of the user, in bytes."""
    limits = [(int(SAFE * room.left_bytes), f"memory that {room.owner} has available")]
    if wanted is not None:
        limits.append((wanted, "--memory"))
    return Ceiling(*min(limits))


def parse_memory(text: str) -> int:
    """Return the bytes of ``"6G"``, ``"512MB"``, ``"1.5 GiB"`` or a plain number.

    Units are powers of 1024.

    Raises:
        ConfigError: the text is not a size above 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    size = 0 if match is None else int(float(match[1]) * _UNITS[match[2].upper()])
    if size <= 0:
        raise ConfigError(f"--memory is {text!r}; it must be a size such as 6G or 800M")
    return size


def in_units(size_bytes: float) -> str:
    """Return a size as text with a unit."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes / 2**10:.3g} kB"


def memory_of(processes: Iterable[psutil.Process]) -> int:
    """Return the total memory of processes; on Linux, shared pages count once."""
    return sum(map(_memory_of, processes))


def _memory_of(process: psutil.Process) -> int:
    if sys.platform == "linux":
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:  # the process has exited, or access is denied
            rollup = ""
        match = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        if match is not None:
            return int(match[1]) * 1024
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
