"""SB3's own PPO on CartPole from start to finish, over rookery's envs and over SB3's.

Settings are those of the RL Zoo of Stable-Baselines3. Only the vector env differs, so what is
gained is what stepping costs. Everybody runs with torch's own number of threads and with one.
"""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.cases import Case, Effort
from benchmarks.ppo import CARTPOLE, Trainer, measure_training, train_sb3

_KINDS = {"on rookery": "RookeryVecEnv", "Dummy": "DummyVecEnv", "Subproc": "SubprocVecEnv"}

TRAINERS: dict[str, Trainer] = {
    f"SB3, {name}{suffix}": functools.partial(train_sb3, kind=kind, num_threads=num_threads)
    for name, kind in _KINDS.items()
    for suffix, num_threads in (("", None), (", 1 thread", 1))
}

CASES = (
    Case(
        "sb3-ppo-cartpole",
        "SB3's PPO, CartPole-v1, 8 envs, 50 000 steps",
        "cartpole",
        8,
        tuple(TRAINERS),
        metric="seconds",
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Train once; the repetition is the seed."""
    return measure_training(CARTPOLE, TRAINERS[contender], case, effort, repetition)
