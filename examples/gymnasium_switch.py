"""The same loop over Gymnasium's vector envs and over rookery's: same seeds, equal numbers.

    python examples/gymnasium_switch.py --env-id CartPole-v1 --num-envs 8 --num-steps 500

`play` works with the vector env of either library. Note that Gymnasium's AsyncVectorEnv needs the
guard at the bottom wherever processes are not forked; rookery's workers never import this file.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

import rookery


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        num_episodes: episodes that ended.
        mean_return: mean of their returns.
        digest: fingerprint of every observation, reward and flag.
        steps_per_second: env steps.
    """

    num_episodes: int
    mean_return: float
    digest: str
    steps_per_second: float


def play(venv: gym.vector.VectorEnv[Any, Any, Any], num_steps: int, seed: int) -> Outcome:
    """Step with random actions, which the seed decides, and close the vector env."""
    digest = hashlib.sha256()
    returns: list[float] = []
    running = np.zeros(venv.num_envs)
    venv.action_space.seed(seed)
    obs, _ = venv.reset(seed=seed)  # env i is reset with seed + i
    digest.update(obs.tobytes())
    start = time.perf_counter()
    for _ in range(num_steps):
        obs, reward, terminated, truncated, _ = venv.step(venv.action_space.sample())
        for array in (obs, reward, terminated, truncated):
            digest.update(array.tobytes())
        running += reward
        for i in np.flatnonzero(terminated | truncated):
            returns.append(running[i])
            running[i] = 0.0
    seconds = time.perf_counter() - start
    venv.close()
    mean_return = float(np.mean(returns)) if returns else float("nan")
    rate = num_steps * venv.num_envs / seconds
    return Outcome(len(returns), mean_return, digest.hexdigest()[:16], rate)


def main() -> None:
    """Play over four vector envs and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env-id", default="CartPole-v1", help="an env with array observations")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=500, help="steps of each env")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    env_id, num_envs = args.env_id, args.num_envs
    makers: dict[str, Callable[[], gym.vector.VectorEnv[Any, Any, Any]]] = {
        "gym.make_vec, sync": lambda: gym.make_vec(env_id, num_envs, vectorization_mode="sync"),
        "gym.make_vec, async": lambda: gym.make_vec(env_id, num_envs, vectorization_mode="async"),
        "rookery.make_vec": lambda: rookery.make_vec(env_id, num_envs),
        "rookery.make_vec, process": lambda: rookery.make_vec(env_id, num_envs, backend="process"),
    }
    digests = set()
    for name, make in makers.items():
        outcome = play(make(), args.num_steps, args.seed)
        digests.add(outcome.digest)
        print(
            f"{name:26}{outcome.num_episodes:4} episodes, mean return {outcome.mean_return:8.2f}, "
            f"fingerprint {outcome.digest}, {outcome.steps_per_second:10,.0f} steps/s"
        )
    if len(digests) != 1:
        raise SystemExit("The numbers differ.")
    print("All numbers are equal.")


if __name__ == "__main__":
    main()
