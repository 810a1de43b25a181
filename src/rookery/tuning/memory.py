"""The memory limit of a run, the memory of processes, and the number of envs that fit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

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


def ceiling_of(
    available: int, cgroup: tuple[int, int] | None = None, wanted: int | None = None
) -> Ceiling:
    """Return the smallest of all memory limits.

    Args:
        available: bytes that are available in the machine.
        cgroup: limit of the container and used bytes; None without a container.
        wanted: limit given by the user, in bytes; None for no limit.
    """
    limits = [(int(SAFE * available), "memory that the machine has available")]
    if cgroup is not None:
        limit, used = cgroup
        limits.append((int(SAFE * max(limit - used, 0)), "what the container's limit leaves"))
    if wanted is not None:
        limits.append((wanted, "--memory"))
    return Ceiling(*min(limits))


def ceiling_here(wanted: int | None = None) -> Ceiling:
    """Return the memory limit for a run on this machine."""
    available = int(psutil.virtual_memory().available)
    return ceiling_of(available, cgroup_memory(Path("/sys/fs/cgroup")), wanted)


def cgroup_memory(root: Path) -> tuple[int, int] | None:
    """Return a container's memory limit and its used, non-reclaimable bytes; None without a limit.

    Args:
        root: folder of the cgroup files; version 2 is tried before version 1.
    """
    places = (
        (root / "memory.max", root / "memory.current", root / "memory.stat"),
        (
            root / "memory" / "memory.limit_in_bytes",
            root / "memory" / "memory.usage_in_bytes",
            root / "memory" / "memory.stat",
        ),
    )
    for limit, used, stat in places:
        try:
            most, now = limit.read_text().strip(), int(used.read_text())
        except (OSError, ValueError):
            continue
        if not most.isdigit() or int(most) >= 2**60:  # v1 has a huge number for no limit
            return None
        return int(most), max(now - _reclaimable(stat), 0)
    return None


def _reclaimable(stat: Path) -> int:
    """Return the bytes of cached files that the kernel can drop."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return 0
    pairs = (line.split() for line in lines)
    return next((int(pair[1]) for pair in pairs if pair[0] == "inactive_file"), 0)


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
