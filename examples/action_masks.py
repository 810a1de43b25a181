"""Actions that are not always legal: PPO and DQN never take one that the env forbids.

python examples/action_masks.py --total-steps 8000
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rookery


class Stones(gym.Env[Any, Any]):
    """Two players take one to three stones from a heap; the player who takes the last one wins.

    The other one plays at random. Taking more than there are is an error; infos contain the legal
    actions.
    """

    def __init__(self, heap: int = 13) -> None:
        self.heap = heap
        self.observation_space = spaces.Discrete(heap + 1)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Fill the heap."""
        super().reset(seed=seed)
        self.left = self.heap - int(self.np_random.integers(4))
        return self.left, self._legal()

    def step(self, action: Any) -> Any:
        """Take ``action + 1`` stones; then the other one takes some."""
        if action + 1 > self.left:
            raise ValueError(f"{action + 1} stones of {self.left}")
        self.left -= int(action) + 1
        if self.left == 0:
            return self.left, 1.0, True, False, self._legal()
        self.left -= int(self.np_random.integers(1, min(3, self.left) + 1))
        lost = self.left == 0
        return self.left, -1.0 if lost else 0.0, lost, False, self._legal()

    def _legal(self) -> dict[str, Any]:
        return {"action_mask": np.array([n <= self.left for n in (1, 2, 3)], np.int8)}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=8_000)
    options = parser.parse_args()
    for algo in (
        rookery.PPOConfig(num_steps=32, minibatch_size=64),
        rookery.DQNConfig(warmup_steps=200, batch_size=64),
    ):
        result = rookery.train(
            Stones,
            algo,
            masks_from_info=True,
            total_steps=options.total_steps,
            num_envs=8,
            eval_episodes=200,
            run_dir="runs/action-masks",
            overwrite=True,
        )
        print(f"{type(algo).__name__}: mean return {result.eval_return_mean:.2f}")
    agent = rookery.load("runs/action-masks")
    action = agent.act({"obs": 2, "action_mask": np.array([1, 1, 0], np.int8)})
    print(f"with two stones left it takes {action + 1}")


if __name__ == "__main__":
    main()
