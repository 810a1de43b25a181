"""Learning with custom encoders and networks, images, joint actions, masks and text."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rookery
from rookery import A2CConfig, ImpalaConfig, PPOConfig
from rookery.learn.on_policy.a2c import A2C
from rookery.learn.on_policy.impala import Impala
from rookery.learn.on_policy.ppo import PPO
from rookery.policy import NumpyPolicy
from rookery.policy.torch.torch_policy import TorchPolicy

PPO_CONFIG = PPOConfig(
    num_steps=16, num_epochs=4, minibatch_size=64, learning_rate=5e-3, entropy_coef=0.01
)


class Signs(gym.Env[Any, Any]):
    """One step: shows one of two signs, and rewards the action that is called for.

    ``form`` is how the sign is shown, ``answer`` what the action looks like.
    """

    def __init__(self, form: str = "numbers", answer: str = "choice") -> None:
        self.form, self.answer = form, answer
        image = spaces.Box(0, 255, (24, 24, 3), np.uint8)
        self.observation_space = {
            "numbers": spaces.Box(-1, 1, (2,)),
            "image": image,
            "floats": spaces.Box(0, 1, (24, 24), np.float32),
            "stacked": spaces.Box(0, 255, (4, 24, 24, 3), np.uint8),
            "text": spaces.Text(4, charset="abcdefgh"),
            "text_and_numbers": spaces.Dict(
                word=spaces.Text(4, charset="abcdefgh"), x=spaces.Box(-1, 1, (2,))
            ),
            "mask": spaces.Dict(x=spaces.Box(-1, 1, (2,)), action_mask=spaces.MultiBinary(4)),
        }[form]
        self.action_space = {
            "choice": spaces.Discrete(2),
            "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,))]),
            "masked": spaces.Discrete(4),
        }[answer]

    def _show(self) -> Any:
        word = ["ab", "hgfe"][self._sign]
        numbers = np.array([2 * self._sign - 1, 0.5], np.float32)
        match self.form:
            case "image" | "stacked" | "floats":
                image = np.zeros(self.observation_space.shape, self.observation_space.dtype)
                bright = 255 if image.dtype == np.uint8 else 1.0
                where = slice(0, 12) if self._sign else slice(12, 24)
                image[(slice(None),) * (image.ndim == 4) + (where,)] = bright
                return image
            case "text":
                return word
            case "text_and_numbers":
                return {"word": word, "x": np.zeros(2, np.float32)}
            case "mask":
                self._legal = np.array([1, 0, 1, 0] if self._sign else [0, 1, 1, 0], np.int8)
                return {"x": numbers, "action_mask": self._legal}
        return numbers

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._sign = int(self.np_random.integers(2))
        return self._show(), {}

    def step(self, action):
        if self.answer == "masked":
            assert self._legal[action], f"action {action} is illegal under {self._legal}"
            reward = float(action == 2)
        elif self.answer == "tuple":
            choice, number = action
            reward = float(choice == self._sign) - abs(float(number[0]) - 0.8)
        else:
            reward = float(action == self._sign)
        return self._show(), reward, True, False, {}


def _learn(form: str, answer: str, updates: int, kind: Any = PPO, config: Any = PPO_CONFIG, **own):
    """Train, and return the policy and the mean reward of the last rollouts."""
    torch.set_num_threads(1)
    kwargs = {"form": form, "answer": answer}
    venv = rookery.make_vec(Signs, 16, "serial", env_kwargs=kwargs, autoreset_mode="same_step")
    space = venv.single_observation_space
    policy = kind.make_policy(config, space, venv.single_action_space, 0, **own)
    learner = kind(policy, config, 16)
    collector = rookery.SyncCollector(venv, policy, config.num_steps, seed=0)
    rewards = []
    for k in range(updates):
        rollout = collector.collect()
        learner.update(rollout, k / updates)
        rewards.append(rollout.reward.mean())
    venv.close()
    return policy, np.mean(rewards[-3:])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["image", "floats", "stacked"])
def test_images_of_24_pixels_are_learned_from(form):
    config = PPOConfig(num_steps=8, num_epochs=4, minibatch_size=64, learning_rate=1e-3)
    policy, reward = _learn(form, "choice", 8, config=config)
    assert isinstance(policy, TorchPolicy)
    assert policy.model.module.encoder.num_features == 512  # a convolutional network's
    assert reward > 0.9


class Pairs(nn.Module):
    """An encoder of the user's."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(int(np.prod(space.shape)), 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


class Whole(nn.Module):
    """A network of the user's, one body for actor and critic."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, int(action_space.n)), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.body(x)
        return self.actor(hidden), self.critic(hidden).squeeze(1)


class Remembering(nn.Module):
    """A network of the user's that remembers."""

    memory_width = 6

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.cell = nn.GRUCell(2, 6)
        self.actor, self.critic = nn.Linear(6, int(action_space.n)), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> Any:
        memory = self.cell(x, memory)
        return self.actor(memory), self.critic(memory).squeeze(1), memory


ALGORITHMS = {
    "ppo": (PPO, PPO_CONFIG, 18),
    "a2c": (A2C, A2CConfig(num_steps=4, learning_rate=1e-2, rms_decay=0.9), 250),
    "impala": (Impala, ImpalaConfig(num_steps=4, learning_rate=1e-2), 160),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "own", [{"encoder": Pairs}, {"network": Whole}], ids=["encoder", "network"]
)
def test_modules_of_ones_own_are_learned(algorithm, own):
    kind, config, updates = ALGORITHMS[algorithm]
    policy, reward = _learn("numbers", "choice", updates, kind, config, **own)
    assert isinstance(policy, TorchPolicy)
    assert reward > 0.9


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_network_of_ones_own_that_remembers_is_learned(algorithm):
    kind, config, updates = ALGORITHMS[algorithm]
    _, reward = _learn("numbers", "choice", updates, kind, config, network=Remembering)
    assert reward > 0.9


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_joint_actions_are_learned(algorithm):
    kind, config, updates = ALGORITHMS[algorithm]
    policy, reward = _learn("numbers", "tuple", updates, kind, config)
    assert isinstance(policy, NumpyPolicy)
    assert reward > 0.0  # at first it is about -0.5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_illegal_actions_are_never_tried_and_the_best_legal_one_is_learned(algorithm):
    kind, config, updates = ALGORITHMS[algorithm]
    _, reward = _learn("mask", "masked", updates, kind, config)
    assert reward > 0.9


class Letters(nn.Module):
    """Reads words by their first letter."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, words: np.ndarray) -> torch.Tensor:
        letters = [ord(str(word)[0]) - ord("a") for word in words]
        found: torch.Tensor = self.table(torch.tensor(letters))
        return found


@pytest.mark.parametrize("form", ["text", "text_and_numbers"])
def test_text_is_learned_through_an_encoder_of_the_users(form):
    own: Any = Letters if form == "text" else {"word": Letters}
    _, reward = _learn(form, "choice", 15, encoder=own)
    assert reward > 0.9
