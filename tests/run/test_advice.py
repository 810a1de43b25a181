"""Advice about settings is printed once, and only if it helps."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rookery
from rookery import A2CConfig, DQNConfig, ImpalaConfig, PPOConfig, SACConfig
from rookery.rollout import Rollout
from rookery.run.log import advice
from rookery.run.log.advice import component_sizes, on_minibatch, on_observations, on_rewards

SAID = "rookery: advice: "


def _heard(text: str) -> list[str]:
    return [line.removeprefix(SAID) for line in text.splitlines() if line.startswith(SAID)]


def _train(run_dir: Path, env: Any, algo: Any, **options: Any) -> None:
    usual = {"total_steps": 2048, "backend": "serial", "eval_episodes": 0}
    rookery.train(env, algo, run_dir=run_dir, **(usual | options))


class Numbers(gym.Env[Any, Any]):
    """Episodes of ten steps that show and reward what they are told to."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shown: tuple[float, ...] = (1.0, 1.0), reward: float = 1.0) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (len(shown),))
        self._shown, self._reward, self._count = np.array(shown, np.float32), reward, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._count = 0
        return self._shown, {}

    def step(self, action: Any) -> Any:
        self._count += 1
        return self._shown, self._reward, self._count == 10, False, {}


# ---------------------------------------------------------------- the sentences


@pytest.mark.parametrize(
    ("config", "num_envs", "is_said"),
    [
        (PPOConfig(), 8, False),
        (PPOConfig(), 2, False),  # as large as the rollout
        (PPOConfig(num_steps=129), 1, False),  # a little smaller: nothing that matters
        (PPOConfig(), 1, True),
        (PPOConfig(num_steps=16), 4, True),
        (PPOConfig(num_steps=16, minibatch_size=32), 4, False),
        (A2CConfig(), 1, False),  # they have no minibatches
        (DQNConfig(), 1, False),
    ],
)
def test_a_minibatch_cut_to_a_small_rollout_causes_advice(config, num_envs, is_said) -> None:
    said = on_minibatch(config, num_envs)
    assert (said is not None) == is_said
    if said:
        assert f"a rollout has {config.num_steps * num_envs} transitions" in said
        assert "minibatch_size is 256" in said and "num_steps or num_envs" in said


def test_large_returns_cause_advice_to_normalise_rewards() -> None:
    said = on_rewards(1234.5, 1024)
    assert said is not None
    assert (
        "first 1,024 steps have a standard deviation of 1,23" in said
        and "--normalize-reward" in said
    )
    assert on_rewards(99.0, 1024) is None
    assert on_rewards(float("nan"), 1024) is None


@pytest.mark.parametrize(
    ("config", "is_said"),
    [
        (PPOConfig(), True),
        (A2CConfig(), True),
        (PPOConfig(normalize_reward=True), False),
        (ImpalaConfig(), False),
        (DQNConfig(), False),
        (SACConfig(), False),
    ],
)
def test_advice_names_only_settings_of_the_algorithm(config, is_said, capsys) -> None:
    rollout = Rollout.allocate(600, np.zeros((2, 1)), np.zeros(2, np.int64))
    rollout.obs[:] = 0.0
    rollout.reward[:] = np.arange(600)[:, None]
    advice.FirstRollouts(config, 2, None).look(rollout)
    assert len(_heard(capsys.readouterr().err)) == is_said


def test_large_and_uneven_observations_cause_advice_to_normalise_them() -> None:
    said = on_observations({"observation[0]": 0.5, "observation[1]": 250.0})
    assert said is not None
    assert "observation[1] has a root mean square of 2.5e+02" in said and "--normalize-obs" in said
    assert on_observations({"observation": 300.0}) is not None
    uneven = {"a": 0.001, "b": 0.0, "c": 0.002, "d": 3.0, "e": 0.001}
    assert on_observations(uneven) is not None
    assert on_observations({"a": 0.001, "b": 0.002}) is None
    assert on_observations({"a": 0.0, "b": 0.0, "c": 5.0}) is None
    assert on_observations({}) is None


