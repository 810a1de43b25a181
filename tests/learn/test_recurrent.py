"""Recurrent policies: acting in numpy, learning in torch, and what is remembered when."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rookery
from rookery import ConfigError, PPOConfig, Rollout, SpaceError
from rookery.learn.ppo import PPO
from rookery.learn.sequences import sequence_batch
from rookery.policy.recurrent import gru
from rookery.policy.recurrent_network import RecurrentNetwork, Sequences

OBS = spaces.Box(-1, 1, (3,))
CONFIG = PPOConfig(num_steps=12, recurrent="gru", memory_size=5, sequence_length=4)


class Wander(gym.Env[Any, Any]):
    """Random observations; episodes are terminated or truncated after a few steps."""

    observation_space = OBS

    def __init__(self, action_space: spaces.Space[Any] | None = None) -> None:
        self.action_space = action_space or spaces.Discrete(2)

    def _obs(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        draw = self.np_random.random()
        return self._obs(), float(draw), draw < 0.1, draw > 0.8, {}


def _policy(action_space: Any = None):
    policy = PPO.make_policy(CONFIG, OBS, action_space or spaces.Discrete(2), seed=0)
    noise = np.random.default_rng(1).normal(size=policy.model.parameters.shape) * 0.3
    policy.model.parameters += noise.astype(np.float32)
    return policy


def _rollouts(policy, count: int = 2, num_envs: int = 3, action_space: Any = None):
    venv = rookery.make_vec(
        Wander, num_envs, "serial", env_kwargs={"action_space": action_space},
        autoreset_mode="same_step",
    )  # fmt: skip
    collector = rookery.SyncCollector(venv, policy, CONFIG.num_steps, seed=0)
    rollouts = [collector.collect() for _ in range(count)]
    venv.close()
    return rollouts


def _batch(rollout: Rollout, policy):
    network = RecurrentNetwork(policy.model)
    settings = CONFIG.gamma, CONFIG.gae_lambda, CONFIG.sequence_length
    return sequence_batch(rollout, rollout.reward, policy.model, network, *settings), network


def _torch_cell(views: dict[str, np.ndarray], k: int) -> torch.nn.GRUCell:
    """Fill torch's own unit with the weights of unit k; its order of gates is the same."""
    _, inputs, gates = views["gru.input.weight"].shape
    cell = torch.nn.GRUCell(inputs, gates // 3)
    names = {"ih": "gru.input", "hh": "gru.memory"}
    with torch.no_grad():
        for theirs, ours in names.items():
            getattr(cell, f"weight_{theirs}").copy_(torch.from_numpy(views[f"{ours}.weight"][k].T))
            getattr(cell, f"bias_{theirs}").copy_(torch.from_numpy(views[f"{ours}.bias"][k, 0]))
    return cell


def test_the_unit_is_that_of_torch():
    policy = _policy()
    views = policy.model.layout.views(policy.model.parameters)
    rng = np.random.default_rng(0)
    x, memory = (rng.normal(size=(7, n)).astype(np.float32) for n in (3, 10))
    after = gru(views, x, memory)
    for k, part in enumerate((slice(0, 5), slice(5, 10))):
        with torch.no_grad():
            before = torch.from_numpy(memory[:, part])
            expected = _torch_cell(views, k)(torch.from_numpy(x), before)
        np.testing.assert_allclose(after[:, part], expected, atol=1e-6)


@pytest.mark.parametrize("action_space", [spaces.Discrete(2), spaces.Box(-1, 1, (2,))], ids=str)
def test_learning_sees_what_acting_saw(action_space):
    policy = _policy(action_space)
    for rollout in _rollouts(policy, action_space=action_space):
        assert rollout.done.any() and not rollout.done.all()
        batch, network = _batch(rollout, policy)
        whole = batch.whole()
        now = network.evaluate(whole.features, whole.action)
        np.testing.assert_allclose(now.log_prob, whole.log_prob, atol=1e-5)
        np.testing.assert_allclose(now.value, whole.value, atol=1e-5)


def test_nothing_is_remembered_beyond_an_episode():
    policy = _policy()
    first, second = _rollouts(policy)
    for rollout in (first, second):
        for t, b in np.argwhere(rollout.done[:-1]):
            fresh = _policy()
            value = fresh.act(rollout.obs[t + 1][b : b + 1]).value
            assert rollout.value[t + 1, b] == pytest.approx(value[0], abs=1e-5)
    goes_on = ~first.done[-1]
    assert goes_on.any() and first.done[-1].any()
    assert (np.abs(second.memory).sum(axis=1) > 0.0).tolist() == goes_on.tolist()


def test_a_truncated_episode_is_valued_with_what_was_remembered_at_its_end():
    policy = _policy()
    rollout = _rollouts(policy)[1]
    batch, _ = _batch(rollout, policy)
    (advantage,) = (batch.columns[3],)
    checked = 0
    for k, (t, b) in enumerate(rollout.final_index.tolist()):
        if not rollout.truncated[t, b]:
            continue
        twin = _policy()
        twin.memory = rollout.memory[b : b + 1].copy()
        for s in range(t + 1):
            twin.act(rollout.obs[s][b : b + 1])
            if s < t:
                twin.begin_episodes(rollout.done[s][b : b + 1])
        value = twin.value(rollout.final_obs[k][None])[0]
        expected = rollout.reward[t, b] + CONFIG.gamma * value - rollout.value[t, b]
        piece = t // CONFIG.sequence_length * rollout.num_envs + b
        assert advantage[t % CONFIG.sequence_length, piece] == pytest.approx(expected, abs=1e-4)
        checked += 1
    assert checked > 0


def test_gradients_are_those_of_torchs_own_unit():
    policy = _policy()
    model = policy.model
    views = model.layout.views(model.parameters)
    rng = np.random.default_rng(0)
    vector = rng.normal(size=(6, 4, 3)).astype(np.float32)
    begins, valid = rng.random((2, 6, 4)) < [[[0.3]], [[0.8]]]
    memory = rng.normal(size=(4, 10)).astype(np.float32)
    count = int(valid.sum())
    action = rng.integers(0, 2, (count, 1))
    by = rng.normal(size=(2, count)).astype(np.float32)
    network = RecurrentNetwork(model)
    evaluation = network.evaluate(Sequences(vector, begins, memory, valid), action)
    gradient = evaluation.backward(by[0], np.zeros(count, np.float32), by[1])

    cells = [_torch_cell(views, k) for k in range(2)]
    starts = torch.from_numpy(memory).split(5, dim=1)
    seen = [
        _walk(cell, start, vector, begins)[torch.from_numpy(valid)]
        for cell, start in zip(cells, starts, strict=True)
    ]
    heads = {n: torch.from_numpy(views[n].copy()).requires_grad_() for n in views if "gru" not in n}
    logits = seen[0] @ heads["actor.weight"] + heads["actor.bias"]
    log_prob = torch.distributions.Categorical(logits=logits).log_prob(
        torch.from_numpy(action[:, 0])
    )
    value = (seen[1] @ heads["critic.weight"] + heads["critic.bias"])[:, 0]
    loss = (log_prob * torch.from_numpy(by[0])).sum() + (value * torch.from_numpy(by[1])).sum()
    loss.backward()
    ours = model.layout.views(gradient)
    for name, tensor in heads.items():
        np.testing.assert_allclose(ours[name], tensor.grad, atol=1e-4)
    for k, cell in enumerate(cells):
        np.testing.assert_allclose(ours["gru.input.weight"][k].T, cell.weight_ih.grad, atol=1e-4)
        np.testing.assert_allclose(ours["gru.memory.weight"][k].T, cell.weight_hh.grad, atol=1e-4)
        np.testing.assert_allclose(ours["gru.memory.bias"][k, 0], cell.bias_hh.grad, atol=1e-4)


def _walk(cell, state, vector, begins) -> torch.Tensor:
    states = []
    for x, begin in zip(torch.from_numpy(vector), torch.from_numpy(begins), strict=True):
        state = cell(x, state * ~begin[:, None])
        states.append(state)
    return torch.stack(states)


def test_pieces_hold_every_valid_step_once():
    policy = _policy()
    rollout = _rollouts(policy)[0]
    rollout.valid[3, 1] = rollout.valid[4:8, 2] = False
    batch, _ = _batch(rollout, policy)
    assert len(batch) == 3 * 3 - 1  # one piece has no valid step at all
    parts = [batch.take(index) for index in np.array_split(np.arange(len(batch)), 3)]
    seen = np.sort(np.concatenate([part.log_prob for part in parts]))
    np.testing.assert_array_equal(seen, np.sort(rollout.log_prob[rollout.valid]))


def test_an_update_changes_the_unit_and_the_heads():
    policy = _policy()
    learner = PPO(policy, CONFIG, 3)
    before = {n: v.copy() for n, v in policy.model.state_dict()["parameters"].items()}
    metrics = learner.update(_rollouts(policy)[0])
    assert np.isfinite(list(metrics.values())).all()
    for name, array in policy.model.state_dict()["parameters"].items():
        assert (array != before[name]).any(), name


def test_rows_that_only_reset_an_env_are_not_remembered():
    venv = rookery.make_vec(Wander, 2, "serial", autoreset_mode="next_step")
    with pytest.raises(ConfigError, match="next_step"):
        rookery.SyncCollector(venv, _policy(), 4)
    venv.close()


def test_images_are_refused():
    image = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    with pytest.raises(SpaceError, match="images"):
        PPO.make_policy(CONFIG, image, spaces.Discrete(2), seed=0)


@pytest.mark.parametrize(
    "wrong", [{"sequence_length": 5}, {"recurrent": "lstm"}, {"memory_size": 0}], ids=str
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PPOConfig(**{"num_steps": 12, "recurrent": "gru", "sequence_length": 4, **wrong})
