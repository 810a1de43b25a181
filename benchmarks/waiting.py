"""Environments that wait: 5 ms of sleep in every step, and the processor time waiting costs."""

from __future__ import annotations

import time
from typing import Any

import psutil

from benchmarks.cases import Case, Effort
from benchmarks.contenders import STEPPERS
from benchmarks.environments import draw_actions
from benchmarks.stepping import rate_of

_WINDOW = 3  # times the usual duration: processor time is read in ticks of 10 ms

CASES = (
    Case(
        "sleep-8",
        "env that sleeps 5 ms, 8 envs on 8 workers",
        "sleep",
        8,
        (
            "rookery workers",
            "rookery serial",
            "gymnasium Sync",
            "gymnasium Async",
            "SB3 Subproc",
        ),
        num_workers=8,
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Measure speed, and the share of one core that caller and children use together."""
    actions = draw_actions(case.env, case.num_envs)
    with STEPPERS[contender](case) as stepper:
        batches = [stepper.encode(batch) for batch in actions]
        rate_of(stepper.step, batches, effort.warmup_s)
        wall_s, cpu_s = time.perf_counter(), _cpu_seconds()
        calls_per_second = rate_of(stepper.step, batches, _WINDOW * effort.measure_s)
        wall_s, cpu_s = time.perf_counter() - wall_s, _cpu_seconds() - cpu_s
    return {"steps_per_second": calls_per_second * case.num_envs, "cores_used": cpu_s / wall_s}


def _cpu_seconds() -> float:
    """Processor time so far of this process and its living descendants."""
    caller = psutil.Process()
    times = [process.cpu_times() for process in (caller, *caller.children(recursive=True))]
    return sum(t.user + t.system for t in times)
