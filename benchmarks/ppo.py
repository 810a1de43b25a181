"""PPO on CartPole from start to finish, with the same settings everywhere, one run per seed.

Seconds run from before the environments start; imports and evaluation do not count. rookery's
include its checkpoint, its metrics and its picture, which SB3 does not make. A run counts as solved
if 20 deterministic episodes return at least 475 on average. SB3 runs with torch's own number of
threads and with one; it is compared at the faster of the two.
"""

from __future__ import annotations

import functools
import importlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cases import Case, Effort

TOTAL_STEPS = 50_000
QUICK_STEPS = 2_048
NUM_EVAL_EPISODES = 20
SOLVED_RETURN = 475.0

Trainer = Callable[[Case, int, int], "tuple[float, float]"]


def _rookery(case: Case, seed: int, total_steps: int) -> tuple[float, float]:
    import matplotlib.figure  # noqa: F401  imported before the clock starts
    import torch.utils.tensorboard  # noqa: F401

    import rookery

    config = rookery.PPOConfig(
        num_steps=32,
        minibatch_size=256,
        num_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=1e-3,
        final_learning_rate=0.0,
        clip_range=0.2,
        final_clip_range=0.0,
        entropy_coef=0.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        result = rookery.train(
            "CartPole-v1",
            algo=config,
            total_steps=total_steps,
            num_envs=case.num_envs,
            seed=seed,
            run_dir=f"{folder}/run",
            eval_episodes=0,
        )
        seconds = time.perf_counter() - start
        evaluation = rookery.evaluate(result.run_dir, episodes=NUM_EVAL_EPISODES)
    return seconds, evaluation.eval_return_mean


def train_sb3(
    case: Case, seed: int, total_steps: int, kind: str, num_threads: int | None = None
) -> tuple[float, float]:
    """Train SB3's PPO over a kind of vector env.

    Returns:
        Seconds, and the mean return of the evaluation.
    """
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    vec_env_cls = _vec_env_class(kind)
    start = time.perf_counter()
    venv = make_vec_env("CartPole-v1", case.num_envs, seed=seed, vec_env_cls=vec_env_cls)
    model = PPO(
        "MlpPolicy",
        venv,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=lambda remaining: 1e-3 * remaining,
        clip_range=lambda remaining: 0.2 * remaining,
        ent_coef=0.0,
        seed=seed,
        device="cpu",
    )
    model.learn(total_steps)
    seconds = time.perf_counter() - start
    venv.close()
    eval_env = make_vec_env("CartPole-v1", 1, seed=seed + 10_000)
    mean, _ = evaluate_policy(model, eval_env, NUM_EVAL_EPISODES, deterministic=True)
    eval_env.close()
    return seconds, float(mean)


def _vec_env_class(kind: str) -> Any:
    """One of SB3's classes, or rookery's that stands in for them."""
    is_ours = kind == "RookeryVecEnv"
    home = "rookery.integrations.sb3" if is_ours else "stable_baselines3.common.vec_env"
    return getattr(importlib.import_module(home), kind)


TRAINERS: dict[str, Trainer] = {
    "rookery": _rookery,
    "SB3, Dummy": functools.partial(train_sb3, kind="DummyVecEnv"),
    "SB3, Dummy, 1 thread": functools.partial(train_sb3, kind="DummyVecEnv", num_threads=1),
    "SB3, Subproc": functools.partial(train_sb3, kind="SubprocVecEnv"),
    "SB3, Subproc, 1 thread": functools.partial(train_sb3, kind="SubprocVecEnv", num_threads=1),
}

CASES = (
    Case(
        "ppo-cartpole",
        "PPO, CartPole-v1, 8 envs, 50 000 steps",
        "cartpole",
        8,
        tuple(TRAINERS),
        metric="seconds",
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Train once; the repetition is the seed."""
    return measure_training(TRAINERS[contender], case, effort, repetition)


def measure_training(train: Trainer, case: Case, effort: Effort, repetition: int) -> dict[str, Any]:
    """A sample of one training run; the repetition is the seed."""
    total_steps = QUICK_STEPS if effort.quick else TOTAL_STEPS
    seconds, eval_return = train(case, repetition, total_steps)
    return {
        "seconds": seconds,
        "eval_return": eval_return,
        "solved": float(eval_return >= SOLVED_RETURN),
        "seed": repetition,
    }
