"""The limit: as many processes as could help, each running a plain loop, talking to nobody.

One round of the loop counts one step per env. As in ``SyncVectorEnv``'s next-step mode, the round
after an episode's end is that env's reset. Actions are Python numbers, the cheapest there are.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from benchmarks.cases import CORES, Case, Effort
from benchmarks.environments import MAKERS, draw_actions


def measure_limit(case: Case, effort: Effort) -> dict[str, float]:
    """Sum the rates of plain loops in ``min(cores, workers, envs)`` processes."""
    num_processes = min(CORES, case.num_workers, case.num_envs)
    shares = [len(range(i, case.num_envs, num_processes)) for i in range(num_processes)]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(num_processes)
    receiver, sender = context.Pipe(duplex=False)
    workers = [
        context.Process(target=_run, args=(case.env, share, barrier, sender, effort))
        for share in shares
    ]
    for worker in workers:
        worker.start()
    rates = [receiver.recv() for _ in workers]
    for worker in workers:
        worker.join()
    return {"steps_per_second": sum(rates)}


def _run(
    env_name: str, num_envs: int, barrier: Barrier, sender: Connection, effort: Effort
) -> None:
    envs = [MAKERS[env_name]() for _ in range(num_envs)]
    actions = draw_actions(env_name, num_envs)
    batches: list[Any] = actions.tolist() if actions.dtype.kind == "i" else list(actions)
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    barrier.wait()
    _loop(envs, batches, effort.warmup_s)
    barrier.wait()
    rate = _loop(envs, batches, effort.measure_s)
    sender.send(rate)


def _loop(envs: list[Any], batches: list[Any], seconds: float) -> float:
    is_over = [False] * len(envs)
    indices = range(len(envs))
    start = time.perf_counter()
    deadline = start + seconds
    for rounds, batch in enumerate(itertools.cycle(batches), start=1):
        for i in indices:
            if is_over[i]:
                envs[i].reset()
                is_over[i] = False
            else:
                _, _, terminated, truncated, _ = envs[i].step(batch[i])
                is_over[i] = terminated or truncated
        now = time.perf_counter()
        if now >= deadline:
            return rounds * len(envs) / (now - start)
    raise AssertionError("the batches are endless")
