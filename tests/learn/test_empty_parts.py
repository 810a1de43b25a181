"""Every algorithm learns from observations with an empty part or a part without axes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rookery
from rookery import (
    A2CConfig,
    DQNConfig,
    ImpalaConfig,
    PPOConfig,
    QRDQNConfig,
    SACConfig,
    TD3Config,
)
from rookery.policy import make_policy
from rookery.run.algorithms import algorithm_of

NOTHING = spaces.Box(-1, 1, (0,), np.float32)
BARE = spaces.Box(-1, 1, (), np.float32)
ACTIONS = {
    "choice": spaces.Discrete(2),
    "number": spaces.Box(-1, 1, (1,), np.float32),
    "choice and nothing": spaces.Dict(choice=spaces.Discrete(2), none=NOTHING),
}
OFF_POLICY: dict[str, Any] = {"warmup_steps": 8, "replay_size": 64, "batch_size": 8, "n_step": 2}
CASES = {
    "ppo": (PPOConfig(num_steps=8, minibatch_size=8), "choice"),
    "ppo that remembers": (
        PPOConfig(num_steps=8, minibatch_size=8, recurrent="gru", sequence_length=4),
        "choice",
    ),
    "ppo with an empty action": (PPOConfig(num_steps=8), "choice and nothing"),
    "a2c": (A2CConfig(), "number"),
    "impala": (ImpalaConfig(num_steps=8), "choice"),
    "impala that remembers": (ImpalaConfig(num_steps=8, recurrent="lstm"), "choice"),
    "dqn": (DQNConfig(**OFF_POLICY), "choice"),
    "qrdqn": (QRDQNConfig(**OFF_POLICY, prioritized=True), "choice"),
    "sac": (SACConfig(**OFF_POLICY), "number"),
    "td3": (TD3Config(**OFF_POLICY), "number"),
}


class Sensors(gym.Env[Any, Any]):
    """Shows a number, or an empty array, or both; episodes end and are cut off."""

    def __init__(self, form: str, action: str) -> None:
        number = spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = {
            "only nothing": NOTHING,
            "nothing and a number": spaces.Dict(none=NOTHING, number=number),
            "no axis": BARE,
            "no axis and a number": spaces.Dict(bare=BARE, number=number),
        }[form]
        self.action_space = ACTIONS[action]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._steps += 1
        ended, cut = self._steps % 3 == 0, self._steps % 4 == 0
        return self.observation_space.sample(), 1.0, ended, cut, {}


@pytest.mark.parametrize(
    "form", ["only nothing", "nothing and a number", "no axis", "no axis and a number"]
)
@pytest.mark.parametrize("case", CASES)
def test_every_form_is_learned_from(case: str, form: str) -> None:
    config, action = CASES[case]
    kwargs = {"form": form, "action": action}
    venv = rookery.make_vec(Sensors, 2, "serial", env_kwargs=kwargs, autoreset_mode="same_step")
    algorithm = algorithm_of(config)
    policy = algorithm.make_policy(venv.single_observation_space, venv.single_action_space, 0)
    algorithm.start(policy, 2, 0)
    collector = rookery.SyncCollector(venv, policy, algorithm.num_steps, seed=0)
    for progress in np.linspace(0.0, 1.0, 12):
        metrics = algorithm.update(collector.collect(), float(progress))
    venv.close()
    assert np.isfinite(metrics["value_loss"])
    assert np.isfinite(policy.model.parameters).all()


def test_actors_in_workers_hold_empty_parts() -> None:
    kwargs = {"form": "nothing and a number", "action": "choice and nothing"}
    with rookery.WorkerCollector(
        Sensors, make_policy, num_envs=2, num_workers=1, num_steps=5, env_kwargs=kwargs
    ) as collector:
        rollout = collector.collect()
    assert rollout.obs["none"].shape == (5, 2, 0) and rollout.valid.all()
