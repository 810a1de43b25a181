"""What one measurement is: an amount of work, and who does it."""

from __future__ import annotations

import os
from dataclasses import dataclass

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Case:
    """One row of comparisons.

    Attributes:
        name: Key in the results.
        title: What the picture says.
        env: Key of `environments.MAKERS`.
        num_envs: Environments stepped.
        contenders: Who is measured, in this order, again and again.
        metric: The sample's field that is compared.
        num_workers: Processes that a contender with a choice uses.
        busy_processes: Endless loops that run beside the measurement.
        repetitions: Times each contender is measured.
        quick_num_envs: Stands in for ``num_envs`` under ``--quick``.
        num_steps: Steps of every env per rollout, where rollouts are measured.
        timeout_s: A contender that takes longer is given up.
    """

    name: str
    title: str
    env: str
    num_envs: int
    contenders: tuple[str, ...]
    metric: str = "steps_per_second"
    num_workers: int = CORES
    busy_processes: int = 0
    repetitions: int = 5
    quick_num_envs: int | None = None
    num_steps: int = 128
    timeout_s: float = 600.0


@dataclass(frozen=True)
class Effort:
    """How long one measurement may take."""

    warmup_s: float = 0.4
    measure_s: float = 1.5
    quick: bool = False


FULL = Effort()
QUICK = Effort(warmup_s=0.1, measure_s=0.2, quick=True)
