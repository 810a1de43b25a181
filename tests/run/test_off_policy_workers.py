"""Learners from replay in runs whose policy acts in the workers."""

from __future__ import annotations

from pathlib import Path

import pytest

import rookery
from rookery import DQNConfig, QRDQNConfig, SACConfig, TD3Config

QUICK = {"num_steps": 5, "warmup_steps": 60, "batch_size": 8, "hidden_sizes": (8,)}
RUNS = {
    "dqn": ("CartPole-v1", DQNConfig(**QUICK, prioritized=True)),
    "qrdqn": ("CartPole-v1", QRDQNConfig(**QUICK, num_quantiles=5)),
    "sac": ("Pendulum-v1", SACConfig(**QUICK, updates_per_step=0.5)),
    "td3": ("Pendulum-v1", TD3Config(**QUICK, updates_per_step=0.5)),
}


@pytest.mark.parametrize("collector", ["workers", "async"])
@pytest.mark.parametrize("algo", RUNS)
def test_learners_from_replay_learn_from_workers(tmp_path: Path, algo: str, collector: str):
    env, config = RUNS[algo]
    with rookery.Trainer(
        env, config, total_steps=200, num_envs=4, num_workers=2, collector=collector,
        run_dir=tmp_path, eval_episodes=0,
    ) as trainer:  # fmt: skip
        before = trainer.policy.model.parameters.copy()
        updates = list(trainer)
    assert updates[-1].steps >= 200
    assert updates[-1].metrics["gradient_steps"] == (updates[-1].steps - 60) // 2
    assert (trainer.policy.model.parameters != before).any()
    assert rookery.resume(tmp_path, total_steps=300).steps >= 300