def test_sizes_are_measured_of_vectors_only() -> None:
    space = gym.spaces.Dict(
        camera=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
        choice=gym.spaces.Discrete(3),
        speed=gym.spaces.Box(-np.inf, np.inf, (2,)),
        height=gym.spaces.Box(-9, 9, ()),
    )
    rows = (3000, 2)  # more than are looked at
    obs = {
        "camera": np.full((*rows, 8, 8, 3), 255, np.uint8),
        "choice": np.full(rows, 2),
        "speed": np.broadcast_to(np.array([-3.0, 400.0], np.float32), (*rows, 2)),
        "height": np.full(rows, -2.0, np.float32),
    }
    assert component_sizes(space, obs) == {
        "observation['speed'][0]": 3.0,
        "observation['speed'][1]": 400.0,
        "observation['height']": 2.0,
    }


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_cartpole_with_defaults_gets_no_advice(algo, tmp_path: Path, capsys) -> None:
    _train(tmp_path / "run", "CartPole-v1", algo)
    assert _heard(capsys.readouterr().err) == []


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_pendulum_gets_advice_once(algo, tmp_path: Path, capsys) -> None:
    _train(tmp_path / "run", "Pendulum-v1", algo)
    captured = capsys.readouterr()
    (said,) = _heard(captured.err)
    assert "--normalize-reward" in said and captured.out == ""
    rookery.resume(tmp_path / "run", total_steps=4096)
    assert _heard(capsys.readouterr().err) == []


def test_followed_advice_is_not_repeated(tmp_path: Path, capsys) -> None:
    env = {"shown": (1000.0, 1.0), "reward": 100.0}
    config = PPOConfig(num_steps=16)
    _train(tmp_path / "first", Numbers, config, num_envs=2, env_kwargs=env)
    minibatch, observations, rewards = _heard(capsys.readouterr().err)
    assert "minibatch_size" in minibatch
    assert "observation[0] has a root mean square of 1e+03" in observations
    assert "deviation" in rewards
    followed = PPOConfig(num_steps=128, normalize_obs=True, normalize_reward=True)
    _train(tmp_path / "second", Numbers, followed, num_envs=2, env_kwargs=env)
    assert _heard(capsys.readouterr().err) == []


def test_observations_of_custom_networks_get_no_advice(tmp_path: Path, capsys) -> None:
    torch = pytest.importorskip("torch")

    def encoder(space: gym.Space[Any]) -> Any:
        return torch.nn.Linear(2, 8)

    _train(tmp_path / "run", Numbers, "ppo", encoder=encoder, env_kwargs={"shown": (1000.0, 1.0)})
    assert _heard(capsys.readouterr().err) == []


def test_advice_never_stops_a_run_and_can_be_silenced(tmp_path: Path, monkeypatch, capsys) -> None:
    config = PPOConfig(num_steps=16)
    options = {"num_envs": 2, "total_steps": 64}
    closed = io.StringIO()
    closed.close()
    for i, stream in enumerate((closed, None)):
        monkeypatch.setattr(sys, "stderr", stream)
        _train(tmp_path / f"unheard-{i}", Numbers, config, **options)
    monkeypatch.undo()
    assert capsys.readouterr().out == ""
    with monkeypatch.context() as silent:
        silent.setattr(gym.logger, "min_level", gym.logger.ERROR)
        _train(tmp_path / "silent", Numbers, config, **options)
    assert _heard(capsys.readouterr().err) == []
    _train(tmp_path / "heard", Numbers, config, **options)
    assert len(_heard(capsys.readouterr().err)) == 1


def test_only_the_first_rollouts_are_examined(tmp_path: Path, monkeypatch) -> None:
    looked: list[int] = []
    look = advice.FirstRollouts.look

    def counted(self: Any, rollout: Any) -> bool:
        looked.append(rollout.num_transitions)
        return look(self, rollout)

    monkeypatch.setattr(advice.FirstRollouts, "look", counted)
    _train(tmp_path / "run", "CartPole-v1", PPOConfig(num_steps=32), total_steps=4096)
    assert looked == [256] * 4  # the thousand steps that are needed to judge rewards
    looked.clear()
    _train(tmp_path / "other", "CartPole-v1", DQNConfig(), total_steps=256)
    assert looked == [32]


def test_rollouts_shorter_than_episodes_get_no_advice(tmp_path: Path, capsys) -> None:
    _train(tmp_path / "run", "FrozenLake-v1", A2CConfig(num_steps=2))
    assert _heard(capsys.readouterr().err) == []


def test_infinite_numbers_do_not_stop_the_examination() -> None:
    rollout = Rollout.allocate(600, np.full((2, 1), 1e300), np.zeros(2, np.int64))
    rollout.obs[:] = 1e300
    rollout.reward[:] = np.finfo(np.float32).max
    first = advice.FirstRollouts(PPOConfig(), 2, gym.spaces.Box(-np.inf, np.inf, (1,), np.float64))
    assert not first.look(rollout)  # where warnings are errors, as in all tests
