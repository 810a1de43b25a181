"""What a run could be told about its parallelism: all that is worth a try, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rookery.errors import ConfigError

ENVS_PER_CPU = 64  # the most that is tried by itself
MOST_WAITING_WORKERS = 32
_WHERE = {"serial": "this process", "process": "workers", "native": "native batch"}


@dataclass(frozen=True)
class Mode:
    """Where the envs run and the policy acts, whatever the number of envs.

    Attributes:
        collector: see `TrainSettings.collector`.
        backend: see `TrainSettings.backend`; never ``"auto"``.
        num_workers: worker processes; None where there are none.
        caller_steps: whether the calling process steps a share.
    """

    collector: str
    backend: str
    num_workers: int | None = None
    caller_steps: bool = False

    def __str__(self) -> str:
        if self.num_workers is None:
            where = _WHERE[self.backend]
        else:
            where = f"{self.num_workers} worker{'s' * (self.num_workers > 1)}"
            where += " and this process" * self.caller_steps
        return f"{self.collector}, {where}"


@dataclass(frozen=True)
class Candidate:
    """One way to run some envs."""

    num_envs: int
    mode: Mode

    def settings(self) -> dict[str, Any]:
        """As `TrainSettings` takes them."""
        mode = self.mode
        caller_steps = mode.caller_steps if mode.collector == "caller" else None
        if mode.backend in ("serial", "native"):
            caller_steps = None
        return {
            "num_envs": self.num_envs,
            "collector": mode.collector,
            "backend": mode.backend,
            "num_workers": mode.num_workers,
            "caller_steps": caller_steps,
        }

    def __str__(self) -> str:
        return f"{self.num_envs} envs: {self.mode}"


@dataclass(frozen=True)
class Possible:
    """What a run can do.

    Attributes:
        cpus: that may be used at once.
        collectors: whom the algorithm can learn from.
        waits: whether envs wait for most of a step, so that more workers than CPUs may pay.
        native: whether the envs have a batch of their own.
        in_process: whether envs may be stepped by the calling process: they may not where faults
            are to be survived, or each env is to have its process.
        isolated: whether each env has a worker of its own.
    """

    cpus: int
    collectors: tuple[str, ...]
    waits: bool = False
    native: bool = False
    in_process: bool = True
    isolated: bool = False


def env_counts(base: int, cpus: int, most: int | None = None) -> list[int]:
    """Numbers of envs to try: powers of two from the CPUs on, and ``base``.

    Args:
        base: what the run has without a search.
        cpus: that may be used at once.
        most: the highest number; None takes 64 for each CPU, or ``base`` if that is more.
    """
    top = max(ENVS_PER_CPU * cpus, base) if most is None else most
    powers = [2**k for k in range(top.bit_length()) if cpus <= 2**k <= top]
    return sorted({*powers, min(base, top), top if most is not None else min(base, top)})


def outwards(counts: Sequence[int], base: int) -> list[int]:
    """Numbers of envs in the order to try them: ``base``, then every other one, then the rest.

    So a search that ends early knows what the run would have been without it, and something of the
    whole range.
    """

    def place(count: int) -> tuple[int, int, int]:
        distance = round(abs(math.log2(count / base)))
        return distance % 2, distance, count

    return sorted(counts, key=place)


def candidates(
    counts: Sequence[int], possible: Possible, fixed: Mapping[str, Any]
) -> list[Candidate]:
    """Everything worth a try, in the order of ``counts``.

    Args:
        counts: numbers of envs.
        possible: what the run can do.
        fixed: settings that the user has said, by name; what contradicts them is left out.

    Raises:
        ConfigError: nothing is left.
    """
    found = [
        Candidate(count, mode)
        for count in counts
        for mode in dict.fromkeys(_modes(count, possible, fixed.get("num_workers")))
        if _fits(mode, fixed)
    ]
    if not found:
        told = ", ".join(f"{name} {value}" for name, value in fixed.items())
        raise ConfigError(f"nothing is left to try: no run goes with {told}; leave some of it open")
    return found


def _modes(count: int, possible: Possible, wanted: int | None) -> Iterator[Mode]:
    shared = _worker_counts(count, possible, wanted)
    if "caller" in possible.collectors:
        if possible.in_process and wanted is None:
            yield Mode("caller", "serial")
        yield from (Mode("caller", "process", workers) for workers in shared)
        if possible.in_process and count > 1:
            beside = [max(workers - (wanted is None), 1) for workers in shared]
            yield from (
                Mode("caller", "process", min(workers, count - 1), True) for workers in beside
            )
        if possible.native:
            yield Mode("caller", "native", wanted)
    for collector in ("workers", "async"):
        if collector in possible.collectors:
            yield from (Mode(collector, "process", workers) for workers in shared)
    if "double" in possible.collectors and count > 1 and not possible.isolated:
        halves = [wanted] if wanted else [2 * max(possible.cpus // 2, 1), 2 * possible.cpus]
        yield from (Mode("double", "process", workers) for workers in halves if workers <= count)
    if "served" in possible.collectors and count > 1:
        yield from (Mode("served", "process", workers) for workers in shared)


def _worker_counts(count: int, possible: Possible, wanted: int | None) -> list[int]:
    """How many workers to try: as many as can compute at once, and more where envs wait."""
    if possible.isolated:
        return [count]
    if wanted is not None:
        return [min(wanted, count)]
    cpus = possible.cpus
    numbers = {cpus} | ({cpus // 2} if cpus >= 4 else set())
    if possible.waits:
        most = min(count, MOST_WAITING_WORKERS)
        numbers |= {cpus * 2**k for k in range(1, 6) if cpus * 2**k < most} | {most}
    return sorted({min(number, count) for number in numbers})


def _fits(mode: Mode, fixed: Mapping[str, Any]) -> bool:
    """Whether a mode is what the user has said."""
    collector, backend = fixed.get("collector", "auto"), fixed.get("backend", "auto")
    if collector not in ("auto", mode.collector) or backend not in ("auto", mode.backend):
        return False
    wanted = fixed.get("caller_steps")
    return wanted is None or wanted == mode.caller_steps
