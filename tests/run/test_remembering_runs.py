"""Runs whose policy remembers, and acts in the workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rookery
from rookery import A2CConfig, ImpalaConfig, PPOConfig

SMALL: Any = {"num_steps": 8, "memory_size": 4, "hidden_sizes": (8,)}
RUNS = {
    "ppo": (PPOConfig(**SMALL, recurrent="gru", sequence_length=4, num_epochs=2), "workers"),
    "a2c": (A2CConfig(**SMALL, recurrent="lstm"), "workers"),
    "impala": (ImpalaConfig(**SMALL, recurrent="gru"), "async"),
    "impala in step": (ImpalaConfig(**SMALL, recurrent="lstm"), "workers"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_policy_that_remembers_learns_in_workers_and_is_gone_on_with(
    tmp_path: Path, name: str
) -> None:
    config, collector = RUNS[name]
    with rookery.Trainer(
        "CartPole-v1", config, total_steps=160, num_envs=4, num_workers=2, collector=collector,
        run_dir=tmp_path, eval_episodes=2,
    ) as trainer:  # fmt: skip
        before = trainer.policy.model.parameters.copy()
        updates = list(trainer)
        assert (trainer.policy.model.parameters != before).any()
        assert trainer.evaluate(2).eval_return_mean > 0
        trainer.save()
    assert updates[-1].steps >= 160
    assert rookery.resume(tmp_path, total_steps=320).steps >= 320


def test_one_worker_learns_what_the_caller_does(tmp_path: Path) -> None:
    """What is remembered is the same too: to the last bit, update by update."""
    metrics = []
    for collector in ("caller", "workers"):
        with rookery.Trainer(
            "CartPole-v1", RUNS["ppo"][0], total_steps=128, num_envs=4, num_workers=1,
            collector=collector, run_dir=tmp_path / collector, eval_episodes=0,
        ) as trainer:  # fmt: skip
            metrics.append([update.metrics for update in trainer])
    for ours, theirs in zip(*metrics, strict=True):
        for key in ("policy_loss", "value_loss", "approximate_kl", "entropy"):
            assert ours[key] == theirs[key]
