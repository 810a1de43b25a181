"""The parallel settings that a search tries, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rookery.errors import ConfigError

ENVS_PER_CPU = 64  # largest number of envs that is tried by default
MOST_WAITING_WORKERS = 32
_WHERE = {"serial": "this process", "process": "workers", "native": "native batch"}


@dataclass(frozen=True)
class Mode:
    """Location of envs and policy, independent of the number of envs.

    Attributes:
        collector: see `TrainSettings.collector`.
        backend: see `TrainSettings.backend`; never ``"auto"``.
        num_workers: number of worker processes; None without workers.
        caller_steps: True if the calling process steps a share of the envs.
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
    """A number of envs and a mode to run them."""

    num_envs: int
    mode: Mode

    def settings(self) -> dict[str, Any]:
        """Return the fields of `TrainSettings` for this candidate."""
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
    """The options that a run supports.

    Attributes:
        cpus: number of usable CPUs.
        collectors: collectors that the algorithm supports.
        waits: True if envs wait during most of a step, so that more workers than CPUs may help.
        native: True if the envs have a native batch.
        in_process: True if the calling process may step envs. It may not if the run must survive
            faults, or if each env needs a separate process.
        isolated: True if each env has a separate worker.
    """

    cpus: int
    collectors: tuple[str, ...]
    waits: bool = False
    native: bool = False
    in_process: bool = True
    isolated: bool = False


def env_counts(base: int, cpus: int, most: int | None = None) -> list[int]:
    """Return the numbers of envs to try: powers of two from the number of CPUs, and ``base``.

    Args:
        base: number of envs of the run without a search.
        cpus: number of usable CPUs.
        most: largest number; None takes 64 for each CPU, or ``base`` if that is more.
    """
    top = max(ENVS_PER_CPU * cpus, base) if most is None else most
    powers = [2**k for k in range(top.bit_length()) if cpus <= 2**k <= top]
    return sorted({*powers, min(base, top), top if most is not None else min(base, top)})


def outwards(counts: Sequence[int], base: int) -> list[int]:
    """Return numbers of envs in the order of trials: ``base``, then every other one, then the rest.

    A search that ends early thus knows the default, and covers the whole range coarsely.
    """

    def place(count: int) -> tuple[int, int, int]:
        distance = round(abs(math.log2(count / base)))
        return distance % 2, distance, count

    return sorted(counts, key=place)


def candidates(
    counts: Sequence[int], possible: Possible, fixed: Mapping[str, Any]
) -> list[Candidate]:
    """Return all candidates, in the order of ``counts``.

    Args:
        counts: numbers of envs.
        possible: options that the run supports.
        fixed: settings given by the user, by name; candidates that contradict them are left out.

    Raises:
        ConfigError: no candidate is left.
    """
    found = [
        Candidate(count, mode)
        for count in counts
        for mode in dict.fromkeys(_modes(count, possible, fixed.get("num_workers")))
        if _fits(mode, fixed)
    ]
    if not found:
        settings = ", ".join(f"{name} {value}" for name, value in fixed.items())
        raise ConfigError(
            f"no candidate is left: no run is possible with {settings}; leave out some of these"
        )
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
    """Return the numbers of workers to try; more than CPUs only if envs wait."""
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
    """Return whether a mode agrees with the settings of the user."""
    collector, backend = fixed.get("collector", "auto"), fixed.get("backend", "auto")
    if collector not in ("auto", mode.collector) or backend not in ("auto", mode.backend):
        return False
    wanted = fixed.get("caller_steps")
    return wanted is None or wanted == mode.caller_steps
