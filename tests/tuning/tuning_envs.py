"""Envs that cannot be run everywhere."""

import sys
import threading

import gymnasium
import numpy as np


class Plain(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, self.steps >= 20, False, {}


class OnlyHere(Plain):
    """Refuses to be built in a worker."""

    def __init__(self):
        if (
            "rookery.worker.entry" in sys.modules
            and "rookery.tuning.measuring_process" not in sys.modules
        ):
            raise RuntimeError("there is one display, and it is taken")


class Hangs(Plain):
    def reset(self, *, seed=None, options=None):
        threading.Event().wait()
