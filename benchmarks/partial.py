"""Envs whose steps take unevenly long: sending on whoever is ready, against lock step.

A step waits 2 ms on average, exponentially distributed, and uses no processor; every env has a
process of its own. In lock step a step of all 32 takes as long as the slowest of them, on average
2 ms * (1 + 1/2 + ... + 1/32) = 8.1 ms. The ideal is that no env ever waits for another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Effort
from benchmarks.contenders import STEPPERS
from benchmarks.environments import MAKERS, draw_actions
from benchmarks.stepping import rate_of, steps_per_second

MIN_ENVS = 8
STEP_S = 2.06e-3  # of which 0.06 ms is what sleeping takes longer than asked

_RECV = "rookery recv"

CASES = (
    Case(
        "uneven-32",
        "env that waits 2 ms, exponentially distributed, 32 envs on 32 workers",
        "uneven sleep",
        32,
        (_RECV, "rookery workers", "gymnasium Async", "SB3 Subproc"),
        num_workers=32,
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Measure speed, and how near it comes to envs that never wait for each other."""
    rate = _by_recv(case, effort) if contender == _RECV else _in_lock_step(case, contender, effort)
    return {"steps_per_second": rate, "share_of_ideal": rate * STEP_S / case.num_envs}


def _in_lock_step(case: Case, contender: str, effort: Effort) -> float:
    actions = draw_actions(case.env, case.num_envs)
    with STEPPERS[contender](case) as stepper:
        batches = [stepper.encode(batch) for batch in actions]
        rate_of(stepper.step, batches, effort.warmup_s)
        return rate_of(stepper.step, batches, effort.measure_s) * case.num_envs


def _by_recv(case: Case, effort: Effort) -> float:
    import rookery

    venv = rookery.make_vec(
        MAKERS[case.env], case.num_envs, backend="process", num_workers=case.num_workers
    )
    with venv:
        venv.async_reset(seed=0)
        exchange = _exchanger(venv, case)
        steps_per_second(exchange, effort.warmup_s)
        return steps_per_second(exchange, effort.measure_s)


def _exchanger(venv: Any, case: Case) -> Callable[[], int]:
    """Receives from those that are ready and sends them on; returns how many they were."""
    batches = itertools.cycle(draw_actions(case.env, case.num_envs))

    def exchange() -> int:
        *_, env_ids = venv.recv(min_envs=MIN_ENVS)
        venv.send(np.asarray(next(batches)[env_ids]), env_ids)
        return len(env_ids)

    return exchange
