"""Rollouts with a policy in the loop: two hidden layers of 64, 128 steps of 16 CartPoles each.

Every contender computes values and log probabilities, fills its rollout storage and computes
advantages where its collector does so. Torch runs on one thread for everybody: with batches of 16,
more threads are slower.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.cases import Case, Effort
from benchmarks.contenders import open_sb3
from benchmarks.environments import MAKERS

NUM_STEPS = 128
HIDDEN_SIZES = (64, 64)

Collect = Callable[[], object]


@contextmanager
def _rookery(case: Case, **options: Any) -> Iterator[Collect]:
    import rookery
    from rookery.policy import make_policy

    # As in SB3, a reset is part of a step here, so that every counted step is experience.
    venv = rookery.make_vec(
        MAKERS[case.env], num_envs=case.num_envs, autoreset_mode="same_step", **options
    )
    try:
        policy = make_policy(
            venv.single_observation_space, venv.single_action_space, hidden_sizes=HIDDEN_SIZES
        )
        yield rookery.SyncCollector(venv, policy, NUM_STEPS).collect
    finally:
        venv.close()


@contextmanager
def _sb3(case: Case, kind: str, **options: Any) -> Iterator[Collect]:
    from stable_baselines3 import PPO

    venv = open_sb3(case, kind, **options)
    try:
        model = PPO(
            "MlpPolicy",
            venv,
            n_steps=NUM_STEPS,
            policy_kwargs={"net_arch": list(HIDDEN_SIZES)},
            device="cpu",
        )
        _, callback = model._setup_learn(total_timesteps=1)
        yield lambda: model.collect_rollouts(
            model.env, callback, model.rollout_buffer, n_rollout_steps=NUM_STEPS
        )
    finally:
        venv.close()


COLLECTORS: dict[str, Callable[[Case], AbstractContextManager[Collect]]] = {
    "rookery workers": functools.partial(_rookery, backend="process", caller_steps=False),
    "rookery caller_steps": functools.partial(_rookery, backend="process", caller_steps=True),
    "rookery auto": functools.partial(_rookery, backend="auto"),
    "SB3 PPO, Dummy": functools.partial(_sb3, kind="DummyVecEnv"),
    "SB3 PPO, Subproc": functools.partial(_sb3, kind="SubprocVecEnv", start_method="fork"),
}

CASES = (
    Case(
        "rollouts-16",
        "rollouts with a 2x64 policy, CartPole-v1, 16 envs",
        "cartpole",
        16,
        tuple(COLLECTORS),
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Collect rollouts for a while and count env steps."""
    import torch

    torch.set_num_threads(1)
    with COLLECTORS[contender](case) as collect:
        _rollouts_per_second(collect, effort.warmup_s)
        rate = _rollouts_per_second(collect, effort.measure_s)
    return {"steps_per_second": rate * NUM_STEPS * case.num_envs}


def _rollouts_per_second(collect: Collect, seconds: float) -> float:
    rollouts = 0
    start = now = time.perf_counter()
    while now < start + seconds:
        collect()
        rollouts += 1
        now = time.perf_counter()
    return rollouts / (now - start)
