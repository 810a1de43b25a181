"""Replay learners with a copy of the weights, as on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy import B, T, made_up_rollout

from rookery import DQNConfig, QRDQNConfig, SACConfig, TD3Config
from rookery.learn import placement
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.off_policy.qrdqn import QRDQN
from rookery.learn.off_policy.sac import SAC
from rookery.learn.off_policy.td3 import TD3

IMAGE = spaces.Box(0, 255, (20, 20, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,))
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-2, 4, (2,))
QUICK: dict[str, Any] = {
    "num_steps": T, "warmup_steps": 0, "updates_per_step": 0.5, "batch_size": 8,
    "normalize_obs": True, "replay_size": 400, "hidden_sizes": (32, 32),
}  # fmt: skip
CASES: dict[str, Any] = {
    "dqn": (DQN, DQNConfig(**QUICK, target_interval=2, prioritized=True), VECTOR, DISCRETE),
    "qrdqn": (QRDQN, QRDQNConfig(**QUICK, target_interval=2), VECTOR, DISCRETE),
    "sac": (SAC, SACConfig(**QUICK, n_step=2), VECTOR, BOX),
    "sac of images": (SAC, SACConfig(**QUICK), IMAGE, BOX),
    "td3": (TD3, TD3Config(**QUICK), VECTOR, BOX),
}


def _learned(case: str, device: str = "cpu") -> tuple[np.ndarray, dict[str, float]]:
    """Update twice, with a trip of the learner's state between; return weights and metrics."""
    kind, config, space, action_space = CASES[case]
    config = type(config).from_dict({**config.to_dict(), "device": device})
    policy = kind.make_policy(config, space, action_space, 0)
    learner = kind(policy, config, B)
    rollout = made_up_rollout(space, action_space)
    learner.update(rollout)
    other = kind(policy, config, B)
    other.load_state_dict(learner.state_dict())
    other.load_replay_state(learner.replay_state())
    return policy.model.parameters.copy(), other.update(rollout, 0.5)


@pytest.mark.parametrize("case", CASES)
def test_weights_apart_learn_the_same(case, monkeypatch):
    weights, metrics = _learned(case)
    monkeypatch.setattr(placement, "is_there", lambda model, device: False)
    weights_apart, metrics_apart = _learned(case)
    np.testing.assert_allclose(weights_apart, weights, rtol=1e-3, atol=1e-5)
    assert metrics_apart == pytest.approx(metrics, rel=1e-2, abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_learns(case):
    _, metrics = _learned(case, "cuda")
    assert metrics["skipped_gradient_steps"] == 0 and np.isfinite(metrics["value_loss"])


@pytest.mark.parametrize("case", ["dqn", "qrdqn", "td3"])
def test_targets_begin_where_the_policy_does(case):
    """A run may begin with the weights of another, which come after the learner was made."""
    kind, config, space, action_space = CASES[case]
    policy = kind.make_policy(config, space, action_space, 0)
    learner = kind(policy, config, B)
    policy.model.parameters[...] = 0.25
    seen = []
    step = learner._step

    def look(progress: float) -> dict[str, float]:
        target = getattr(learner, "_target_actor", None) or learner._target
        seen.append(target.flat.tensor.clone())
        return step(progress)

    learner._step = look
    learner.update(made_up_rollout(space, action_space))
    assert (seen[0] == 0.25).all()
