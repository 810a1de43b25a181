"""PPO from start to finish, with the same settings everywhere, one run per seed.

Seconds run from before the environments start; imports and evaluation do not count. rookery's
include its checkpoint, its metrics and its picture, which SB3 does not make. The evaluation plays
20 deterministic episodes; CartPole counts as solved if they return at least 475 on average. SB3
runs with torch's own number of threads and with one; it is compared at the faster of the two. On
HalfCheetah it has one: its first 40 960 steps took 25 s, twice, and with two threads 39 and 31.
"""

from __future__ import annotations

import functools
import importlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import Case, Effort

QUICK_STEPS = 2_048
NUM_EVAL_EPISODES = 20
SOLVED_RETURN = 475.0


@dataclass(frozen=True)
class Work:
    """What is trained, with settings under both libraries' names.

    Attributes:
        env_id: Gymnasium's name of the environment.
        total_steps: Env steps, all envs together.
        rookery: Settings of ``rookery.PPOConfig``.
        sb3: Settings of SB3's ``PPO``.
        normalizes: Whether observations and rewards are normalised by running statistics.
        solved_return: Mean return from which a run counts as solved, if anybody counts.
    """

    env_id: str
    total_steps: int
    rookery: dict[str, Any]
    sb3: dict[str, Any]
    normalizes: bool = False
    solved_return: float | None = None


# Those of the RL Zoo of Stable-Baselines3, but for half as many steps.
CARTPOLE = Work(
    "CartPole-v1",
    50_000,
    {
        "num_steps": 32,
        "minibatch_size": 256,
        "num_epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "learning_rate": 1e-3,
        "final_learning_rate": 0.0,
        "clip_range": 0.2,
        "final_clip_range": 0.0,
        "entropy_coef": 0.0,
    },
    {
        "n_steps": 32,
        "batch_size": 256,
        "n_epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "learning_rate": lambda remaining: 1e-3 * remaining,
        "clip_range": lambda remaining: 0.2 * remaining,
        "ent_coef": 0.0,
    },
    solved_return=SOLVED_RETURN,
)

HALFCHEETAH = Work(
    "HalfCheetah-v5",
    1_000_000,
    {
        "num_steps": 256,
        "minibatch_size": 512,
        "num_epochs": 10,
        "learning_rate": 3e-4,
        "final_learning_rate": None,
        "hidden_sizes": (64, 64),
        "normalize_obs": True,
        "normalize_reward": True,
    },
    {"n_steps": 256, "batch_size": 512, "n_epochs": 10, "learning_rate": 3e-4},
    normalizes=True,
)

WORKS = {"ppo-cartpole": CARTPOLE, "ppo-halfcheetah": HALFCHEETAH}

Trainer = Callable[[Work, Case, int, int], "tuple[float, float]"]


def _rookery(
    work: Work, case: Case, seed: int, total_steps: int, collector: Any = "auto"
) -> tuple[float, float]:
    import matplotlib.figure  # noqa: F401  imported before the clock starts
    import torch.utils.tensorboard  # noqa: F401

    import rookery

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        result = rookery.train(
            work.env_id,
            algo=rookery.PPOConfig(**work.rookery),
            total_steps=total_steps,
            num_envs=case.num_envs,
            seed=seed,
            run_dir=f"{folder}/run",
            collector=collector,
            eval_episodes=0,
        )
        seconds = time.perf_counter() - start
        evaluation = rookery.evaluate(
            result.run_dir, episodes=NUM_EVAL_EPISODES, seed=seed + 10_000
        )
    return seconds, evaluation.eval_return_mean


def train_sb3(
    work: Work, case: Case, seed: int, total_steps: int, kind: str, num_threads: int | None = None
) -> tuple[float, float]:
    """Train SB3's PPO over a kind of vector env.

    Returns:
        Seconds, and the mean return of the evaluation.
    """
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    vec_env_cls = _vec_env_class(kind)
    start = time.perf_counter()
    venv = make_vec_env(work.env_id, case.num_envs, seed=seed, vec_env_cls=vec_env_cls)
    if work.normalizes:
        venv = VecNormalize(venv)
    model = PPO("MlpPolicy", venv, **work.sb3, seed=seed, device="cpu")
    model.learn(total_steps)
    seconds = time.perf_counter() - start
    eval_env = make_vec_env(work.env_id, 1, seed=seed + 10_000)
    if work.normalizes:
        eval_env = VecNormalize(eval_env, training=False, norm_reward=False)
        eval_env.obs_rms = venv.obs_rms
    venv.close()
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
    "rookery, collector workers": functools.partial(_rookery, collector="workers"),
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
    Case(
        "ppo-halfcheetah",
        "PPO, HalfCheetah-v5, 8 envs, 1 000 000 steps",
        "halfcheetah",
        8,
        ("rookery", "rookery, collector workers", "SB3, Subproc, 1 thread"),
        metric="seconds",
        repetitions=3,
        timeout_s=3600.0,
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Train once; the repetition is the seed."""
    return measure_training(WORKS[case.name], TRAINERS[contender], case, effort, repetition)


def measure_training(
    work: Work, train: Trainer, case: Case, effort: Effort, repetition: int
) -> dict[str, Any]:
    """A sample of one training run; the repetition is the seed."""
    total_steps = QUICK_STEPS if effort.quick else work.total_steps
    seconds, eval_return = train(work, case, repetition, total_steps)
    sample = {"seconds": seconds, "eval_return": eval_return, "seed": repetition}
    if work.solved_return is not None:
        sample["solved"] = float(eval_return >= work.solved_return)
    return sample
