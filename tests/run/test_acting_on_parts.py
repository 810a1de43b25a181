"""Runs whose policy acts, in this process, on a part of the envs while workers step the others."""

import json

import pytest

import rookery
from rookery.errors import ConfigError
from rookery.learn.config import PPOConfig, TD3Config

SMALL = PPOConfig(num_steps=8, minibatch_size=16, hidden_sizes=(4,))
PARTLY = pytest.mark.parametrize("collector", ["double", "served"])


@PARTLY
def test_a_run_learns_from_what_it_collects(collector, tmp_path):
    result = rookery.train(
        "CartPole-v1", SMALL, total_steps=100, num_envs=3, collector=collector, num_workers=2,
        run_dir=tmp_path / "run", eval_episodes=1, info_keys=("is_success",),
    )  # fmt: skip
    assert result.steps == 120
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert {"policy_s", "env_s", "wait_s"} <= set(json.loads(lines[-1]))


@PARTLY
def test_learners_from_a_replay_take_it_too(collector, tmp_path):
    result = rookery.train(
        "CartPole-v1", "dqn", total_steps=100, num_envs=2, collector=collector, num_workers=2,
        run_dir=tmp_path / "run", eval_episodes=1,
    )  # fmt: skip
    assert result.steps >= 100


@PARTLY
@pytest.mark.parametrize("settings", [{"backend": "serial"}, {"caller_steps": True}], ids=str)
def test_a_run_refuses_what_it_cannot_do(collector, settings):
    with pytest.raises(ConfigError, match=f"collector '{collector}'"):
        rookery.Trainer("CartPole-v1", SMALL, collector=collector, **settings)


def test_halves_refuse_a_worker_for_each_env():
    with pytest.raises(ConfigError, match="collector 'double'"):
        rookery.Trainer("CartPole-v1", SMALL, collector="double", isolate=True)


@PARTLY
@pytest.mark.parametrize(
    "config",
    [
        PPOConfig(recurrent="gru"),
        PPOConfig(state_dependent_noise=True),
        TD3Config(exploration_noise_kind="ornstein-uhlenbeck"),
    ],
    ids=["gru", "state_dependent_noise", "ornstein-uhlenbeck"],
)
def test_policies_that_hold_something_for_each_env_are_refused(collector, config):
    with pytest.raises(ConfigError, match=f"collector '{collector}'"):
        rookery.Trainer("Pendulum-v1", config, collector=collector)
