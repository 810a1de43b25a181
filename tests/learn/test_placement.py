"""Learners that compute in the model's memory, or in a copy as on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rookery import A2CConfig, ConfigError, DQNConfig, ImpalaConfig, PPOConfig, Rollout
from rookery.common.trees import tree_map
from rookery.learn import placement
from rookery.learn.machine import require_compiler, require_machine, torch_device
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.on_policy.a2c import A2C
from rookery.learn.on_policy.impala import Impala
from rookery.learn.on_policy.ppo import PPO
from rookery.learn.placement import Placement
from rookery.policy.model import Model

T, B = 8, 4
IMAGE = spaces.Box(0, 255, (20, 20, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,))
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,))
ABSENT = "cuda:99"
_PPO: dict[str, Any] = {"num_steps": T, "num_epochs": 1, "minibatch_size": 12}
CASES: dict[str, Any] = {
    "ppo": (PPO, PPOConfig(**_PPO, normalize_obs=True), VECTOR, BOX),
    "images": (PPO, PPOConfig(**_PPO), IMAGE, BOX),
    "a2c": (A2C, A2CConfig(num_steps=T), IMAGE, DISCRETE),
    "impala": (Impala, ImpalaConfig(num_steps=T), VECTOR, BOX),
    "memory": (PPO, PPOConfig(**_PPO, recurrent="lstm", sequence_length=4), VECTOR, DISCRETE),
}
HAS_GPU = torch.cuda.is_available()


@pytest.fixture
def apart(monkeypatch):
    """Keep what is learned apart from the model on the cpu too, as it is on a GPU."""
    monkeypatch.setattr(placement, "is_there", lambda model, device: False)


def _rollout(policy, space) -> Rollout:
    rng = np.random.default_rng(0)
    if space is IMAGE:
        obs: Any = rng.integers(0, 256, (T + 1, B, *space.shape), dtype=np.uint8)
    else:
        obs = rng.normal(size=(T + 1, B, *space.shape)).astype(np.float32)
    policy.begin_episodes(np.ones(B, np.bool_))
    steps = [policy.act(rows) for rows in obs[:-1]]
    rollout = Rollout.allocate(T, obs[0], steps[0].action)
    rollout.obs, rollout.last_obs = obs[:-1], obs[-1]
    for t, step in enumerate(steps):
        rollout.action[t], rollout.log_prob[t], rollout.value[t] = step
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.1
    if policy.is_recurrent:
        rollout.memory = np.zeros((B, policy.memory_width), np.float32)
    return rollout


def _learned(case: str, device: str = "cpu") -> tuple[np.ndarray, dict[str, float]]:
    """Update twice, with a trip of the learner's state between; return weights and metrics."""
    kind, config, space, action_space = CASES[case]
    config = type(config).from_dict({**config.to_dict(), "device": device})
    policy = kind.make_policy(config, space, action_space, 0)
    learner = kind(policy, config, B)
    rollout = _rollout(policy, space)
    learner.update(rollout)
    other = kind(policy, config, B)
    other.load_state_dict(learner.state_dict())
    metrics = other.update(rollout, 0.5)
    return np.concatenate([policy.model.parameters, policy.model.extras()]), metrics


@pytest.mark.parametrize("case", CASES)
def test_weights_apart_learn_the_same(case, monkeypatch):
    weights, metrics = _learned(case)
    monkeypatch.setattr(placement, "is_there", lambda model, device: False)
    weights_apart, metrics_apart = _learned(case)
    np.testing.assert_allclose(weights_apart, weights, rtol=1e-3, atol=1e-5)
    assert metrics_apart == pytest.approx(metrics, rel=1e-2, abs=1e-4)


@pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_learns_what_the_cpu_does(case):
    weights, metrics = _learned(case)
    on_gpu, gpu_metrics = _learned(case, "cuda")
    # Convolutions round to 10 bits of mantissa there, and Adam's first steps are signs.
    assert np.mean(np.abs(on_gpu - weights) < 1e-3) > 0.95
    assert gpu_metrics == pytest.approx(metrics, rel=0.1, abs=0.02)


def test_weights_apart_come_back_when_learning_ends(apart):
    model = Model(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    before = model.parameters.copy()
    place: Placement[Any] = Placement(model)
    with place.learning() as module:
        place.flat.tensor += 1.0
        module[1].running_mean += 2.0
        np.testing.assert_array_equal(model.parameters, before)
    np.testing.assert_allclose(model.parameters, before + 1.0)
    assert (model.module[1].running_mean == 2.0).all()
    model.parameters[:] = 3.0
    with place.learning():
        assert (place.flat.tensor == 3.0).all()


def test_on_the_cpu_learners_write_the_memory_of_the_model():
    model = Model(nn.Linear(3, 2))
    place: Placement[Any] = Placement(model)
    with place.learning() as module:
        assert module is model.module and module.training
        place.flat.tensor[0] = 7.0
        assert model.parameters[0] == 7.0
    assert not model.module.training


def test_a_device_that_is_not_there_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match=r"sees \d devices of type 'cuda' here.*leave device at"):
        torch_device(ABSENT)
    with pytest.raises(ConfigError, match=ABSENT):
        require_machine(ABSENT, compiled=False)
    config = PPOConfig(device=ABSENT)
    with pytest.raises(ConfigError, match=ABSENT):
        PPO(PPO.make_policy(config, VECTOR, DISCRETE, 0), config, B)


