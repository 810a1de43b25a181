"""Step throughput with random actions drawn beforehand, against the limit of plain loops.

One call of ``step`` counts one step per env, for everybody. rookery and Gymnasium run in next-step
mode, where the step after an episode's end is its reset; SB3 and TorchRL reset within the step.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.cases import CORES, Case, Effort
from benchmarks.contenders import STEPPERS
from benchmarks.environments import draw_actions
from benchmarks.limit import measure_limit

_EVERYBODY = (
    "limit",
    "rookery workers",
    "rookery caller_steps",
    "gymnasium Sync",
    "gymnasium Async",
    "SB3 Dummy",
    "SB3 Subproc",
)
_AUTO = ("rookery auto", "gymnasium Sync")
_OURS = ("rookery auto", "rookery workers", "rookery caller_steps")
_WORKING = ("limit", *_OURS, "gymnasium Sync", "gymnasium Async")
_WITHOUT_ARRAYS = (*_OURS, "gymnasium Sync", "gymnasium Async, pickled")

CASES = (
    Case("cartpole-8", "CartPole-v1, 8 envs", "cartpole", 8, (*_EVERYBODY, "TorchRL Parallel")),
    Case("cartpole-64", "CartPole-v1, 64 envs", "cartpole", 64, _EVERYBODY),
    Case(
        "cartpole-8-busy",
        "CartPole-v1, 8 envs, every core busy with something else",
        "cartpole",
        8,
        ("limit", "rookery workers", "rookery caller_steps", "gymnasium Sync", "gymnasium Async"),
        busy_processes=CORES,
    ),
    Case(
        "image-16",
        "84x84x4 uint8 image, no compute, 16 envs",
        "image",
        16,
        (
            "rookery workers",
            "rookery views",
            "rookery caller_steps",
            "gymnasium Sync",
            "gymnasium Async",
            "SB3 Dummy",
            "SB3 Subproc",
        ),
    ),
    Case("halfcheetah-16", "HalfCheetah-v5 with its infos, 16 envs", "halfcheetah", 16, _WORKING),
    Case("pong-16", "ALE/Pong-v5, preprocessed, 4 frames stacked, 16 envs", "pong", 16, _WORKING),
    Case("sequence-8", "Sequence observations, no compute, 8 envs", "sequence", 8, _WITHOUT_ARRAYS),
    Case("graph-8", "Graph observations, no compute, 8 envs", "graph", 8, _WITHOUT_ARRAYS),
    Case("auto-cartpole-1", "auto: CartPole-v1, 1 env", "cartpole", 1, _AUTO, repetitions=9),
    Case("auto-cartpole-8", "auto: CartPole-v1, 8 envs", "cartpole", 8, _AUTO, repetitions=9),
    Case("auto-image-4", "auto: 84x84x4 image, 4 envs", "image", 4, _AUTO, repetitions=9),
    Case(
        "auto-halfcheetah-8", "auto: HalfCheetah-v5, 8 envs", "halfcheetah", 8, _AUTO, repetitions=9
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Measure one contender once; meant for a process of its own."""
    with busy_processes(case.busy_processes):
        if contender == "limit":
            return dict(measure_limit(case, effort))
        actions = draw_actions(case.env, case.num_envs)
        with STEPPERS[contender](case) as stepper:
            batches = [stepper.encode(batch) for batch in actions]
            rate_of(stepper.step, batches, effort.warmup_s)
            calls_per_second = rate_of(stepper.step, batches, effort.measure_s)
        sample = {"steps_per_second": calls_per_second * case.num_envs}
        return sample | ({"note": stepper.note} if stepper.note else {})


def rate_of(step: Callable[[Any], object], batches: Sequence[Any], seconds: float) -> float:
    """Calls per second of ``step``, over at least ``seconds``."""
    calls = 0
    start = time.perf_counter()
    deadline = start + seconds
    for batch in itertools.cycle(batches):
        step(batch)
        calls += 1
        now = time.perf_counter()
        if now >= deadline:
            break
    return calls / (now - start)


def steps_per_second(work: Callable[[], int], seconds: float) -> float:
    """Env steps per second of ``work``, which returns how many it has made."""
    steps = 0
    start = now = time.perf_counter()
    while now < start + seconds:
        steps += work()
        now = time.perf_counter()
    return steps / (now - start)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep ``count`` processes busy with nothing."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
