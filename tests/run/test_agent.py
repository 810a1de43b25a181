"""Loaded agents act as during training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from training_envs import Match

import rookery
from rookery import A2CConfig, DQNConfig, ImpalaConfig, PPOConfig, SACConfig
from rookery.common.trees import tree_map
from rookery.learn.base import actor_critic_policy
from rookery.policy import make_policy
from rookery.run.agent import Agent
from rookery.run.evaluation import as_it_was

RUNS: dict[str, tuple[str, Any]] = {
    "ppo": ("CartPole-v1", PPOConfig(num_steps=16, num_epochs=1, normalize_obs=True)),
    "gru": ("CartPole-v1", PPOConfig(num_steps=16, num_epochs=1, recurrent="gru", memory_size=8)),
    "a2c": ("Pendulum-v1", A2CConfig(num_steps=16)),
    "impala": ("CartPole-v1", ImpalaConfig(num_steps=16)),
    "dqn": ("CartPole-v1", DQNConfig(num_steps=16, warmup_steps=32, batch_size=8)),
    "sac": ("Pendulum-v1", SACConfig(num_steps=16, warmup_steps=32, batch_size=8)),
}


def _trained(folder: Path, env: Any, algo: Any, **options: Any) -> Path:
    options = {"total_steps": 64, "num_envs": 2, "eval_episodes": 0} | options
    rookery.train(env, algo, run_dir=folder, collector="caller", backend="serial", **options)
    return folder


@pytest.mark.parametrize("name", list(RUNS))
def test_an_agent_plays_the_episodes_of_the_evaluation(tmp_path: Path, name: str) -> None:
    env_id, algo = RUNS[name]
    folder = _trained(tmp_path / "run", env_id, algo)
    told = rookery.evaluate(folder, episodes=1, num_envs=1)
    agent = rookery.load(folder)
    env = gym.make(env_id)
    from rookery.run.evaluation import evaluation_seed

    seed = rookery.seeding.env_seeds(evaluation_seed(0), 1)[0]
    obs, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        action = agent.act(obs)
        assert env.action_space.contains(action)
        obs, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    env.close()
    assert total == pytest.approx(told.eval_return_mean, rel=1e-6)


def test_an_agent_explores_by_one_function_of_the_state_until_it_is_reset() -> None:
    config = PPOConfig(state_dependent_noise=True, noise_interval=1000)
    box = spaces.Box(-1, 1, (3,)), spaces.Box(-100, 100, (2,))
    agent = Agent(actor_critic_policy(config, *box, 0), box)
    obs = np.ones(3, np.float32)
    first = agent.act(obs, deterministic=False)
    agent.act(obs)
    np.testing.assert_array_equal(agent.act(obs, deterministic=False), first)
    with as_it_was(agent.policy):
        assert (agent.act(obs, deterministic=False) != first).all()
    np.testing.assert_array_equal(agent.act(obs, deterministic=False), first)
    agent.reset()
    assert (agent.act(obs, deterministic=False) != first).all()


def test_one_observation_and_a_batch_give_the_same_actions(tmp_path: Path) -> None:
    agent = rookery.load(_trained(tmp_path, *RUNS["ppo"]))
    batch = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    actions = agent.act(batch)
    assert actions.shape == (5,)
    assert [agent.act(obs) for obs in batch] == actions.tolist()
    assert isinstance(agent.act(batch[0].tolist()), int)


def test_dict_observations_are_accepted(tmp_path: Path) -> None:
    folder = _trained(
        tmp_path, Match, PPOConfig(num_steps=16), env_kwargs={"action_space": spaces.MultiBinary(2)}
    )
    agent = rookery.load(folder)
    obs = agent.observation_space.sample()
    assert agent.action_space.contains(agent.act(obs))
    batch = tree_map(lambda leaf: np.stack([np.asarray(leaf)] * 3), obs)
    assert agent.act(batch).shape == (3, 2)


def test_a_recurrent_agent_remembers_until_it_is_reset(tmp_path: Path) -> None:
    folder = _trained(tmp_path, *RUNS["gru"])
    agent, fresh = rookery.load(folder), rookery.load(folder)
    obs = np.ones(4, np.float32)
    for _ in range(5):
        agent.act(obs)
    remembered = agent.policy.memory.copy()
    agent.reset()
    agent.act(obs)
    fresh.act(obs)
    np.testing.assert_array_equal(agent.policy.memory, fresh.policy.memory)
    assert (agent.policy.memory != remembered).any()


@pytest.mark.parametrize("obs", [np.zeros(3), np.zeros((2, 3)), np.zeros((2, 2, 4)), 1.0])
def test_invalid_observations_are_refused_with_their_shape(tmp_path: Path, obs: Any) -> None:
    agent = rookery.load(_trained(tmp_path, *RUNS["ppo"]))
    with pytest.raises(rookery.SpaceError, match=r"of shape .* neither one of Box"):
        agent.act(obs)


def test_files_without_a_policy_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(rookery.ConfigError, match="no checkpoint at"):
        rookery.load(tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(b"nothing")
    with pytest.raises(rookery.ConfigError, match=r"checkpoint\.pt is not a checkpoint"):
        rookery.load(tmp_path)


def test_a_joint_action_for_one_observation_fits_its_space():
    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Dict(
        arm=gym.spaces.Box(-1, 1, (2,)),
        legs=gym.spaces.Tuple([gym.spaces.Discrete(3, start=1), gym.spaces.MultiBinary(2)]),
    )
    policy = make_policy(observation_space, action_space)
    agent = rookery.Agent(policy, (observation_space, action_space))
    assert action_space.contains(agent.act(np.zeros(3, np.float32), deterministic=False))
    assert agent.act(np.zeros((5, 3), np.float32))["arm"].shape == (5, 2)