@pytest.mark.parametrize("config", [PPOConfig, A2CConfig, ImpalaConfig])
def test_a_device_of_no_known_kind_is_refused_by_the_settings(config):
    assert config(device="cuda:1").device == "cuda:1"
    with pytest.raises(ConfigError, match="device is 'tpu'"):
        config(device="tpu")


def test_compiling_needs_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler.*no-such-compiler"):
        require_compiler()
    config = PPOConfig(compile=True)
    with pytest.raises(ConfigError, match="use compile=False"):
        PPO(PPO.make_policy(config, VECTOR, DISCRETE, 0), config, B)


# ---------------------------------------------------------------- what is pickled


@pytest.fixture
def sent(monkeypatch) -> list[np.ndarray]:
    """The arrays that are brought to the learner's device, in order."""
    arrays: list[np.ndarray] = []
    bring = placement.to_tensors

    def noted(tree, device):
        tree_map(arrays.append, tree)
        return bring(tree, device)

    monkeypatch.setattr(placement, "to_tensors", noted)
    return arrays


def _read_by(module) -> list[torch.Tensor]:
    """Return a list of all batches that the image encoder reads from now on."""
    read: list[torch.Tensor] = []
    module.encoder.parts[0].register_forward_pre_hook(lambda _, given: read.append(given[0]))
    return read


IMAGE_CASES: dict[str, Any] = {
    "ppo": (PPO, PPOConfig(num_steps=T, num_epochs=3, minibatch_size=8), T * B // 8 * 3),
    "a2c": (A2C, A2CConfig(num_steps=T), 1),
    "impala": (Impala, ImpalaConfig(num_steps=T), 2),  # of the last observations, too
    "memory": (PPO, PPOConfig(**_PPO, recurrent="gru", sequence_length=4), None),
}


@pytest.mark.parametrize("case", IMAGE_CASES)
def test_images_travel_once_as_bytes_and_become_floats_a_minibatch_at_a_time(case, apart, sent):
    kind, config, num_reads = IMAGE_CASES[case]
    policy = kind.make_policy(config, IMAGE, DISCRETE, 0)
    learner = kind(policy, config, B)
    rollout = _rollout(policy, IMAGE)
    rollout.truncated[:] = rollout.terminated[:] = False
    read = _read_by(learner._place.module)
    learner.update(rollout)
    images = [array for array in sent if array.shape[1:] == IMAGE.shape]
    whole, *others = sorted(images, key=len, reverse=True)
    assert all(image.dtype == np.uint8 for image in images)
    assert len(whole) == T * B and all(len(image) <= B for image in others)
    assert len(others) == (case == "impala")
    assert all(batch.dtype == torch.uint8 for batch in read)
    assert num_reads is None or len(read) == num_reads
    if case == "ppo":
        assert {len(batch) for batch in read} == {8}


def test_nothing_of_a_rollout_travels_again_with_each_epoch(apart, sent):
    numbers = []
    for num_epochs in (1, 4):
        config = PPOConfig(**{**_PPO, "num_epochs": num_epochs})
        policy = PPO.make_policy(config, VECTOR, DISCRETE, 0)
        learner = PPO(policy, config, B)
        rollout = _rollout(policy, VECTOR)
        sent.clear()
        learner.update(rollout)
        numbers.append(sum(array.nbytes for array in sent))
    assert numbers[0] == numbers[1] > 0


def test_a_learner_from_replay_sends_each_image_of_a_batch_once_as_bytes(apart, sent):
    config = DQNConfig(num_steps=T, warmup_steps=0, batch_size=6, updates_per_step=0.1, n_step=1)
    policy = DQN.make_policy(config, IMAGE, DISCRETE, 0)
    learner = DQN(policy, config, B)
    rollout = _rollout(policy, IMAGE)
    rollout.truncated[:] = rollout.terminated[:] = False
    read = _read_by(learner.actor)
    metrics = learner.update(rollout)
    images = [array for array in sent if array.shape[1:] == IMAGE.shape]
    assert len(images) == 2 * metrics["gradient_steps"] > 0  # of before and after
    assert all(image.dtype == np.uint8 and len(image) == 6 for image in images)
    assert read and all(batch.dtype == torch.uint8 and len(batch) == 6 for batch in read)


class Moody(torch.nn.Module):
    """A layer of a user that computes differently in training."""


@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3), Moody()])
def test_layers_with_modes_are_in_training_mode_while_learning(layer: torch.nn.Module) -> None:
    model = Model(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Sequential(layer)))
    place: Placement[torch.nn.Module] = Placement(model)
    for _ in range(2):
        with place.learning() as module:
            assert all(part.training for part in module.modules())
        assert not any(part.training for part in model.module.modules())
