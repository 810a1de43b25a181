"""Every algorithm learns what can be worked out by hand, and mistakes that are often made do not.

Each check is run twice: as it is, and with the mistake put in, which must fail it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rookery
import rookery.learn.on_policy.batches
import rookery.learn.on_policy.impala
import rookery.learn.on_policy.ppo
from rookery.rollout.replay import Replay
from rookery.run.algorithms import BuiltIn

GAMMA, REWARD, EPISODE = 0.8, 1.0, 4
ENDLESS = REWARD / (1.0 - GAMMA)  # what is to come if nothing ever ends: 5


class Endless(gym.Env[Any, Any]):
    """An env with equal rewards and observations, which a time limit truncates."""

    observation_space = spaces.Box(-1, 1, (1,))

    def __init__(self, action_space: spaces.Space[Any], reward: float = REWARD) -> None:
        self.action_space = action_space
        self._reward = reward

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return np.ones(1, np.float32), self._reward, False, self._steps == EPISODE, {}


CHOICE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (1,))
ROLLOUTS = {"num_steps": 16, "gamma": GAMMA, "hidden_sizes": (16,), "final_learning_rate": None}
REPLAYS = {
    "num_steps": 16, "gamma": GAMMA, "hidden_sizes": (16,), "warmup_steps": 32, "batch_size": 32,
    "learning_rate": 1e-2, "target_rate": 0.2,
}  # fmt: skip
ALGORITHMS: dict[str, tuple[Any, dict[str, Any], spaces.Space[Any], int]] = {
    "ppo": (
        rookery.PPOConfig,
        {**ROLLOUTS, "num_epochs": 4, "minibatch_size": 32, "learning_rate": 1e-2},
        CHOICE,
        30,
    ),
    "a2c": (
        rookery.A2CConfig,
        {**ROLLOUTS, "learning_rate": 3e-2, "rms_decay": 0.9},
        CHOICE,
        100,
    ),
    "impala": (rookery.ImpalaConfig, {**ROLLOUTS, "learning_rate": 2e-2}, CHOICE, 80),
    "dqn": (rookery.DQNConfig, {**REPLAYS, "target_interval": 1}, CHOICE, 12),
    "qrdqn": (
        rookery.QRDQNConfig,
        {**REPLAYS, "target_interval": 1, "num_quantiles": 5},
        CHOICE,
        12,
    ),
    "sac": (rookery.SACConfig, {**REPLAYS, "entropy_coef": 0.0}, BOX, 8),
    "td3": (rookery.TD3Config, REPLAYS, BOX, 8),
}


def _trained(name: str, reward: float, **settings: Any) -> tuple[Any, dict[str, float]]:
    """Train; the policy, and the metrics of the last update."""
    kind, usual, action_space, updates = ALGORITHMS[name]
    config = kind(**{**usual, **{k: abs(v) for k, v in settings.items()}})
    config = dataclasses.replace(config)  # one of its own, for signs that no user can give
    for key, value in settings.items():
        object.__setattr__(config, key, value)
    algorithm = BuiltIn(name, config)
    makers = [lambda: Endless(action_space, reward)] * 4
    with rookery.SerialVectorEnv(makers, autoreset_mode="same_step") as venv:
        spaces_of_one = venv.single_observation_space, venv.single_action_space
        policy = algorithm.make_policy(*spaces_of_one, seed=0)
        algorithm.start(policy, venv.num_envs, seed=0)
        collector = rookery.SyncCollector(venv, policy, algorithm.num_steps, seed=0)
        metrics: dict[str, float] = {}
        for _ in range(updates):
            metrics = {**metrics, **algorithm.update(collector.collect(), 0.0)}
    return policy, metrics


# -------------------------------------------------------------------- truncation


def _forgets_final_values(function: Callable[..., Any]) -> Callable[..., Any]:
    def forgetful(*arrays: Any, **settings: Any) -> Any:
        *others, final_value = arrays
        return function(*others, np.zeros_like(final_value), **settings)

    return forgetful


def _forget_what_was_cut_off(patch: pytest.MonkeyPatch) -> None:
    """Take the end of an episode that was cut off for the end of all rewards."""
    patch.setattr(
        rookery.learn.on_policy.batches,
        "gae",
        _forgets_final_values(rookery.learn.on_policy.batches.gae),
    )
    patch.setattr(
        rookery.learn.on_policy.impala,
        "vtrace",
        _forgets_final_values(rookery.learn.on_policy.impala.vtrace),
    )
    add = Replay.add

    def forgetful(replay: Replay, rollout: Any) -> None:
        ended = rollout.terminated | rollout.truncated
        add(replay, dataclasses.replace(rollout, terminated=ended))

    patch.setattr(Replay, "add", forgetful)


def _value(name: str) -> float:
    policy, metrics = _trained(name, REWARD)
    if "action_value" in metrics:
        return metrics["action_value"]
    return float(policy.value(np.ones((1, 1), np.float32))[0])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_was_cut_off_would_have_gone_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(_value(name) - ENDLESS) < 1.0
    _forget_what_was_cut_off(monkeypatch)
    assert _value(name) < ENDLESS - 1.5


# -------------------------------------------------------------------- entropy


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala", "sac"])
def test_without_rewards_actions_stay_as_random_as_can_be(name: str) -> None:
    _, metrics = _trained(name, 0.0, entropy_coef=0.2)
    most = math.log(2.0) if name == "sac" else math.log(3.0)
    assert metrics["entropy"] > most - 0.2
    _, metrics = _trained(name, 0.0, entropy_coef=-0.2)
    assert metrics["entropy"] < most - 0.4
