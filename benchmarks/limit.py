"""The limit: a plain loop in each of several processes, without any communication.

One round of the loop counts one step per env. As in ``SyncVectorEnv``'s next-step mode, the round
after an episode's end is that env's reset. Actions are Python numbers, which are cheapest. With
one process, this is the usual for-loop.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from benchmarks.cases import CORES, Case
from benchmarks.clocks import Effort, Sample, steps_per_second
from benchmarks.environments import MAKERS, draw_actions


def measure_limit(case: Case, effort: Effort, most_processes: int) -> Sample:
    """Return the summed rate of plain loops in ``most_processes``, or one per env if fewer.

    Waiting envs use no core, so there may be more processes than cores.
    """
    num_processes = min(most_processes, case.num_envs)
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
    return {"value": sum(rates)}


def processes_of(case: Case) -> int:
    """Return the useful number of processes: one per core, or per worker if envs wait."""
    return case.num_workers if "sleep" in case.env else min(CORES, case.num_workers)


def _run(
    env_name: str, num_envs: int, barrier: Barrier, sender: Connection, effort: Effort
) -> None:
    play = _loop_over([MAKERS[env_name]() for _ in range(num_envs)], env_name)
    barrier.wait()
    steps_per_second(play, effort.warmup_s)
    barrier.wait()
    sender.send(steps_per_second(play, effort.measure_s))


def _loop_over(envs: list[Any], env_name: str) -> Callable[[], int]:
    actions = draw_actions(env_name, len(envs))
    batches = itertools.cycle(actions.tolist() if actions.dtype.kind == "i" else list(actions))
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    is_over = [False] * len(envs)
    indices = range(len(envs))

    def play() -> int:
        batch = next(batches)
        for i in indices:
            if is_over[i]:
                envs[i].reset()
                is_over[i] = False
            else:
                _, _, terminated, truncated, _ = envs[i].step(batch[i])
                is_over[i] = terminated or truncated
        return len(indices)

    return play
